"""Files that are whole or absent: atomic writes, appends that never leave half a record, careful reads."""

import contextlib
import json
import os
import secrets
import shutil
import stat
from pathlib import Path

from gptcli.errors import RunError

PARTIAL = ".partial-"  # what a write in progress is called; one that is found later belongs to a dead process
JSON_BYTES = 16 * 2**20
JSON_DEPTH = 64
_DIGITS = 20  # 64 bits and a sign
_PENDING_BYTES = 8 * 2**20
_BINARY = getattr(os, "O_BINARY", 0)
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)


class UnreadableFile(RunError):
    """A file is missing, is no regular file, is too large or does not hold what it should."""


def partial_path(folder, name=""):
    """Returns a fresh temporary path in folder."""
    return Path(folder) / f"{PARTIAL}{name}{'-' if name else ''}{secrets.token_hex(4)}"


def atomic_write_bytes(path, data):
    """Replaces the content of path; after a failure or a crash the old content is still there.

    Raises:
        OSError: the disk is full, the folder is not writable, ...
    """
    path = Path(path)
    temporary = partial_path(path.parent)
    try:
        write_synced(temporary, [data])
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_directory(path.parent)


def atomic_write_text(path, text):
    """Replaces the content of path by UTF-8 text; line ends stay as they are.

    A lone surrogate, such as a byte of a file's name that is not UTF-8, becomes what JSON writes for it.
    """
    atomic_write_bytes(path, text.encode("utf-8", "backslashreplace"))


def atomic_write_json(path, value):
    """Replaces the content of path by indented JSON.

    Raises:
        ValueError: a number is not finite, which JSON cannot say.
    """
    atomic_write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_synced(path, chunks):
    """Writes chunks of bytes into a new file and waits until they are on the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)
    try:
        for chunk in chunks:
            write_all(descriptor, chunk)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor, data):
    """Writes every byte of data; os.write alone may stop early."""
    view = memoryview(data).cast("B")
    while len(view):
        view = view[os.write(descriptor, view) :]


def sync_directory(path):
    """Waits until the names in a folder are on the disk, where the platform can."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(folder):
    """Removes what a killed process left of its writes; the caller holds the run's lock."""
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(folder)):
            if entry.name.startswith(PARTIAL):
                remove(entry.path)


def remove(path):
    """Removes a file or a folder and its content; what cannot be removed stays for the next time."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        os.unlink(path)


def free_space(path):
    """Returns the free space of the disk that holds path, such as "1.2 GB free"."""
    for folder in (Path(path), *Path(path).absolute().parents):
        try:
            return f"{_size(shutil.disk_usage(folder).free)} free"
        except OSError:
            continue
    return "free space unknown"


def _size(number):
    for unit in ("bytes", "KB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"


def read_regular(path, limit):
    """Returns the bytes of a regular file of at most limit bytes; links, pipes and devices are refused.

    Raises:
        UnreadableFile: names the file and what is wrong with it.
    """
    path = Path(path)
    try:
        # Windows has no O_NOFOLLOW; without O_NONBLOCK the opening of a pipe would wait for ever.
        if path.is_symlink():
            raise UnreadableFile(f"{path.name} is a symbolic link")
        descriptor = os.open(path, os.O_RDONLY | _BINARY | _NO_FOLLOW | _NO_WAIT)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise UnreadableFile(f"{path.name} is not a regular file")
            if status.st_size > limit:
                raise UnreadableFile(f"{path.name} is too large ({status.st_size:,} bytes, limit {limit:,})")
            return file.read(status.st_size)
    except FileNotFoundError as error:
        raise UnreadableFile(f"{path.name} is missing") from error
    except OSError as error:
        raise UnreadableFile(f"{path.name} cannot be read ({error.strerror or error})") from error
    except MemoryError as error:
        raise UnreadableFile(f"{path.name} does not fit into memory") from error


def read_json(path, limit=JSON_BYTES):
    """Returns the object in a JSON file.

    Raises:
        UnreadableFile: not readable, not JSON, not an object, or nested more than JSON_DEPTH deep.
    """
    return parse_json(read_regular(path, limit), Path(path).name)


def parse_json(data, name):
    """Returns the object in JSON bytes; name is what errors call them."""
    try:
        value = json.loads(data.decode("utf-8"), parse_int=whole_number)
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{name} is not valid JSON") from error
    if not isinstance(value, dict):
        raise UnreadableFile(f"{name} does not hold a JSON object")
    level = [value]
    for _ in range(JSON_DEPTH):
        level = [inner for outer in level for inner in _children(outer)]
    if level:
        raise UnreadableFile(f"{name} is nested more than {JSON_DEPTH} levels deep")
    return value


def whole_number(text):
    """Returns the int that JSON text stands for; ValueError for one that no float and no counter can hold."""
    if len(text) > _DIGITS:
        raise ValueError(f"a whole number of {len(text)} digits")
    return int(text)


def append_text(path, text):
    """Adds UTF-8 text to a file, which is made if need be.

    Raises:
        OSError: it cannot be written, or is a link, which could lead out of the run.
    """

    def opener(name, flags):
        return os.open(name, flags | _NO_FOLLOW, 0o666)

    if Path(path).is_symlink():
        raise OSError(None, "it is a symbolic link")
    with open(path, "a", encoding="utf-8", errors="backslashreplace", opener=opener) as file:
        file.write(text)


def _children(value):
    inner = value.values() if isinstance(value, dict) else value
    return [one for one in inner if isinstance(one, (dict, list))]


class AppendFile:
    """A file that grows by whole records, and a run that goes on when the disk is full.

    A record that cannot be written is cut off again and kept for the next try; the first failure is reported.
    """

    def __init__(self, path, report, *, new=False):
        """Opens path.

        Args:
            report: called with one line of text when writing fails for the first time.
            new: the file must not exist yet.

        Raises:
            RunError: path is a link or no regular file.
            OSError: path cannot be opened.
        """
        self.path = Path(path)
        self._report = report
        self._pending = b""
        if self.path.is_symlink() or (self.path.exists() and not self.path.is_file()):
            raise RunError(f"{self.path.name} is not a regular file; it will not be written to")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | _BINARY | _NO_FOLLOW | (os.O_EXCL if new else 0)
        self._descriptor = os.open(self.path, flags, 0o666)

    def write(self, record):
        """Appends record (bytes) at once."""
        self._pending += record
        end = os.fstat(self._descriptor).st_size
        try:
            write_all(self._descriptor, self._pending)
            self._pending = b""
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, end)
            if len(self._pending) > _PENDING_BYTES:
                self._pending = b""
            self._fail(error)

    def sync(self):
        """Waits until everything written is on the disk."""
        if self._pending:
            self.write(b"")
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            self._fail(error)

    def _fail(self, error):
        report, self._report = self._report, None
        if report:
            reason = f"{error.strerror or error}, {free_space(self.path.parent)}"
            report(f"{self.path.name} cannot be written ({reason}); training goes on")

    def close(self):
        """Writes what is still kept, as far as possible, and closes the file."""
        if self._descriptor is None:
            return
        if self._pending:
            self.write(b"")
        os.close(self._descriptor)
        self._descriptor = None
