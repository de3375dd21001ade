"""Tokens of a text file that is too large for memory: made once, piece by piece, then memory-mapped."""

import hashlib
import json
import re

import numpy as np

from gptcli.data.cache import appearing, cache_directories, writable_directory
from gptcli.data.text import TextReader
from gptcli.data.tokenizer import CODE_POINTS, CharacterTokenizer, code_points
from gptcli.errors import RunError

MEMORY_MAP_BYTES = 64 * 2**20
_FORMAT = 1


def mapped_tokens(path):
    """Returns (tokens, tokenizer, sha256, notes) of a text file, the tokens memory-mapped and read-only.

    They are kept in the cache under the sha256 of the text. A description named after the file's path, size
    and time of change leads to them, so that a file that has not changed is not read again.

    Raises:
        UserError: the file is not such a text.
        RunError: there is no room for the tokens, or the file changed while it was read.
    """
    status = path.stat()
    identity = f"{path}\0{status.st_size}\0{status.st_mtime_ns}".encode("utf-8", "surrogatepass")
    name = f"tokens-{hashlib.sha256(identity).hexdigest()[:32]}.json"
    found = _found(name)
    if found is None:
        try:
            _tokenize(path, writable_directory(), name)
        except OSError as error:
            raise RunError(f"the tokens of {path} cannot be kept: {error.strerror or error}") from error
        found = _found(name)
    return found


def _found(name):
    """What a description in the cache leads to, or None when it or the tokens are missing or damaged."""
    for folder in cache_directories():
        try:
            described = json.loads((folder / name).read_text(encoding="ascii"))
            tokenizer = CharacterTokenizer(described["symbols"])
            digest, characters = described["sha256"], described["characters"]
            notes = tuple(str(note) for note in described["notes"])
            path = folder / _tokens_name(digest)
            if described["format"] != _FORMAT or path.stat().st_size != characters * tokenizer.dtype.itemsize:
                continue
            tokens = np.memmap(path, dtype=tokenizer.dtype, mode="r", shape=(characters,))
        except (OSError, ValueError, KeyError, TypeError):
            continue
        return tokens, tokenizer, digest, notes
    return None


def _tokens_name(digest):
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise ValueError("not a sha256")
    return f"tokens-{digest}.bin"


def _tokenize(path, folder, name):
    """Reads the file twice, for its vocabulary and for its tokens, and writes them and their description."""
    tokenizer, digest, characters, notes = _surveyed(path)
    again = hashlib.sha256()
    with appearing(folder / _tokens_name(digest), replace=True) as file:
        for text in TextReader(path):
            again.update(text.encode("utf-8"))
            numbers = tokenizer.numbers(code_points(text))
            if numbers.min() < 0:
                break
            file.write(numbers.astype(tokenizer.dtype).tobytes())
        if again.hexdigest() != digest:
            raise RunError(f"{path} changed while it was read; start again when it is complete")
    description = {
        "format": _FORMAT,
        "sha256": digest,
        "characters": characters,
        "symbols": tokenizer.symbols,
        "notes": notes,
    }
    with appearing(folder / name, replace=True) as file:
        file.write(json.dumps(description).encode("ascii"))


def _surveyed(path):
    """Returns (tokenizer, sha256, number of characters, notes) of a file in one pass."""
    digest, characters = hashlib.sha256(), 0
    present = np.zeros(CODE_POINTS, dtype=bool)
    reader = TextReader(path)
    for text in reader:
        digest.update(text.encode("utf-8"))
        present[code_points(text)] = True
        characters += len(text)
    tokenizer = CharacterTokenizer.from_code_points(np.flatnonzero(present))
    return tokenizer, digest.hexdigest(), characters, reader.notes
