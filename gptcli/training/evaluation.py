"""Losses on the two splits: on fixed windows, on the walkthrough's random ones, or on a whole split."""

import math
from dataclasses import dataclass

import torch

from gptcli.data.windows import evenly_spaced_starts, gather

WALKTHROUGH_BATCHES = 100


class FixedWindows:
    """The same windows of each split for every run with one block size, so that differences between runs are paired."""

    def __init__(self, corpus, block_size, tokens):
        self.windows = {
            split: gather(getattr(corpus, split), evenly_spaced_starts(length, block_size, tokens), block_size)
            for split, length in (("train", len(corpus.train)), ("validation", len(corpus.validation)))
        }

    def draw(self, split):
        """Returns inputs and targets of a split, each (windows, time)."""
        return self.windows[split]


class WalkthroughWindows:
    """100 random batches for each evaluation, from the generator that training batches come from."""

    def __init__(self, corpus, block_size, batch_size, sampler):
        self.corpus, self.block_size, self.batch_size, self.sampler = corpus, block_size, batch_size, sampler

    def draw(self, split):
        """Returns inputs and targets of a split, each (windows, time)."""
        tokens = getattr(self.corpus, split)
        starts = self.sampler.draw(len(tokens), self.block_size, WALKTHROUGH_BATCHES * self.batch_size)
        return gather(tokens, starts, self.block_size)


@dataclass(frozen=True)
class SplitLoss:
    """The loss on a whole split in nats a symbol, its standard error and its course over the context.

    The standard error takes each window's mean as one observation, since symbols within a window depend on each other.
    by_position[t] is the mean loss of the prediction made from t + 1 symbols.
    """

    loss: float
    standard_error: float
    by_position: list[float]
    symbols: int

    @property
    def bits_per_character(self):
        """The loss in bits."""
        return self.loss / math.log(2)

    @property
    def perplexity(self):
        """e to the loss; infinite where that does not fit a float."""
        return math.exp(self.loss) if self.loss < 700 else math.inf


def split_loss(window_losses, tokens, block_size, windows_at_once=4096):
    """Returns the SplitLoss over every non-overlapping window of a split.

    Args:
        window_losses: maps inputs and targets (windows, time) to losses (windows, time).
        tokens: the split, one-dimensional.
    """
    starts = evenly_spaced_starts(len(tokens), block_size, None)
    at_once = max(1, windows_at_once * 8 // block_size)
    by_position = torch.zeros(block_size, dtype=torch.float64)
    means = []
    for first in range(0, len(starts), at_once):
        x, y = gather(tokens, starts[first : first + at_once], block_size)
        losses = window_losses(x, y).double().cpu()
        by_position += losses.sum(0)
        means.append(losses.mean(1))
    means = torch.cat(means)
    error = float(means.std() / math.sqrt(len(means))) if len(means) > 1 else math.nan
    return SplitLoss(float(means.mean()), error, (by_position / len(means)).tolist(), len(means) * block_size)
