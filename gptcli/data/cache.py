"""Where corpora and what is derived from them are kept, and files that appear there whole or not at all."""

import contextlib
import os
import secrets
import sys
from pathlib import Path

from gptcli.errors import RunError


def user_cache_directory():
    """This user's cache folder for gptcli, by the platform's own rule."""
    if sys.platform == "win32":
        return _folder("LOCALAPPDATA", "AppData/Local") / "gptcli" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "gptcli"
    return _folder("XDG_CACHE_HOME", ".cache") / "gptcli"


def _folder(variable, below_home):
    value = os.environ.get(variable, "")
    # The XDG base directory specification says that relative paths are to be ignored.
    return Path(value) if os.path.isabs(value) else Path.home() / below_home


def cache_directories():
    """The folders in which a corpus may lie: GPTCLI_DATA_DIR if it is set, then the user's cache folder."""
    chosen = os.environ.get("GPTCLI_DATA_DIR")
    return ([Path(chosen).expanduser().absolute()] if chosen else []) + [user_cache_directory()]


def writable_directory():
    """The first of the cache folders in which files can be made.

    Raises:
        RunError: there is none.
    """
    for folder in cache_directories():
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            probe = folder / f".probe-{secrets.token_hex(4)}"
            probe.touch(exist_ok=False)
            probe.unlink()
            return folder
    names = " and ".join(str(folder) for folder in cache_directories())
    raise RunError(f"{names} cannot be written; set GPTCLI_DATA_DIR to a folder for data that can")


@contextlib.contextmanager
def appearing(path, replace=False):
    """A binary file that gets the name path when the block ends well, and leaves nothing when it does not.

    A file that is there already, or that another process puts there meanwhile, stays unless replace is set.
    """
    temporary = path.with_name(f".partial-{path.name}-{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path) if replace else _publish(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def _publish(temporary, path):
    try:
        os.link(temporary, path)
    except FileExistsError:
        return
    except OSError:
        # A file system without hard links; the last of two processes wins, with a whole file all the same.
        os.replace(temporary, path)
