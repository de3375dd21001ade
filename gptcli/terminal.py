"""What reaches the terminal: text made safe to print, and plain tables."""

import contextlib
import os
import sys
import unicodedata

# C0 and C1 controls, DEL and the format characters that reorder text can rewrite what a person sees.
_KEPT_CONTROLS = {"\n", "\t"}


def printable(text, *, keep_newlines=False):
    """Returns text with control characters escaped, so that a stranger's text cannot drive the terminal."""
    kept = _KEPT_CONTROLS if keep_newlines else {"\t"}
    return "".join(
        character if character in kept or not _is_control(character) else _escape(character)
        for character in str(text)
    )


def _is_control(character):
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _escape(character):
    code = ord(character)
    if character in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[character]
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def open_missing_streams():
    """Gives Python's three streams a place where the caller has closed theirs, and keeps files off their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))


def silence(stream):
    """Sends what is still written to a stream nowhere: its reader has gone, or its disk is full."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def uses_colour(stream=None):
    """True when stream is a terminal and neither NO_COLOR nor TERM=dumb asks for plain text."""
    stream = stream or sys.stdout
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def table(rows, header=None, right=()):
    """Returns the lines of a plain-text table.

    Args:
        rows: sequences of cells; a cell is converted with str and made printable.
        header: names of the columns.
        right: indices of the columns that are aligned to the right.
    """
    cells = [[printable(cell) for cell in row] for row in ([header] if header else []) + list(rows)]
    if not cells:
        return []
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    return ["  ".join(_aligned(row, widths, right)).rstrip() for row in cells]


def _aligned(row, widths, right):
    for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
        yield cell.rjust(width) if column in right else cell.ljust(width)
