"""What a person sees of a run: a header, a progress bar or plain lines, warnings, and where to go from there."""

import math
import shlex
import sys
import time

from tqdm import tqdm

from gptcli.terminal import printable, silence
from gptcli.training.files import append_text

_SECONDS_BETWEEN_LINES = 10


class Console:
    """Shows one run, or a stack of runs as one.

    On a terminal a bar is redrawn in place; anywhere else, and in train.log, plain lines appear at evaluations and
    every few seconds, without carriage returns. Standard output can break at any time (`gptcli train | head`) without
    stopping the training.

    Args:
        steps: updates of the whole run.
        tokens_per_step: over all runs.
        log: path of the run's own log, or None.
        quiet: show nothing and write the log alone, as jobs of a sweep do.
    """

    def __init__(self, steps, tokens_per_step, log=None, quiet=False):
        self.steps, self.tokens_per_step, self.quiet = steps, tokens_per_step, quiet
        self.log_path, self._bar, self._losses = log, None, ""
        self._first, self._started, self._last_line = 0, None, 0.0

    def say(self, text):
        """Prints one line and logs it."""
        self.log(text)
        if not self.quiet:
            print_safely(text)

    def warn(self, text):
        """Prints one line on standard error, above the bar, and logs it."""
        self.log(f"warning: {text}")
        if not self.quiet:
            print_safely(f"warning: {printable(text)}", sys.stderr, bar=self._bar)

    def log(self, text):
        """Adds one line to train.log; a full disk must not stop a run for its log's sake."""
        if self.log_path is None:
            return
        try:
            append_text(self.log_path, f"{time.strftime('%H:%M:%S')} {printable(text)}\n")
        except OSError:
            self.log_path = None

    def start(self, done):
        """Shows progress from done updates on."""
        self._first, self._started, self._last_line = done, time.perf_counter(), time.perf_counter()
        if not self.quiet and sys.stderr.isatty():
            self._bar = tqdm(
                total=self.steps,
                initial=done,
                dynamic_ncols=True,
                mininterval=0.2,
                bar_format="{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}  {desc}  {remaining} left",
            )

    def advance(self, done):
        """Shows that done updates are made."""
        if self._bar is not None:
            if self._bar.update(done - self._bar.n):
                self._bar.set_description_str(f"{self._losses}{self._speed(done)}", refresh=False)
        elif time.perf_counter() - self._last_line > _SECONDS_BETWEEN_LINES:
            self._line(done)

    def evaluated(self, runs):
        """Shows the newest losses."""
        progress = runs[0].progress
        several = f" (first of {len(runs)})" if len(runs) > 1 else ""
        self._losses = f"train {progress.train_loss:.4f}  val {progress.val_loss:.4f}{several}  "
        if self._bar is not None:
            self._bar.set_description_str(f"{self._losses}{self._speed(progress.done)}")
            self.log(f"step {progress.done}/{self.steps}  {self._losses}")
        else:
            self._line(progress.done)

    def close(self):
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _line(self, done):
        self._last_line = time.perf_counter()
        text = f"step {done}/{self.steps}  {self._losses}".rstrip()
        if done > self._first:
            text += f"  {self._speed(done)}  {self._left(done)} left"
        self.log(text)
        if not self.quiet:
            print_safely(text, sys.stderr)

    def _rate(self, done):
        """Updates a second since the start."""
        seconds = time.perf_counter() - self._started
        return (done - self._first) / seconds if seconds > 0 else 0.0

    def _speed(self, done):
        return f"{in_thousands(self._rate(done) * self.tokens_per_step)} tok/s"

    def _left(self, done):
        rate = self._rate(done)
        return duration((self.steps - done) / rate) if rate else "?"


def warn(text):
    """Prints one line on standard error."""
    print_safely(f"warning: {printable(text)}", sys.stderr)


def print_safely(text, stream=None, bar=None):
    """Prints a line; a reader that has gone away, or a full disk, is no reason to stop."""
    stream = stream or sys.stdout
    try:
        if bar is not None:
            tqdm.write(text, file=stream)
        else:
            print(text, file=stream, flush=True)
    except (OSError, ValueError):
        silence(stream)


def duration(seconds):
    """Returns H:MM:SS."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def in_thousands(number):
    """Returns a number as 940, 412k or 1.2M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}" if number < 999.5 * size else f"{number / size:.0f}{letter}"
    return f"{number:.3g}" if number < 1 else f"{number:.0f}"


def header_lines(config, corpus, parameters, where, path):
    """Returns the lines that introduce a run.

    Args:
        where: device, threads and precision in words.
    """
    symbols = corpus.tokenizer.vocabulary_size
    stage = f"stage {config.stage.name}  {config.stage.title}"
    lines = [f"{printable(stage)}   {parameters:,} parameters   {printable(corpus.name)}, {symbols} symbols   {where}"]
    lines += [f"note  {printable(note)}" for note in corpus.notes]
    known = f"; this stage reaches about {config.stage.reaches:.2f} on Tiny Shakespeare" if config.stage.reaches else ""
    lines.append(f"run   {printable(path)}")
    lines.append(f"      guessing costs ln({symbols}) = {math.log(symbols):.3f} nats a character{known}")
    return lines


def finish_lines(run, floor, tokenizer, path, seconds):
    """Returns the last lines of a finished run: its losses and the commands that go on from here.

    Args:
        floor: the best possible loss with the model's context, or None where it is not known.
    """
    progress, full = run.progress, run.full_split
    loss = f"done  validation loss {full.loss:.4f} ± {full.standard_error:.4f} on the whole split"
    best = f" (best {progress.best_val_loss:.4f} at step {progress.best_step})" if progress.best_val_loss else ""
    where = shlex.quote(str(path))
    lines = [f"{loss}{best}   {full.bits_per_character:.3f} bits per character   in {duration(seconds)}"]
    if floor is not None:
        lines.append(f"      the best possible loss on this corpus with this context is {floor:.4f}")
    lines.append(f"      tensorboard --logdir {where}")
    lines.append(f"      gptcli generate {where} --prompt {printable(shlex.quote(sample_prompt(tokenizer)))}")
    return lines


def sample_prompt(tokenizer):
    """Returns a prompt that the vocabulary can spell."""
    wanted = "ROMEO:"
    return wanted if set(wanted) <= set(tokenizer.symbols) else tokenizer.symbols[-1]
