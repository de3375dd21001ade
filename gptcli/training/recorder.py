"""What a run reports while it trains: metrics.jsonl, the record; TensorBoard, a view of it; samples.txt."""

import json
import math
import re
import sys

from gptcli.errors import RunError
from gptcli.terminal import printable
from gptcli.training.files import AppendFile, atomic_write_bytes, read_regular, remove_leftovers
from gptcli.training.run_directory import RunDirectory
from gptcli.training.tensorboard import EventFile, markdown_code

TAGS = {
    "batch_loss": "loss/batch",
    "train_loss": "loss/train",
    "val_loss": "loss/validation",
    "full_val_loss": "loss/full_validation",
    "learning_rate": "optimizer/learning_rate",
    "grad_norm": "optimizer/grad_norm",
    "tokens_per_second": "speed/tokens_per_second",
}
# TensorBoard sorts by name: some thirty charts of details must not come before those of the loss.
_GROUPS = {"diagnostics": "training_diagnostics"}
_INDENT = "    "
_SAMPLE_HEADER = re.compile(rb"step (\d{1,19}), prompt ")
_RECORD_BYTES = 2**30
# Measured only where a run ends; a run that goes on has not ended there.
_AT_THE_END = ("full_val_loss", "full_val_loss_standard_error")


class Recorder:
    """Appends to the records of one run.

    A record that cannot be written (the disk is full) is kept and tried again with the next one.
    """

    def __init__(self, run_directory, hyperparameters, *, purge_step=None, report=None):
        """Opens the records.

        Args:
            hyperparameters: the configuration, nested as it is; TensorBoard shows model.num_heads and so on.
            purge_step: for a resumed run, the first step (as records count) that it records anew: what was
                recorded from there on, and what is half-written, is removed.
            report: called with one line of text for the first failure of each file (default: standard error).

        Raises:
            RunError: a record is a link, or cannot be opened or shortened.
        """
        run = RunDirectory(run_directory)
        report = report or (lambda line: print(f"warning: {line}", file=sys.stderr))
        self._step = 0
        try:
            if purge_step is not None:
                remove_leftovers(run.path)
                _keep(run.metrics, _metrics_before, purge_step)
                _keep(run.samples, _samples_before, purge_step)
            self._metrics = AppendFile(run.metrics, report)
            self._samples = AppendFile(run.samples, report)
            self._events = EventFile(run.path, report, purge_step or 0)
        except OSError as error:
            raise RunError(f"{run.path} cannot be written to ({error.strerror or error})") from error
        self._events.hyperparameters(_flat(hyperparameters))

    def record(self, step, **values):
        """Records numbers measured at a step; a name that is not in TAGS goes into metrics.jsonl only.

        A value may be a dict of numbers and dicts; TensorBoard shows it under NAME/KEY/KEY.

        In metrics.jsonl a number that is not finite is null, so that every line is strict JSON.
        """
        self._step = step
        line = {"step": step, **{name: _json_number(value) for name, value in values.items()}}
        self._metrics.write(_line(line))
        scalars = {TAGS[name]: value for name, value in values.items() if name in TAGS}
        groups = {_GROUPS.get(name, name): value for name, value in values.items() if isinstance(value, dict)}
        self._events.scalars(step, scalars | _flat(groups, separator="/"))

    def samples(self, step, samples):
        """Records (prompt, text) pairs; text is what is shown, the prompt included where it shall be seen.

        In samples.txt every line of a sample is indented, so no sample can look like the head of another.
        """
        safe = [(printable(prompt), printable(text, keep_newlines=True)) for prompt, text in samples]
        record = "".join(f'step {step}, prompt "{prompt}"\n{_indented(text)}\n' for prompt, text in safe)
        self._samples.write(record.encode())
        blocks = [f"{markdown_code('prompt: ' + prompt)}\n\n{markdown_code(text)}" for prompt, text in safe]
        self._events.text(step, "samples", "\n\n".join(blocks))

    def sync(self):
        """Waits until the records are on the disk; to be called before a checkpoint is saved."""
        for file in (self._metrics, self._samples, self._events):
            file.sync()

    def finish(self, metrics, succeeded=True):
        """Writes the run's end and its final metrics, as final/NAME, for TensorBoard's hparams tab."""
        final = {f"final/{name}": value for name, value in metrics.items() if _is_number(value)}
        self._events.scalars(self._step, final)
        self._events.session_end(succeeded)

    def close(self):
        """Closes the files; closing twice does no harm."""
        for file in (self._metrics, self._samples, self._events):
            file.close()


def _line(record):
    return json.dumps(record, allow_nan=False).encode() + b"\n"


def _keep(path, select, purge_step):
    if not path.exists() and not path.is_symlink():
        return
    data = read_regular(path, _RECORD_BYTES)
    kept = select(data, purge_step)
    if kept != data:
        atomic_write_bytes(path, kept)


def _metrics_before(data, purge_step):
    kept = []
    for line in data.splitlines(keepends=True):
        try:
            record = json.loads(line)
            whole = line.endswith(b"\n") and record["step"] < purge_step
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        if whole:
            kept.append(_line({name: value for name, value in record.items() if name not in _AT_THE_END}))
    return b"".join(kept)


def _samples_before(data, purge_step):
    blocks = []
    for line in data.splitlines(keepends=True):
        if _SAMPLE_HEADER.match(line):
            blocks.append([])
        if blocks:
            blocks[-1].append(line)
    return b"".join(
        b"".join(block)
        for block in blocks
        # A whole block ends with an empty line; the empty lines of a sample are indented.
        if block[-1] == b"\n" and int(_SAMPLE_HEADER.match(block[0])[1]) < purge_step
    )


def _indented(text):
    return "".join(f"{_INDENT}{line}\n" for line in text.split("\n"))


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _json_number(value):
    if isinstance(value, dict):
        return {key: _json_number(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _flat(values, prefix="", separator="."):
    flat = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{key}{separator}", separator))
        elif isinstance(value, (list, tuple)):
            flat[prefix + key] = ", ".join(map(str, value))
        else:
            flat[prefix + key] = value
    return flat
