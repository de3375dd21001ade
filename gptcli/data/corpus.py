"""From the name of a corpus to its tokens: two splits of integers, the vocabulary, and notes for people."""

import dataclasses
import difflib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gptcli.data.catalogue import CATALOGUE, TINY_SHAKESPEARE, find_cached, read_verified
from gptcli.data.download import DownloadFailed, download
from gptcli.data.text import decode_text, read_text, resolved
from gptcli.data.token_cache import MEMORY_MAP_BYTES, mapped_tokens
from gptcli.data.tokenizer import CharacterTokenizer, code_points
from gptcli.errors import RunError, UserError

NAMES = ("auto", *CATALOGUE, "text_file", "synthetic_play")
_AUTOMATIC_DOWNLOAD_SECONDS = 8.0
_MOST_SYNTHETIC_CHARACTERS = 100_000_000

# URL -> why its automatic download failed: all runs of one process train on the same corpus, and wait once.
_unreachable = {}


@dataclass(frozen=True)
class Corpus:
    """A text as tokens.

    name: that of the corpus in use, never "auto". sha256: of the text's UTF-8 bytes as it is used.
    train, validation: (characters,) each, of the smallest unsigned type, memory-mapped when large.
    notes: what to tell the user. floor: None, or the best possible loss in nats as a function of block_size.
    """

    name: str
    sha256: str
    tokenizer: CharacterTokenizer
    train: np.ndarray
    validation: np.ndarray
    notes: tuple[str, ...] = ()
    floor: Callable[[int], float] | None = None


def load_corpus(data):
    """Loads the corpus of a DataConfig, downloading it if need be.

    Raises:
        UserError: no such corpus, or a text file that is missing, unreadable, empty, binary or not UTF-8.
        RunError: the download failed, or the cached file is not what it should be.
    """
    if data.name not in NAMES:
        close = difflib.get_close_matches(str(data.name), NAMES, n=1)
        hint = f"did you mean {close[0]}?" if close else f"use one of {', '.join(NAMES)}"
        raise UserError(f"data={data.name} is not a corpus; {hint}")
    if data.path is not None and data.name != "text_file":
        raise UserError(f"data.path is for data=text_file, but data={data.name}; add data=text_file")
    if data.name == "auto":
        return _automatic(data)
    if data.name == "synthetic_play":
        return _synthetic(data)
    if data.name == "text_file":
        return _text_file(data)
    return _known(CATALOGUE[data.name], data)


def _automatic(data):
    """Tiny Shakespeare, or with a note the synthetic play where that cannot be had."""
    reason = _unreachable.get(TINY_SHAKESPEARE.url)
    if reason is None:
        try:
            return _known(TINY_SHAKESPEARE, data, _AUTOMATIC_DOWNLOAD_SECONDS)
        except DownloadFailed as error:
            reason = _unreachable[TINY_SHAKESPEARE.url] = error.reason
    note = (
        f"THIS IS NOT TINY SHAKESPEARE, which is not cached and could not be downloaded ({reason}): the"
        " built-in synthetic play stands in for it, and its losses do not compare with those on the other"
    )
    corpus = _synthetic(data)
    return dataclasses.replace(corpus, notes=(note, *corpus.notes))


def _known(known, data, seconds=None):
    path = find_cached(known) or download(known, seconds)
    return _read_known(known, path, data.validation_fraction)


def _read_known(known, path, validation_fraction):
    contents = decode_text(read_verified(known, path), str(path))
    text, notes = contents.text, contents.notes
    if known.is_book:
        text, note = without_licence(text)
        notes = (*notes, note)
    return _in_memory(known.name, text, validation_fraction, notes)


def without_licence(text):
    """A Project Gutenberg book without the header and licence around it, and a note on what was left out."""
    lines = text.split("\n")
    starts = [number for number, line in enumerate(lines) if line.startswith("*** START OF ")]
    ends = [number for number, line in enumerate(lines) if line.startswith("*** END OF ")]
    if not starts or not ends or ends[-1] <= starts[0]:
        return text, "no Project Gutenberg markers were found, so the file is used whole"
    inside = "\n".join(lines[starts[0] + 1 : ends[-1]]).strip("\n") + "\n"
    left_out = len(text) - len(inside)
    return inside, f"the Project Gutenberg header and licence ({left_out:,} characters) are left out"


def _text_file(data):
    if data.path is None:
        raise UserError("data=text_file needs data.path=FILE, a text file in UTF-8")
    path = resolved(data.path)
    if path.stat().st_size < MEMORY_MAP_BYTES:
        contents = read_text(data.path)
        return _in_memory("text_file", contents.text, data.validation_fraction, contents.notes)
    tokens, tokenizer, digest, notes = mapped_tokens(path)
    return _split("text_file", tokens, tokenizer, digest, data.validation_fraction, notes)


def _synthetic(data):
    from gptcli.data.synthetic_floor import floor
    from gptcli.data.synthetic_grammar import ALPHABET
    from gptcli.data.synthetic_play import generate

    seed, characters = data.synthetic_seed, data.synthetic_characters
    if seed is None or seed < 0:
        raise UserError(f"data.synthetic_seed={seed} must be 0 or more")
    if characters is None or not 1 <= characters <= _MOST_SYNTHETIC_CHARACTERS:
        raise UserError(f"data.synthetic_characters={characters} must be in 1..{_MOST_SYNTHETIC_CHARACTERS}")
    text = generate(seed, characters)
    return _in_memory(
        "synthetic_play", text, data.validation_fraction, (), CharacterTokenizer(ALPHABET), floor
    )


def _in_memory(name, text, validation_fraction, notes, tokenizer=None, floor=None):
    codes = code_points(text)
    tokenizer = tokenizer or CharacterTokenizer.from_code_points(codes)
    tokens = tokenizer.numbers(codes).astype(tokenizer.dtype)
    digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
    return _split(name, tokens, tokenizer, digest, validation_fraction, notes, floor)


def _split(name, tokens, tokenizer, digest, validation_fraction, notes, floor=None):
    """The first part of the text for training, the rest for validation; int(0.9 * length) by default."""
    cut = int((1 - validation_fraction) * len(tokens))
    return Corpus(name, digest, tokenizer, tokens[:cut], tokens[cut:], tuple(notes), floor)


def corpus_facts():
    """What is known of each corpus, as plain data: name, title, cached, path, bytes, characters, vocabulary.

    Those that only a cached file can tell are None otherwise; problem says why a cached file cannot be used.
    """
    facts = []
    for known in CATALOGUE.values():
        path = find_cached(known)
        fact = dict.fromkeys(("bytes", "characters", "vocabulary", "problem"))
        if path:
            try:
                corpus = _read_known(known, path, validation_fraction=0.0)
                fact["characters"] = len(corpus.train)
                fact["vocabulary"] = corpus.tokenizer.vocabulary_size
            except (UserError, RunError) as error:
                fact["problem"] = str(error)
            fact["bytes"] = path.stat().st_size
        place = {"cached": path is not None, "path": str(path) if path else None}
        facts.append({"name": known.name, "title": known.title, **place, **fact})
    return facts
