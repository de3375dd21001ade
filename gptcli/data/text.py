"""Reading text files: always UTF-8, without byte order mark, with \\n as the only end of line."""

import codecs
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from gptcli.errors import UserError

_CHUNK_BYTES = 4 * 2**20
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True)
class TextFile:
    """A file's text as it is used, and notes on what was changed in reading it."""

    text: str
    notes: tuple[str, ...]


def read_text(path):
    """Reads a whole text file.

    Raises:
        UserError: missing, not readable, empty, binary or not UTF-8.
    """
    reader = TextReader(path)
    text = "".join(reader)
    return TextFile(text, reader.notes)


def decode_text(data, name):
    """The same for bytes that are already in memory; name is what errors call them."""
    decoder = _Decoder(name)
    text = decoder.decode(data, final=True)
    decoder.check_not_empty()
    return TextFile(text, decoder.notes)


class TextReader:
    """Iterates over a file's text in pieces of a few MB, so that memory stays small whatever the file's size.

    notes is complete once the iteration has ended. Errors are those of read_text.
    """

    def __init__(self, path, chunk_bytes=_CHUNK_BYTES):
        self.path = resolved(path)
        self._chunk_bytes = chunk_bytes
        self._decoder = _Decoder(str(path))

    @property
    def notes(self):
        """What was changed so far."""
        return self._decoder.notes

    def __iter__(self):
        self._decoder = _Decoder(self._decoder.name)
        try:
            with open(self.path, "rb", buffering=0) as file:
                while data := file.read(self._chunk_bytes):
                    if text := self._decoder.decode(data):
                        yield text
        except OSError as error:
            raise UserError(f"{self._decoder.name} cannot be read: {error.strerror or error}") from error
        if text := self._decoder.decode(b"", final=True):
            yield text
        self._decoder.check_not_empty()


def resolved(path):
    """The absolute path of a regular file that a user has named; UserError says why it is none."""
    try:
        full = Path(os.path.expanduser(path)).absolute()
        status = full.stat()
    except FileNotFoundError:
        where = "" if Path(path).is_absolute() else f" (relative paths start from {Path.cwd()})"
        raise UserError(f"{path} does not exist{where}") from None
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if stat.S_ISDIR(status.st_mode):
        raise UserError(f"{path} is a folder; name a text file in it")
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"{path} is not a regular file")
    if not os.access(full, os.R_OK):
        raise UserError(f"{path} cannot be read: permission denied")
    return full


@dataclass
class _Decoder:
    """Decodes bytes piece by piece and keeps the count of what it met."""

    name: str
    mark: bool = False
    carriage_returns: int = 0
    consumed: int = 0
    lines: int = 0
    characters: int = 0
    _started: bool = False
    _pending_return: bool = False
    _utf8: codecs.IncrementalDecoder = field(default_factory=codecs.getincrementaldecoder("utf-8"))

    @property
    def notes(self):
        """What was changed, for people."""
        notes = []
        if self.mark:
            notes.append(f"{self.name}: the byte order mark at its start is left out")
        if self.carriage_returns:
            notes.append(f"{self.name}: {self.carriage_returns:,} line ends (CRLF or CR) are read as \\n")
        return tuple(notes)

    def decode(self, data, final=False):
        """The text of the next bytes; a carriage return at their end waits for what follows it."""
        if not self.consumed and data[:2] in _UTF16_MARKS:
            raise UserError(f"{self.name} looks like UTF-16; convert it to UTF-8 first")
        if (zero := data.find(0)) >= 0:
            raise UserError(f"{self.name} is not text: it has a zero byte at offset {self.consumed + zero}")
        waiting = len(self._utf8.getstate()[0])
        try:
            text = self._utf8.decode(data, final)
        except UnicodeDecodeError as error:
            raise self._not_utf8(error, waiting) from None
        if text and not self._started:
            self._started, self.mark = True, text[0] == "\ufeff"
            text = text[self.mark :]
        self.consumed += len(data)
        text = self._with_newlines(text, final)
        self.characters += len(text)
        self.lines += text.count("\n")
        return text

    def check_not_empty(self):
        """Raises UserError when there was no character."""
        if not self.characters:
            raise UserError(f"{self.name} is empty")

    def _with_newlines(self, text, final):
        if self._pending_return:
            text = "\r" + text
        self._pending_return = text.endswith("\r") and not final
        if self._pending_return:
            text = text[:-1]
        if "\r" in text:
            self.carriage_returns += text.count("\r")
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        return text

    def _not_utf8(self, error, waiting):
        offset = self.consumed - waiting + error.start
        byte = error.object[error.start]
        before = error.object[: error.start]
        line = self.lines + 1 + before.count(b"\n") + before.replace(b"\r\n", b"").count(b"\r")
        return UserError(
            f"{self.name} is not UTF-8: byte 0x{byte:02x} at offset {offset} (line {line});"
            " if it is Latin-1 or cp1252, convert it first: iconv -f cp1252 -t utf-8"
        )
