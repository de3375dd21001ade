"""The character vocabulary: text to integers and back."""

from itertools import islice

import numpy as np

from gptcli.errors import UserError
from gptcli.terminal import printable

CODE_POINTS = 0x110000
_LISTED = 5
_PLACES = 1000


class UnknownCharacters(UserError):
    """A text has characters that the vocabulary lacks.

    positions: {character: list of the places, counted from 0, where it stands}, of the first 1,000 places.
    """

    def __init__(self, positions, hint):
        self.positions = positions
        listed = "; ".join(_place(*item) for item in islice(positions.items(), _LISTED))
        more = f"; and {len(positions) - _LISTED} more" if len(positions) > _LISTED else ""
        plural = "s" if len(positions) > 1 else ""
        super().__init__(f"unknown character{plural} {listed}{more}; {hint}")


class CharacterTokenizer:
    """Numbers characters by their place in a sorted vocabulary, as sorted(set(text)) does.

    symbols: tuple of the characters, ascending by code point.
    """

    def __init__(self, symbols):
        """Raises ValueError unless symbols are single characters in strictly ascending order."""
        self.symbols = tuple(symbols)
        if not self.symbols or any(not isinstance(one, str) or len(one) != 1 for one in self.symbols):
            raise ValueError("a vocabulary is a list of one or more single characters")
        self._codes = code_points("".join(self.symbols))
        if (np.diff(self._codes.astype(np.int64)) <= 0).any():
            raise ValueError("the characters of a vocabulary must ascend, each of them once")
        # One row past the last symbol stands for every code point above it.
        self._numbers = np.full(int(self._codes[-1]) + 2, -1, dtype=np.int32)
        self._numbers[self._codes] = np.arange(len(self.symbols))

    @classmethod
    def from_text(cls, text):
        """The vocabulary of all characters of a text; ValueError when it is empty."""
        return cls.from_code_points(code_points(text))

    @classmethod
    def from_code_points(cls, codes):
        """The same from an array of code points."""
        present = np.zeros(CODE_POINTS, dtype=bool)
        present[codes] = True
        return cls(_characters(np.flatnonzero(present)))

    @property
    def vocabulary_size(self):
        """The number of symbols."""
        return len(self.symbols)

    @property
    def dtype(self):
        """The smallest unsigned integer type that holds every number."""
        return np.min_scalar_type(self.vocabulary_size - 1)

    def encode(self, text, hint="--skip-unknown leaves them out"):
        """The numbers of a text's characters, int64 (characters,).

        Raises:
            UnknownCharacters: names the characters that the vocabulary lacks, their places, and then the
            hint.
        """
        numbers = self.numbers(code_points(text))
        if numbers.size and numbers.min() < 0:
            raise UnknownCharacters(_unknown(text, numbers), hint)
        return numbers.astype(np.int64)

    def numbers(self, codes):
        """The numbers of an array of code points, int32; -1 where the vocabulary lacks one."""
        return self._numbers[np.minimum(codes, len(self._numbers) - 1)]

    def decode(self, ids):
        """The text of a sequence of numbers; raises ValueError for one that is not in the vocabulary."""
        ids = np.asarray(ids, dtype=np.int64)
        if ids.size and (ids.min() < 0 or ids.max() >= self.vocabulary_size):
            raise ValueError(f"symbol numbers must be in 0..{self.vocabulary_size - 1}")
        return _characters(self._codes[ids])

    def known(self, text):
        """Returns (text without its unknown characters, how many were left out)."""
        codes = code_points(text)
        kept = codes[self.numbers(codes) >= 0]
        return _characters(kept), len(codes) - len(kept)


def code_points(text):
    """The code points of a text, uint32 (characters,)."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def describe_difference(first, second):
    """What the second vocabulary lacks and adds against the first, in words; "" when they are equal."""
    lacking = sorted(set(first.symbols) - set(second.symbols))
    added = sorted(set(second.symbols) - set(first.symbols))
    differences = (("lacks", lacking), ("adds", added))
    parts = [f"{verb} {_listed(symbols)}" for verb, symbols in differences if symbols]
    if not parts:
        return ""
    return f"its vocabulary of {second.vocabulary_size} {' and '.join(parts)}"


def _listed(symbols):
    shown = " ".join(_quoted(one) for one in symbols[:20])
    return shown + (f" and {len(symbols) - 20} more" if len(symbols) > 20 else "")


def _characters(codes):
    return codes.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")


def _unknown(text, numbers):
    positions = {}
    for position in np.flatnonzero(numbers < 0)[:_PLACES].tolist():
        positions.setdefault(text[position], []).append(position)
    return positions


def _place(character, positions):
    shown = ", ".join(str(position + 1) for position in positions[:3])
    more = ", ..." if len(positions) > 3 else ""
    return f"{_quoted(character)} (U+{ord(character):04X}) at character {shown}{more}"


def _quoted(character):
    return f"'{printable(character)}'"
