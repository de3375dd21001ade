"""The folder of one run: how it is made, what lies in it, and its summary run.json."""

import contextlib
import math
import os
import platform
import re
import subprocess
from datetime import datetime
from importlib import metadata
from pathlib import Path

from gptcli.errors import UserError
from gptcli.stages import config_directory
from gptcli.training.files import (
    UnreadableFile,
    atomic_write_json,
    atomic_write_text,
    read_json,
    read_regular,
)

RUN_FORMAT = 1
STEP_NAME = re.compile(r"step_\d{8,19}")
_SIGNS_OF_A_RUN = ("run.json", "checkpoints", "metrics.jsonl", "samples.txt", ".hydra")


def step_name(step):
    """Returns the name of a step's checkpoint folder."""
    return f"step_{step:08d}"


def create_run_directory(path):
    """Makes the folder of a new run and returns its RunDirectory; of several callers one gets it.

    Raises:
        UserError: the folder holds a run, path is a file, or it cannot be made.
    """
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        if holds_run(path) or any(path.glob("events.out.tfevents.*")):
            raise FileExistsError
        # Making a folder is atomic on every system, so this is the claim.
        (path / "checkpoints").mkdir()
    except FileExistsError as error:
        if path.is_dir():
            raise UserError(
                f"{path} already holds a run; go on with it: gptcli resume {path}; or choose another folder"
            ) from error
        raise UserError(f"{path} cannot be a run directory: it is a file") from error
    except NotADirectoryError as error:
        raise UserError(f"{path} cannot be a run directory: part of the path is a file") from error
    except OSError as error:
        raise UserError(f"run directory {path} cannot be made ({error.strerror or error})") from error
    return RunDirectory(path)


def holds_run(path):
    """True when a folder holds a run or what is left of one."""
    return any(os.path.lexists(Path(path) / name) for name in _SIGNS_OF_A_RUN)


class RunDirectory:
    """The paths of a run and the writing of its small files."""

    def __init__(self, path):
        self.path = Path(path)
        self.run_json = self.path / "run.json"
        self.metrics = self.path / "metrics.jsonl"
        self.samples = self.path / "samples.txt"
        self.train_log = self.path / "train.log"
        self.checkpoints = self.path / "checkpoints"
        self.hydra = self.path / ".hydra"

    def __fspath__(self):
        return str(self.path)

    def __str__(self):
        return str(self.path)

    def write_info(self, info):
        """Replaces run.json; format and time are filled in, and a number that is not finite becomes null.

        Raises:
            OSError: the disk is full or the folder not writable; the old run.json is still there.
        """
        now = datetime.now().astimezone().isoformat(timespec="microseconds")
        info = {"format": RUN_FORMAT, "created": now, **info, "updated": now}
        atomic_write_json(self.run_json, _strict(info))

    def read_info(self):
        """Returns the content of run.json.

        Raises:
            UnreadableFile: it is missing or damaged.
        """
        return read_json(self.run_json)

    def update_info(self, **fields):
        """Replaces some fields of run.json."""
        self.write_info({**self.read_info(), **fields})

    def write_hydra(self, config_yaml, hydra_yaml, overrides):
        """Writes .hydra/ as Hydra does: config.yaml, hydra.yaml and overrides.yaml (a list of strings).

        In hydra.yaml, which only people read, the current folder becomes `.`, the home folder `~`, and the
        folder that the shipped configuration is installed in `conf`.
        """
        self.hydra.mkdir(exist_ok=True)
        atomic_write_text(self.hydra / "config.yaml", config_yaml)
        atomic_write_text(self.hydra / "hydra.yaml", _without_folders(hydra_yaml))
        lines = "".join("- " + _yaml_string(override) + "\n" for override in overrides)
        atomic_write_text(self.hydra / "overrides.yaml", lines or "[]\n")

    def checkpoint_names(self):
        """Returns the names of the checkpoint folders, oldest first; links are left out."""
        with contextlib.suppress(OSError):
            if self.checkpoints.is_symlink():
                return []
            entries = [entry for entry in os.scandir(self.checkpoints) if entry.is_dir(follow_symlinks=False)]
            names = [entry.name for entry in entries if STEP_NAME.fullmatch(entry.name)]
            return sorted(names, key=lambda name: int(name[5:]))
        return []

    def pointer(self, which):
        """Returns the checkpoint name in the file `latest` or `best`, or None when there is no such file.

        Raises:
            UnreadableFile: the file is a link, or holds anything but the name of a checkpoint.
        """
        path = self.checkpoints / which
        if not os.path.lexists(path):
            return None
        name = read_regular(path, 200).decode("ascii", "replace").strip()
        if not STEP_NAME.fullmatch(name):
            raise UnreadableFile(f"checkpoints/{which} does not hold the name of a checkpoint")
        return name


def _strict(value):
    if isinstance(value, dict):
        return {key: _strict(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _without_folders(text):
    for folder, short in ((config_directory(), "conf"), (Path.cwd(), "."), (Path.home(), "~")):
        if len(folder.parts) > 1:
            text = text.replace(str(folder), short)
    return text


def _yaml_string(text):
    """Returns text as a YAML scalar in single quotes, or in double quotes where that cannot hold it."""
    if text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else _yaml_escape(ord(c)) for c in escaped) + '"'


def _yaml_escape(code):
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def portable_path(path):
    """Returns path relative to the current folder, or only its last name: no home folder is told."""
    try:
        return Path(path).absolute().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return Path(path).name


def git_revision(folder="."):
    """Returns the short hash of the checkout around folder, with -dirty for uncommitted changes, or None."""
    folder = Path(folder).absolute()
    if not any((parent / ".git").exists() for parent in (folder, *folder.parents)):
        return None
    # fsmonitor would start a program that the checkout's own configuration names.
    command = ["git", "-c", "core.fsmonitor=false", "describe", "--always", "--dirty", "--abbrev=9"]
    how = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 1}
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run([*command, "--exclude=*"], cwd=folder, env=environment, **how)
    except (OSError, subprocess.SubprocessError):
        return None
    found = done.stdout.strip()
    return found if done.returncode == 0 and re.fullmatch(r"[0-9a-f]{4,64}(-dirty)?", found) else None


def environment_info():
    """Returns the fields of run.json that tell what a run was made with: versions, git_revision."""
    return {"versions": versions(), "git_revision": git_revision()}


def versions():
    """Returns the versions that a run depends on: gptcli, torch, python."""
    found = {"python": platform.python_version()}
    for name in ("gptcli", "torch"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found
