"""The synthetic play: a text of any length, drawn from the grammar by a seed."""

from bisect import bisect_right
from itertools import accumulate

import numpy as np

from gptcli.data.synthetic_grammar import slots

_FIRST_SLOT = ("entered", 0)
_DRAWS_PER_BLOCK = 65536


def generate(seed, characters=1_115_394):
    """Returns a play of exactly that many characters; a seed gives the same text everywhere.

    It begins where a speech begins and is cut after the last character, in the middle of a word if need be.
    """
    slot = _linked(slots())
    pieces, missing = [], characters
    for draw in _uniform_draws(seed):
        bounds, choices = slot
        text, slot = choices[bisect_right(bounds, draw)]
        pieces.append(text)
        missing -= len(text)
        if missing <= 0:
            break
    return "".join(pieces)[:characters]


def _linked(grammar):
    """The first slot, as (bounds between choices, [(text, slot that follows)]), nested without end."""
    linked = {name: ([], []) for name in grammar}
    for name, choices in grammar.items():
        bounds, followed = linked[name]
        bounds.extend(list(accumulate(choice.weight for choice in choices))[:-1])
        followed.extend((choice.text, linked[choice.following]) for choice in choices)
    return linked[_FIRST_SLOT]


def _uniform_draws(seed):
    """Endless doubles of [0, 1): the raw bits of Philox, which no version of NumPy changes."""
    random = np.random.Generator(np.random.Philox(seed))
    while True:
        yield from random.random(_DRAWS_PER_BLOCK).tolist()
