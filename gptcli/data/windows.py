"""Where training and evaluation windows start, and gathering them from the tokens."""

import random

import numpy as np
import torch

from gptcli.errors import RunError, UserError

_STEPS_PER_BLOCK = 64


def check_length(name, length, block_size):
    """Raises UserError when a split (or "text") has no room for one window and the character after it."""
    if length <= block_size:
        name = f"{name} split" if name in ("train", "validation") else name
        raise UserError(
            f"the {name} has {length} characters, but block_size {block_size} needs at least {block_size + 1}"
        )


def check_split_lengths(train, validation, block_size):
    """Raises UserError that names the split which is too short for one window."""
    check_length("train", train, block_size)
    check_length("validation", validation, block_size)


def gather(tokens, starts, block_size):
    """Cuts windows out of a split.

    Returns (x, y), int64 (len(starts), block_size) each: y[i, t] is the token after x[i, t].
    """
    every_window = np.lib.stride_tricks.sliding_window_view(tokens, block_size + 1)
    windows = torch.from_numpy(every_window[np.asarray(starts)].astype(np.int64))
    return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


class CounterSampler:
    """Uniform random starts as a pure function of seed and step, so that a resumed run needs no state.

    Each block of 64 steps has a Philox generator (Salmon et al., 2011) that is keyed by the seed and counts
    from the number of the block. A start's probability differs from the uniform one by at most 2^-53.
    """

    def __init__(self, length, block_size, batch_size, seed):
        check_length("split", length, block_size)
        self.legal_starts = length - block_size
        self.batch_size = batch_size
        self._key = np.array([seed % 2**64, 0], dtype=np.uint64)

    def starts(self, step, count):
        """The starts of the steps step .. step + count - 1, int64 (count, batch_size)."""
        first, last = step // _STEPS_PER_BLOCK, (step + count - 1) // _STEPS_PER_BLOCK
        blocks = np.concatenate([self._block(block) for block in range(first, last + 1)])
        offset = step - first * _STEPS_PER_BLOCK
        return blocks[offset : offset + count]

    def _block(self, block):
        generator = np.random.Philox(key=self._key, counter=np.array([0, block, 0, 0], dtype=np.uint64))
        uniform = np.random.Generator(generator).random((_STEPS_PER_BLOCK, self.batch_size))
        return (uniform * self.legal_starts).astype(np.int64)


class WalkthroughSampler:
    """The starts that random.seed(seed) and then random.randint(0, length - block_size - 1) give, in
    order."""

    def __init__(self, seed):
        self._random = random.Random(seed)

    def draw(self, length, block_size, number):
        """The next starts, int64 (number,)."""
        check_length("split", length, block_size)
        legal_starts = length - block_size
        # What randint does inside, without its layers of calls: just enough bits, drawn again when too large.
        bits, draw = legal_starts.bit_length(), self._random.getrandbits
        starts = []
        while len(starts) < number:
            drawn = [draw(bits) for _ in range(number - len(starts))]
            starts += [start for start in drawn if start < legal_starts]
        return np.array(starts, dtype=np.int64)

    def state(self):
        """The generator's state as lists and numbers, fit for JSON."""
        version, words, gauss = self._random.getstate()
        return [version, list(words), gauss]

    def restore(self, state):
        """Goes on from what state returned; raises RunError when it is not such a state."""
        try:
            version, words, gauss = state
            self._random.setstate((version, tuple(words), gauss))
        except (TypeError, ValueError, OverflowError) as error:
            raise RunError(f"the stored state of the random numbers is damaged: {error}") from error


def evenly_spaced_starts(length, block_size, tokens):
    """Fixed windows that cover a split evenly, int64, ascending.

    Args:
        tokens: how many tokens the windows hold together, at least one window. None, or more than there are:
        all
            windows of the split that do not overlap.
    """
    check_length("split", length, block_size)
    every = np.arange(0, length - block_size, block_size, dtype=np.int64)
    wanted = len(every) if tokens is None else max(1, tokens // block_size)
    if wanted >= len(every):
        return every
    return np.arange(wanted, dtype=np.int64) * (length - block_size) // wanted
