"""Finding and reading runs, without loading torch; nothing in a run directory is trusted or executed."""

import difflib
import glob
import json
import os
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

from gptcli.errors import UserError
from gptcli.terminal import printable
from gptcli.training.files import UnreadableFile, read_json, read_regular, whole_number
from gptcli.training.lock import holder
from gptcli.training.run_directory import RUN_FORMAT, STEP_NAME, RunDirectory, holds_run

OUTPUTS = Path("outputs")
_METRICS_BYTES = 2**30
_DEPTH = 6  # outputs/multirun/<date>/<time>/<job> is four levels deep
_NUMBER = (int, float, type(None))
_WORD = (str, type(None))
_TYPES = {
    "format": (int,),
    "status": (str,),
    "stage": _WORD,
    "title": _WORD,
    "reason": _WORD,
    "created": _WORD,
    "updated": _WORD,
    "config": (dict,),
    "corpus": (dict, type(None)),
    "overrides": (list,),
    **dict.fromkeys(("parameters", "seed", "step", "steps", "tokens", "best_step", "seconds"), _NUMBER),
    "floor": _NUMBER,
    **dict.fromkeys(("train_loss", "val_loss", "best_val_loss", "full_val_loss"), _NUMBER),
    "full_val_loss_standard_error": _NUMBER,
}


class Run:
    """One run directory; what is damaged in it is said in .damage and left out of .info."""

    def __init__(self, path):
        self.path = Path(path)
        self.damage = None
        try:
            info = read_json(self.path / "run.json")
        except UnreadableFile as error:
            info, self.damage = {}, str(error)
        self.info = {key: value for key, value in info.items() if _has_type(key, value)}
        wrong = [key for key in info if key not in self.info]
        if info.get("format", 0) != RUN_FORMAT and "format" not in wrong:
            self.damage = self.damage or f"run.json has format {info.get('format')}, not {RUN_FORMAT}"
        elif wrong:
            self.damage = f"run.json: {wrong[0]} has the wrong type"

    @cached_property
    def config(self):
        """The composed configuration as nested dicts; validate it with gptcli.config.from_dict before use."""
        return self.info.get("config", {})

    @cached_property
    def status(self):
        """The status of run.json, "dead" for a running one whose process is gone, or "damaged"."""
        if self.damage:
            return "damaged"
        status = self.info.get("status", "damaged")
        return "dead" if status == "running" and holder(self.path) is None else status

    def metrics(self):
        """Returns the records of metrics.jsonl as dicts; damaged lines are left out.

        Raises:
            UnreadableFile: metrics.jsonl is missing, a link, or too large.
        """
        records = []
        for line in read_regular(self.path / "metrics.jsonl", _METRICS_BYTES).splitlines():
            try:
                record = json.loads(line, parse_int=whole_number)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict) and type(record.get("step")) is int:
                records.append(record)
        return records

    def checkpoints(self):
        """Returns the names of the checkpoints, oldest first."""
        return RunDirectory(self.path).checkpoint_names()

    def value(self, key):
        """Returns what run.json, or the configuration in it, holds under a dotted key, or None."""
        if key == "status":
            return self.status
        for place in (self.info, self.config):
            for part in key.split("."):
                place = place.get(part) if isinstance(place, dict) else None
            if place is not None:
                return place
        return None


def _has_type(key, value):
    types = _TYPES.get(key)
    return types is None or (isinstance(value, types) and not (isinstance(value, bool) and bool not in types))


@dataclass(frozen=True)
class RunReference:
    """A run, and the name of the checkpoint asked for: None means the one that `latest` points to."""

    run_path: Path
    checkpoint_name: str | None


def find_runs(paths=None):
    """Returns the runs in paths (run directories, folders above them, patterns), newest first.

    Args:
        paths: outputs/ by default; `latest` is the newest run in it.

    Raises:
        UserError: a path does not exist.
    """
    found = {}
    for text in paths or [OUTPUTS]:
        places = _places(str(text))
        if not places and paths:
            raise UserError(f"no run at {printable(text)}: there is no such folder")
        for place in places:
            for folder in _run_folders(place, _DEPTH):
                found.setdefault(folder.resolve(), Run(folder))
    return sorted(found.values(), key=lambda run: (_created(run), run.path.name), reverse=True)


def _places(text):
    if os.path.lexists(text):
        return [Path(text)]
    return [_latest().path] if text == "latest" else [Path(match) for match in sorted(glob.glob(text))]


def _created(run):
    """Sorts by the time in UTC; a run without a usable time counts as its folder's last change."""
    try:
        return datetime.fromisoformat(run.info["created"]).timestamp()
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return os.path.getmtime(run.path) if run.path.exists() else 0.0


def _run_folders(folder, depth):
    """Yields the run directories in folder; links inside it are not followed."""
    if holds_run(folder):
        yield folder
    elif depth:
        try:
            inner = sorted(entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
        except OSError:
            return
        for path in inner:
            yield from _run_folders(Path(path), depth - 1)


def resolve_run(text):
    """Returns the RunReference that a user means by a run directory, a checkpoint in one, or `latest`.

    Raises:
        UserError: there is no such run; says what was found instead.
    """
    if text == "latest":
        return RunReference(_latest().path, None)
    if not text.strip():
        raise UserError(f"no run at {text!r}; name a run directory, or latest")
    path = Path(text)
    if not os.path.lexists(path):
        raise UserError(f"no run at {printable(text)}{_nearest(text)}")
    run_path = _enclosing_run(path)
    if run_path is None:
        raise UserError(_no_run(text, path))
    # The caller may reach a run by links; within the run a link could lead anywhere.
    inside = path.absolute().relative_to(run_path.absolute())
    if path.resolve() != run_path.resolve() / inside:
        raise UserError(f"{printable(text)} is a symbolic link that leaves the run {printable(run_path)}")
    _check_readable(Run(run_path))
    return RunReference(run_path, _checkpoint_name(run_path, inside, text))


def _latest():
    runs = [run for run in find_runs() if not run.damage]
    if not runs:
        raise UserError(f"no run in {OUTPUTS}/; start one with: gptcli train")
    return runs[0]


def _enclosing_run(path):
    for folder in (path, *path.absolute().parents[:3]):
        # A checkpoint is no run, although its folder's name may be all that is left of one.
        if folder.is_dir() and holds_run(folder) and folder.name != "checkpoints":
            return folder
    return None


def _checkpoint_name(run_path, inside, text):
    if len(inside.parts) < 2 or inside.parts[0] != "checkpoints":
        return None
    name = inside.parts[1]
    if name in ("latest", "best"):
        try:
            name = RunDirectory(run_path).pointer(name)
        except UnreadableFile as error:
            raise UserError(f"{printable(text)}: {error}") from error
    if not STEP_NAME.fullmatch(name):
        raise UserError(f"{printable(text)} is no checkpoint; they are named step_ and eight digits")
    return name


def _check_readable(run):
    version = run.info.get("format")
    if version is not None and version > RUN_FORMAT:
        raise UserError(
            f"{printable(run.path)} was written by a newer gptcli "
            f"(run format {version}, this one reads {RUN_FORMAT}); update gptcli to use it"
        )
    if run.damage:
        raise UserError(f"{printable(run.path)} is damaged: {printable(run.damage)}")


def _no_run(text, path):
    inside = list(_run_folders(path, _DEPTH)) if path.is_dir() else []
    if not inside:
        return f"no run at {printable(text)}: it holds no run.json{_nearest(text)}"
    runs = "1 run" if len(inside) == 1 else f"{len(inside)} runs"
    return f"{printable(text)} is a folder of {runs}; name one of them, such as {printable(inside[0])}"


def _nearest(text):
    names = {str(run.path): run.path.name for run in find_runs()}
    wanted = Path(text).name
    close = difflib.get_close_matches(wanted, set(names.values()), n=3, cutoff=0.5)
    found = [path for path, name in names.items() if name in close or (wanted and wanted in name)][:3]
    if not found:
        return "; see: gptcli runs"
    return f"; did you mean {' or '.join(printable(path) for path in found)}?"
