"""One process per run: a lock that the operating system releases when its holder dies."""

import contextlib
import errno
import json
import os
import time
from datetime import datetime
from pathlib import Path

from gptcli.errors import RunError, UserError

if os.name == "nt":
    import msvcrt
else:
    import fcntl

LOCK_NAME = ".lock"
# Windows locks a range of bytes against reading too; one far beyond the content leaves that readable.
_LOCKED_BYTE = 2**30
_PATIENCE_SECONDS = 0.5
_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
_held = set()


class RunLock:
    """Context manager that holds a run directory for this process.

    The lock file holds the process id and when that process took the lock, never a host or a user. It stays
    behind, empty, because removing it would race with the next holder.
    """

    def __init__(self, run_directory):
        self.path = Path(run_directory) / LOCK_NAME
        self._descriptor = None

    def __enter__(self):
        """Takes the lock.

        Raises:
            UserError: another process holds it; names its id and start.
            RunError: the lock file cannot be opened.
        """
        descriptor = _open(self.path)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        # A listing of runs holds a shared lock for a moment, and a holder needs a moment to write who it is.
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise UserError(f"{self.path.parent} is in use by {_describe(_read(self.path))}")
            time.sleep(0.01)
        self._descriptor = descriptor
        _held.add(self)
        started = datetime.now().astimezone().isoformat(timespec="seconds")
        self._write({"pid": os.getpid(), "started": started})
        return self

    def __exit__(self, *_):
        if self._descriptor is None:
            return
        self._write(None)
        if os.name != "nt":
            # Closing alone would leave it to a child that was just forked and still has the handle.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self.close()

    def close(self):
        """Closes this process's handle; a parent that shares the lock keeps it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            _held.discard(self)

    def _write(self, holder):
        # Who holds it is a courtesy: a full disk must not keep a run from being locked or released.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            if holder:
                os.write(self._descriptor, json.dumps(holder).encode())


def holder(run_directory):
    """Returns {"pid", "started"}, as far as known, of the live process that holds a run, or None."""
    path = Path(run_directory) / LOCK_NAME
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return None
    try:
        return None if _try_lock(descriptor, shared=True) else _read(path)
    finally:
        os.close(descriptor)


def _open(path):
    if path.is_symlink():
        raise RunError(f"{path} is a symbolic link; it will not be written to")
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except OSError as error:
        raise RunError(f"{path} cannot be opened ({error.strerror or error})") from error


def _try_lock(descriptor, shared=False):
    try:
        if os.name == "nt":
            os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            # flock belongs to the open file: closing another handle of the same file does not release it.
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        # Some network file systems know no locks; training there beats refusing to.
        return error.errno in _UNSUPPORTED
    return True


def _read(path):
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(path.read_bytes()[:1000])
        return {
            key: found[key]
            for key, kind in (("pid", int), ("started", str))
            if isinstance(found, dict) and isinstance(found.get(key), kind)
        }
    return {}


def _describe(found):
    process = f"process {found['pid']}" if "pid" in found else "another process"
    return process + (f", started {found['started']}" if "started" in found else "")


def _forget_in_child():
    # A worker that outlives a killed parent must not keep the run locked.
    for lock in list(_held):
        lock.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
