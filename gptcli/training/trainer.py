"""The training loop: steps between events, and what happens at each event.

One loop serves a single run and a stack of runs that are trained together; every quantity has one value a run.
"""

import math
import time

import torch

from gptcli.training.checkpoint import CheckpointNotSaved
from gptcli.training.diagnostics import diagnose, diagnostic_batch
from gptcli.training.divergence import describe_nonfinite
from gptcli.training.evaluation import split_loss
from gptcli.training.profiling import StepProfiler
from gptcli.training.schedule import learning_rate

# Guessing costs ln(vocabulary); no run that learns is ever this many times worse, and one that is will not come back.
_HOPELESS = 20
# Of a very large corpus a sample of this many symbols has a standard error far below any difference of interest.
FULL_SPLIT_LIMIT = 2**24


class Trainer:
    """Trains one or several runs that share a corpus, a shape and a timetable.

    Args:
        runs: list of Run; their settings differ at most in seed, learning rate, weight decay, betas and dropout rate.
        engine: the Engine that holds their weights, one member a run.
        corpus: the Corpus.
        console: what a person sees, with start, advance, evaluated, warn and close.
        interruption: an Interruption, true once a signal asked to stop.
        sampler: draws the sample texts: maps (run index, step) to a list of (prompt, text).
    """

    def __init__(self, runs, engine, corpus, console, interruption, sampler):
        self.runs, self.engine, self.corpus = runs, engine, corpus
        self.console, self.interruption, self.sampler = console, interruption, sampler
        self.settings = runs[0].config.trainer
        self.reads_every_loss = engine.device.type == "cpu"
        self.diagnostic_batch = None
        if self.settings.diagnostics:
            batch = diagnostic_batch(corpus.train, runs[0].config.model.block_size)
            self.diagnostic_batch = [tokens.to(engine.device) for tokens in batch]
        self.hopeless_loss = _HOPELESS * math.log(max(2, corpus.tokenizer.vocabulary_size))
        self.profiler = StepProfiler(runs[0].directory.path, console.say) if self.settings.profile else None
        self._started = time.perf_counter()
        self._training_seconds = 0.0
        self._tokens_timed = 0

    @property
    def done(self):
        """Updates made so far, the same for all runs."""
        return self.runs[0].progress.done

    def train(self):
        """Trains to the last step or to an interruption; failures are left in each run's failure."""
        self._started = time.perf_counter()
        self._seconds_before = [run.progress.seconds for run in self.runs]
        if self.done == 0 and self.runs[0].is_due(self.settings.eval_every):
            self._event()
        while self.done < self.settings.steps and not self.interruption and self._alive():
            event = self._next_event()
            self._advance(event)
            # An event that is reached takes place even when the run is to stop: a resumed run goes on after it.
            if self.done == event < self.settings.steps:
                self._event()
        if self.profiler:
            self.profiler.close()
        if self.done < self.settings.steps:
            for member, run in self._alive():
                self._save(member, run, best=False)
                self._update_info(run)
        else:
            self._finish()

    def _alive(self):
        return [(member, run) for member, run in enumerate(self.runs) if run.failure is None]

    def _next_event(self):
        """Returns the next count of updates at which anything is due."""
        offset = self.runs[0].label_offset
        settings = self.settings
        candidates = [settings.steps, _next_multiple(self.done, settings.checkpoint_every)]
        for every in (settings.log_every, settings.eval_every):
            candidates.append(_next_multiple(self.done - offset, every) + offset)
        return min(candidates)

    def _advance(self, stop):
        """Makes updates until stop of them are done, an interruption or the failure of every run."""
        started = time.perf_counter()
        first = self.done
        while self.done < stop and not self.interruption and self._alive():
            count = min(stop - self.done, self.runs[0].batches.steps_at_once)
            x, y = self._draw(count)
            for index in range(count):
                self._step(x[:, index], y[:, index])
                if self.interruption or not self._alive():
                    break
        self._training_seconds += time.perf_counter() - started
        self._tokens_timed += (self.done - first) * x.shape[2] * x.shape[3]

    def _draw(self, count):
        """Returns inputs and targets (run, step, batch, time) of the next count steps, on the engine's device."""
        drawn = [run.batches.draw(self.done, count) for run in self.runs]
        return tuple(
            torch.stack(parts).to(self.engine.device, non_blocking=True) for parts in zip(*drawn, strict=True)
        )

    def _step(self, x, y):
        rates = [
            learning_rate(self.done, run.config.optimizer.learning_rate, run.config.schedule, self.settings.steps)
            for run in self.runs
        ]
        if self.profiler:
            self.profiler.step()
        losses, norms = self.engine.step(x, y, rates)
        self.rates, self.norms = rates, norms
        for run in self.runs:
            run.progress.done += 1
        if self.reads_every_loss:
            self._take_losses(losses.tolist(), norms.tolist(), x, y)
        else:
            self._take_losses_later(losses, norms, x, y)
        self.console.advance(self.done)

    def _take_losses(self, losses, norms, x, y):
        for member, run in self._alive():
            loss, norm = losses[member], norms[member]
            if math.isfinite(loss) and math.isfinite(norm):
                run.progress.batch_loss_sum += loss
                run.progress.batch_losses += 1
                if loss > self.hopeless_loss:
                    run.failure = (
                        f"diverged at step {run.label}: the loss is {loss:.4g}, guessing costs"
                        f" {self.hopeless_loss / _HOPELESS:.3g}; lower optimizer.learning_rate="
                        f"{run.config.optimizer.learning_rate:g} or set trainer.grad_clip=1"
                    )
            elif self.settings.on_nonfinite == "skip":
                run.progress.skipped_steps += 1
            else:
                model = self.engine.model(member)
                run.failure = describe_nonfinite(model, x[member], y[member], run.label, loss, norm)

    def _take_losses_later(self, losses, norms, x, y):
        """Reads losses from an accelerator once in a while: each read waits for all work queued before it.

        A step with a loss or gradient that is not finite changes no weights, so a late look loses nothing.
        """
        self._pending = [*getattr(self, "_pending", []), (losses, norms, x, y)]
        if len(self._pending) >= 32 or self.done in (self.settings.steps, self._next_event()):
            read = torch.stack([torch.stack((losses, norms)) for losses, norms, _, _ in self._pending]).tolist()
            for (losses, norms), (_, _, x, y) in zip(read, self._pending, strict=True):
                self._take_losses(losses, norms, x, y)
            self._pending = []

    def _event(self):
        """Measures, records, samples and saves, each where it is due."""
        settings = self.settings
        evaluates = self.runs[0].is_due(settings.eval_every)
        logs = self.done > 0 and self.runs[0].is_due(settings.log_every)
        saves = self.done > 0 and self.done % settings.checkpoint_every == 0
        evaluations = self._evaluate() if evaluates else None
        for member, run in self._alive():
            values, best = self._measured(member, run) if logs else {}, False
            if evaluations:
                train_loss, val_loss = evaluations[member]
                values |= {"train_loss": train_loss, "val_loss": val_loss}
                best = run.note_evaluation(train_loss, val_loss) and self.done > 0
            if values:
                self._record(run, values)
            if run.failure:
                continue
            if evaluates and run.is_due(settings.sample_every):
                run.recorder.samples(run.label, self.sampler(member, run.label))
            if best or saves:
                self._save(member, run, best=best)
        if evaluates:
            self.console.evaluated(self.runs)
        if logs:
            self._training_seconds, self._tokens_timed = 0.0, 0

    def _evaluate(self):
        """Returns (train loss, validation loss) of each run."""
        by_split = []
        for split in ("train", "validation"):
            windows = [run.windows.draw(split) for run in self.runs]
            x, y = (torch.stack(parts) for parts in zip(*windows, strict=True))
            by_split.append(self.engine.evaluate(x, y).tolist())
        for run in self.runs:
            run.batches.mark(self.done)
        return list(zip(*by_split, strict=True))

    def _measured(self, member, run, *, scheduled=True):
        """Returns what was measured since the last record; an extra record leaves the running mean as it is."""
        values = {"learning_rate": self.rates[member], "grad_norm": float(self.norms[member])}
        batch_loss = run.batch_loss(reset=scheduled)
        if batch_loss is not None:
            values["batch_loss"] = batch_loss
        if self._training_seconds:
            values["tokens_per_second"] = self._tokens_timed / self._training_seconds
        if self.diagnostic_batch:
            values["diagnostics"] = diagnose(self.engine.model(member), *self.diagnostic_batch)
        return values

    def _record(self, run, values):
        self._take_time(run)
        run.recorder.record(run.label, **values, seconds=run.progress.seconds)
        known = {key: values[key] for key in ("tokens_per_second",) if key in values}
        self._update_info(run, **known)

    def _take_time(self, run):
        before = self._seconds_before[self.runs.index(run)]
        run.progress.seconds = before + time.perf_counter() - self._started

    def _update_info(self, run, **more):
        progress = run.progress
        tokens = progress.done * self.settings.batch_size * run.config.model.block_size
        try:
            run.directory.update_info(
                step=progress.done,
                tokens=tokens,
                seconds=progress.seconds,
                train_loss=progress.train_loss,
                val_loss=progress.val_loss,
                best_val_loss=progress.best_val_loss,
                best_step=progress.best_step,
                **more,
            )
        except OSError as error:
            self.console.warn(f"run.json could not be updated: {error.strerror or error}; training goes on")

    def _save(self, member, run, *, best):
        self._take_time(run)
        run.recorder.sync()
        try:
            run.save(self.engine, member, self.corpus, best=best)
            run.unsaved = None
        except CheckpointNotSaved as error:
            run.unsaved = str(error)
            self.console.warn(f"{error}; training goes on with the earlier checkpoints")

    def _finish(self):
        """Measures the whole validation split; writes the last record, samples and checkpoint of each run."""
        first = self.runs[0]
        evaluates = first.is_due(self.settings.eval_every) or first.label_offset == 0
        evaluations = self._evaluate() if evaluates else None
        for member, run in self._alive():
            values, best = self._measured(member, run, scheduled=first.is_due(self.settings.log_every)), False
            if evaluations:
                train_loss, val_loss = evaluations[member]
                values |= {"train_loss": train_loss, "val_loss": val_loss}
                best = run.note_evaluation(train_loss, val_loss)
            run.full_split = self._full_split(member, run)
            if not evaluations and not math.isfinite(run.full_split.loss):
                run.note_evaluation(run.progress.train_loss, run.full_split.loss)
            full = {
                "full_val_loss": run.full_split.loss,
                "full_val_loss_standard_error": run.full_split.standard_error,
            }
            self._record(run, values | full)
            if run.failure:
                continue
            if self.settings.sample_every:
                run.recorder.samples(run.label, self.sampler(member, run.label))
            self._save(member, run, best=best)
            self._update_info(run, **full)
            run.recorder.finish({"val_loss": run.progress.val_loss, "full_val_loss": run.full_split.loss})

    def _full_split(self, member, run):
        tokens = self.corpus.validation[:FULL_SPLIT_LIMIT]
        return split_loss(
            lambda x, y: self.engine.window_losses(member, x, y), tokens, run.config.model.block_size
        )


def _next_multiple(value, every):
    return (value // every + 1) * every

