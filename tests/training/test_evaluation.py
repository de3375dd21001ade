"""Evaluations: the windows that are looked at, and a split's loss against a loop over its windows."""

import math
import random
import statistics
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gptcli.data.windows import WalkthroughSampler
from gptcli.training.evaluation import FixedWindows, SplitLoss, WalkthroughWindows, split_loss

CORPUS = SimpleNamespace(
    train=np.arange(900, dtype=np.uint16), validation=np.arange(1000, 1100, dtype=np.uint16)
)


def test_fixed_windows_are_the_same_every_time_and_within_their_split():
    windows, again = FixedWindows(CORPUS, 8, 64), FixedWindows(CORPUS, 8, 64)
    for split, low, high in (("train", 0, 899), ("validation", 1000, 1099)):
        x, y = windows.draw(split)
        assert torch.equal(y, x + 1) and x.shape == (8, 8)
        assert x.min() >= low and y.max() <= high
        assert torch.equal(x, windows.draw(split)[0]) and torch.equal(x, again.draw(split)[0])
        assert x[:, 0].max() - x[:, 0].min() > 0.8 * (high - low)  # spread over the whole split


def test_all_tokens_are_looked_at_when_their_number_is_null():
    x, _ = FixedWindows(CORPUS, 8, None).draw("validation")
    assert x.flatten().tolist() == list(range(1000, 1000 + 12 * 8))


def test_the_walkthrough_evaluates_on_100_batches_from_its_generator():
    sampler = WalkthroughSampler(3)
    sampler.draw(900, 8, 4)  # a training batch before
    windows = WalkthroughWindows(CORPUS, 8, 4, sampler)
    drawn = [windows.draw("train")[0], windows.draw("validation")[0]]
    random.seed(3)
    for _ in range(4):
        random.randint(0, 900 - 8 - 1)
    assert drawn[0][:, 0].tolist() == [random.randint(0, 900 - 8 - 1) for _ in range(400)]
    assert drawn[1][:, 0].tolist() == [1000 + random.randint(0, 100 - 8 - 1) for _ in range(400)]


def _losses(x, y):
    """Something that depends on the window and on the place in it."""
    return (x % 7).float() + torch.arange(x.shape[1]) * 0.5 + (y - x - 1)


@pytest.mark.parametrize("windows_at_once", [1, 3, 4096])
def test_split_loss_equals_a_loop_over_windows(windows_at_once):
    tokens = np.arange(100, dtype=np.uint16)
    result = split_loss(_losses, tokens, 9, windows_at_once)
    windows = [list(range(start, start + 9)) for start in range(0, 99 - 8, 9)]
    by_window = [[token % 7 + 0.5 * place for place, token in enumerate(window)] for window in windows]
    means = [statistics.fmean(losses) for losses in by_window]
    assert result.symbols == 9 * len(windows) == 99
    assert result.loss == pytest.approx(statistics.fmean(means))
    assert result.standard_error == pytest.approx(statistics.stdev(means) / math.sqrt(len(means)))
    by_position = [statistics.fmean(losses) for losses in zip(*by_window, strict=True)]
    assert result.by_position == pytest.approx(by_position)


def test_a_split_of_one_window_has_no_standard_error():
    result = split_loss(_losses, np.arange(10, dtype=np.uint16), 9)
    assert result.symbols == 9 and math.isnan(result.standard_error)


def test_bits_and_perplexity():
    result = SplitLoss(math.log(2), 0.0, [], 1)
    assert result.bits_per_character == pytest.approx(1.0) and result.perplexity == pytest.approx(2.0)
    assert SplitLoss(1e4, 0.0, [], 1).perplexity == math.inf
