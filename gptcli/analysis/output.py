"""Files that a comparison writes: whole or not at all, and never over a file that is not one of its own."""

from pathlib import Path

from gptcli.errors import RunError, UserError
from gptcli.training.files import atomic_write_bytes, free_space

# Every file that compare writes has one of these near its start.
MARK = "gptcli compare"
CSV_START = "group,metric,seeds,mean,"


def check_target(path, option):
    """Raises UserError unless path is new, empty or an earlier comparison, in a folder that is there."""
    path = Path(path)
    if path.is_dir():
        raise UserError(f"{option} {path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise UserError(f"{option} {path}: the folder {path.parent} does not exist")
    if not path.exists():
        return
    try:
        with path.open("rb") as file:
            start = file.read(4096)
    except OSError as error:
        raise UserError(f"{option} {path} cannot be read: {error.strerror}") from error
    if start and MARK.encode() not in start and not start.startswith(CSV_START.encode()):
        raise UserError(f"{option} {path} exists and is not a comparison; choose another name or remove it")


def write(path, content):
    """Writes bytes to path, whole or not at all.

    Raises:
        RunError: the folder cannot be written or the disk is full.
    """
    try:
        atomic_write_bytes(path, content)
    except OSError as error:
        raise RunError(f"{path} was not written: {error.strerror or error} ({free_space(path)})") from error
