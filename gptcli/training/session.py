"""Runs from their settings to their end: checked and built first, then given directories, then trained."""

import contextlib
import dataclasses
import os
import time

from gptcli.config import from_dict, to_dict
from gptcli.data.windows import WalkthroughSampler
from gptcli.errors import RunError, UserError
from gptcli.generation import Sampling, continuations
from gptcli.training.batches import TrainingBatches
from gptcli.training.checkpoint import NoCheckpoint, newest_good_checkpoint
from gptcli.training.console import Console, finish_lines, header_lines, warn
from gptcli.training.evaluation import FixedWindows, WalkthroughWindows
from gptcli.training.lock import RunLock
from gptcli.training.recorder import Recorder
from gptcli.training.run import Run, progress_from, restore_random_state
from gptcli.training.run_directory import RunDirectory, create_run_directory, git_revision, versions
from gptcli.training.schedule import depends_on_steps
from gptcli.training.trainer import Trainer
from gptcli.training.workplace import build, enough_memory, prepare
from gptcli.validation import validate


@dataclasses.dataclass(frozen=True)
class Provenance:
    """Where a run's settings came from, for its records."""

    overrides: list
    config_yaml: str
    hydra_yaml: str
    sweep: dict | None = None


def train_new(configs, paths, provenances, interruption, *, quiet=False, workers=1):
    """Trains new runs together and returns them, finished, interrupted or failed.

    Args:
        configs, paths, provenances: one of each a run; the configs share a corpus, a shape and a timetable.
    Raises:
        UserError: before anything is written.
    """
    workplace = prepare(configs, workers=workers)
    engine = build(configs, workplace)
    evaluation_windows = _fixed_windows(configs[0], workplace.corpus)
    with contextlib.ExitStack() as stack:
        runs = []
        for config, path, provenance in zip(configs, paths, provenances, strict=True):
            directory = create_run_directory(path)
            stack.enter_context(RunLock(directory.path))
            directory.write_hydra(provenance.config_yaml, provenance.hydra_yaml, provenance.overrides)
            directory.write_info(_initial_info(config, workplace, engine, provenance))
            recorder = Recorder(directory, hyperparameters(config), report=warn)
            runs.append(_run(config, directory, recorder, workplace.corpus, evaluation_windows))
        return _train(runs, engine, workplace, interruption, quiet)


def resume(path, interruption, *, steps=None, data_path=None, quiet=False, workers=1):
    """Goes on with a run where its newest good checkpoint left it, and returns the run.

    Raises:
        UserError: the run is finished, is being trained, or its corpus, vocabulary or settings have changed.
    """
    directory = RunDirectory(path)
    with RunLock(directory.path):
        info = directory.read_info()
        config, checkpoint, notes = _resumable(directory, info, steps, data_path)
        workplace = prepare([config], workers=workers)
        _check_same_corpus(info, workplace.corpus)
        engine = build([config], workplace)
        done = checkpoint.step if checkpoint else 0
        recorder = _reopened_recorder(directory, config, done, info["config"]["trainer"]["steps"])
        run = _run(config, directory, recorder, workplace.corpus, _fixed_windows(config, workplace.corpus))
        if checkpoint:
            _restore(run, engine, checkpoint)
        directory.update_info(
            status="running",
            reason=None,
            steps=config.trainer.steps,
            config=to_dict(config),
            full_val_loss=None,
            full_val_loss_standard_error=None,
            **_surroundings(workplace),
        )
        return _train([run], engine, workplace, interruption, quiet, notes)[0]


def _restore(run, engine, checkpoint):
    """Puts a checkpoint's state into a run and its engine; RunError where it does not fit them."""
    try:
        engine.load_model_state(0, checkpoint.model)
        engine.load_optimizer_state(0, checkpoint.optimizer)
        run.progress = progress_from(checkpoint.state)
        run.batches.restore(checkpoint.state["batches"], checkpoint.step)
        restore_random_state(checkpoint.extra)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise RunError(f"{checkpoint.path} does not fit its run: {error}") from error


def _resumable(directory, info, steps, data_path):
    """Returns the Config to go on with, the checkpoint to go on from (or None: from the start) and notes."""
    stored = _stored_config(info)
    notes = []
    try:
        checkpoint, notes = newest_good_checkpoint(directory.path)
        _refuse_changed_settings(checkpoint.state.get("config"), info["config"])
    except NoCheckpoint:
        if info.get("status") == "finished" or _has_had_a_checkpoint(directory):
            raise
        checkpoint = None
        notes = ["no checkpoint was saved yet; the run starts from its beginning"]
    total = steps or stored.trainer.steps
    done = checkpoint.step if checkpoint else 0
    if done >= total:
        raise UserError(
            f"the run has made its {done:,} steps; to go on, ask for more: gptcli resume RUN --steps {done * 2}"
            if steps is None else f"--steps {steps} is not more than the {done:,} steps that are done"
        )
    if total != stored.trainer.steps and depends_on_steps(stored.schedule):
        notes.append(
            f"schedule={stored.schedule.name} depends on the number of steps: from here on the learning rate is that"
            f" of a run of {total:,} steps, not of {stored.trainer.steps:,}"
        )
    config = dataclasses.replace(stored, trainer=dataclasses.replace(stored.trainer, steps=total))
    if data_path:
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, path=data_path))
    if config.data.name == "auto":
        # The corpus that auto chose then is the one to go on with, whatever auto would choose now.
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, name=info["corpus"]["name"]))
    validate(from_dict(to_dict(config)))
    return config, checkpoint, notes


def _stored_config(info):
    """Returns the Config in run.json; UserError where it does not say how the run goes on."""
    try:
        config = from_dict(info.get("config") or {})
        corpus = info.get("corpus")
        if not isinstance(corpus, dict) or not all(isinstance(corpus.get(one), str) for one in ("name", "sha256")):
            raise UserError("it names no corpus")
        return config
    except UserError as error:
        raise UserError(f"run.json does not say how the run goes on: {error}") from error


def _has_had_a_checkpoint(directory):
    return bool(directory.checkpoint_names()) or os.path.lexists(directory.checkpoints / "latest")


def _refuse_changed_settings(saved, now):
    """Refuses to go on when run.json's settings are not those the checkpoint was made with."""
    if not isinstance(saved, dict):
        raise UserError("the checkpoint does not hold the settings that it was made with")
    differences = [
        f"{key}: {old!r} -> {new!r}"
        for key, old, new in _differences(saved, now)
        if key not in ("trainer.steps", "data.name", "data.path")
    ]
    if differences:
        raise UserError(f"the settings in run.json are not those of the checkpoint: {'; '.join(differences[:5])}")


def _differences(old, new, prefix=""):
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _differences(before, after, f"{prefix}{key}.")
        elif before != after:
            yield prefix + key, before, after


def _check_same_corpus(info, corpus):
    recorded = info["corpus"]
    if recorded["sha256"] != corpus.sha256:
        raise UserError(
            f"the corpus has changed since the run began: it was {recorded['name']} with sha256"
            f" {recorded['sha256'][:12]}..., now {corpus.name} with {corpus.sha256[:12]}..."
        )


def _reopened_recorder(directory, config, done, steps_before):
    """Returns the Recorder of a run that goes on after done updates, its records as the uninterrupted run has them.

    A run that was finished and is extended has one record more than a longer run has, unless one was due there.
    """
    label = done - (1 if config.recipe.name == "walkthrough" else 0)
    extended = done == steps_before and done > 0
    scheduled = label % config.trainer.log_every == 0 or label % config.trainer.eval_every == 0
    purge_step = label if extended and not scheduled else label + 1
    purge_step = max(0, purge_step) if done else 0
    return Recorder(directory, hyperparameters(config), purge_step=purge_step, report=warn)


def hyperparameters(config):
    """Returns the settings that TensorBoard's hparams tab shows, flat."""
    flat = {"seed": config.seed, "stage": config.stage.name, "data": config.data.name, "recipe": config.recipe.name}
    for group in ("model", "optimizer", "schedule"):
        for key, value in to_dict(config)[group].items():
            flat[f"{group}.{key}"] = value if isinstance(value, (bool, int, float, str)) else str(value)
    for key in ("steps", "batch_size", "grad_clip"):
        flat[f"trainer.{key}"] = getattr(config.trainer, key)
    return flat


def _fixed_windows(config, corpus):
    if config.recipe.name == "walkthrough":
        return None
    return FixedWindows(corpus, config.model.block_size, config.trainer.eval_tokens)


def _run(config, directory, recorder, corpus, fixed_windows):
    shape = (config.model.block_size, config.trainer.batch_size)
    walkthrough = WalkthroughSampler(config.seed) if config.recipe.name == "walkthrough" else None
    batches = TrainingBatches(corpus.train, *shape, config.seed, walkthrough)
    windows = fixed_windows or WalkthroughWindows(corpus, *shape, walkthrough)
    return Run(config, directory, recorder, batches, windows)


def _initial_info(config, workplace, engine, provenance):
    corpus = workplace.corpus
    return {
        "status": "running",
        "reason": None,
        "stage": config.stage.name,
        "title": config.stage.title,
        "parameters": engine.model(0).parameter_count(),
        "seed": config.seed,
        "recipe": config.recipe.name,
        "corpus": {
            "name": corpus.name,
            "sha256": corpus.sha256,
            "vocabulary": list(corpus.tokenizer.symbols),
            "characters": len(corpus.train) + len(corpus.validation),
            "notes": list(corpus.notes),
        },
        "floor": None,
        "step": 0,
        "steps": config.trainer.steps,
        "tokens": 0,
        "overrides": provenance.overrides,
        "sweep": provenance.sweep,
        "config": to_dict(config),
        **_surroundings(workplace),
    }


def _surroundings(workplace):
    return {
        "versions": versions(),
        "git_revision": git_revision(),
        "device": str(workplace.device),
        "threads": workplace.threads,
        "precision": workplace.precision,
        "compiled": workplace.compiled,
    }


def _train(runs, engine, workplace, interruption, quiet, notes=()):
    first = runs[0]
    tokens_per_step = first.config.trainer.batch_size * first.config.model.block_size * len(runs)
    console = Console(first.config.trainer.steps, tokens_per_step, first.directory.train_log, quiet)
    parameters = engine.model(0).parameter_count()
    for line in header_lines(first.config, workplace.corpus, parameters, workplace.words, first.directory.path):
        console.say(line)
    for note in [*workplace.reasons, *notes]:
        console.say(f"note  {note}")
    sampler = _sampler(runs, engine, workplace.corpus.tokenizer)
    trainer = Trainer(runs, engine, workplace.corpus, console, interruption, sampler)
    started = time.perf_counter()
    console.start(trainer.done)
    try:
        with interruption.listening(), enough_memory():
            trainer.train()
    except BaseException as error:
        reason = str(error) if isinstance(error, RunError) else f"{type(error).__name__}: {error}"
        for run in runs:
            _end(run, "failed", reason)
        raise
    finally:
        console.close()
    for run in runs:
        _conclude(run, trainer, interruption, console, workplace.corpus, time.perf_counter() - started)
    return runs


def _conclude(run, trainer, interruption, console, corpus, seconds):
    """Writes a run's end into its directory and says it."""
    if run.failure is None and run.unsaved:
        run.failure = f"the last checkpoint could not be saved: {run.unsaved}"
    if run.failure:
        _end(run, "failed", run.failure)
    elif trainer.done < run.config.trainer.steps:
        run.interrupted = True
        _end(run, "interrupted", f"{interruption.name} at step {trainer.done}")
        console.say(f"stopped at step {trainer.done} by {interruption.name}; saved")
        console.say(f"      gptcli resume {run.directory.path}")
    else:
        floor = corpus.floor(run.config.model.context_length) if corpus.floor else None
        _end(run, "finished", None, floor=floor)
        for line in finish_lines(run, floor, corpus.tokenizer, run.directory.path, seconds):
            console.say(line)


def _end(run, status, reason, **more):
    if status == "failed":
        # Of runs that are trained together only the first one's log is the console's.
        Console(0, 0, run.directory.train_log, quiet=True).log(f"failed: {reason}")
    run.recorder.close()
    try:
        run.directory.update_info(
            status=status, reason=reason, skipped_steps=run.progress.skipped_steps, **more
        )
    except OSError as error:
        run.failure = run.failure or f"run.json could not be updated: {error.strerror or error}"


def _sampler(runs, engine, tokenizer):
    """Returns the function that draws the sample texts of a run at a step."""

    def sample(member, step):
        settings, seed = runs[member].config.trainer, runs[member].config.seed
        prompts = [tokenizer.known(prompt)[0] or tokenizer.symbols[0] for prompt in settings.sample_prompts]
        # Random numbers of their own, so that samples never move the training's.
        seeds = [(seed * 1_000_003 + step * 101 + index) % 2**63 for index in range(len(prompts))]
        ids = [tokenizer.encode(prompt).tolist() for prompt in prompts]
        texts = continuations(engine.model(member), ids, settings.sample_tokens, Sampling(), seeds)
        return [(prompt, tokenizer.decode(text)) for prompt, text in zip(prompts, texts, strict=True)]

    return sample
