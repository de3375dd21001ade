"""Window starts and gathering, against Python's random module and loops over items."""

import json
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcli.data.windows import (
    CounterSampler,
    WalkthroughSampler,
    check_length,
    check_split_lengths,
    evenly_spaced_starts,
    gather,
)
from gptcli.errors import RunError, UserError


@given(st.integers(1, 20), st.integers(0, 30), st.data())
def test_gather_equals_slicing(block_size, extra, data):
    length = block_size + 1 + extra
    tokens = np.random.default_rng(0).integers(0, 256, length).astype(np.uint8)
    starts = data.draw(st.lists(st.integers(0, extra), min_size=1, max_size=10))
    x, y = gather(tokens, np.array(starts), block_size)
    assert x.dtype == y.dtype and str(x.dtype) == "torch.int64"
    assert x.tolist() == [tokens[start : start + block_size].tolist() for start in starts]
    assert y.tolist() == [tokens[start + 1 : start + 1 + block_size].tolist() for start in starts]


def test_gather_from_a_memory_map(tmp_path):
    np.arange(1000, dtype=np.uint16).tofile(tmp_path / "tokens")
    tokens = np.memmap(tmp_path / "tokens", dtype=np.uint16, mode="r")
    x, y = gather(tokens, [990, 0], 9)
    assert x.tolist() == [list(range(990, 999)), list(range(9))]
    assert y.tolist() == [list(range(991, 1000)), list(range(1, 10))]


@pytest.mark.parametrize("seed", [0, 42, 2**40])
@pytest.mark.parametrize("length", [9, 10, 12, 1000, 65544, 1_003_854, 2**33])
def test_walkthrough_starts_are_those_of_randint(seed, length):
    random.seed(seed)
    expected = [random.randint(0, length - 8 - 1) for _ in range(500)]
    sampler = WalkthroughSampler(seed)
    drawn = [sampler.draw(length, 8, number) for number in (1, 32, 0, 467)]
    assert np.concatenate(drawn).tolist() == expected


def test_walkthrough_sampler_alternates_between_splits_like_the_generator_does():
    random.seed(1)
    expected = [random.randint(0, length - 9) for length in (5000, 300, 5000) for _ in range(50)]
    sampler = WalkthroughSampler(1)
    assert np.concatenate([sampler.draw(length, 8, 50) for length in (5000, 300, 5000)]).tolist() == expected


def test_walkthrough_state_survives_json():
    sampler = WalkthroughSampler(3)
    sampler.draw(1000, 8, 77)
    state = json.loads(json.dumps(sampler.state()))
    expected = sampler.draw(1000, 8, 100)
    other = WalkthroughSampler(99)
    other.restore(state)
    assert (other.draw(1000, 8, 100) == expected).all()


@pytest.mark.parametrize(
    "state", [None, [], [3, [1, 2], None], [3, ["x"] * 625, None], [3, [-1] * 625, None], "abc"]
)
def test_a_damaged_state_is_refused(state):
    with pytest.raises(RunError, match="damaged"):
        WalkthroughSampler(0).restore(state)


@given(st.integers(0, 300), st.integers(1, 200), st.integers(0, 2**70))
def test_counter_starts_do_not_depend_on_how_many_are_asked_for(step, count, seed):
    sampler = CounterSampler(1000, 8, 4, seed)
    together = sampler.starts(step, count)
    assert together.shape == (count, 4) and together.dtype == np.int64
    apart = np.concatenate(
        [CounterSampler(1000, 8, 4, seed).starts(step + index, 1) for index in range(count)]
    )
    assert (together == apart).all()


def test_counter_starts_are_uniform_over_all_legal_ones():
    starts = CounterSampler(length=18, block_size=8, batch_size=50, seed=5).starts(0, 4000)
    counts = np.bincount(starts.ravel(), minlength=10)
    assert len(counts) == 10
    # Chi-square with 9 degrees of freedom; 33.7 is its 99.99 % point.
    assert ((counts - 20_000) ** 2 / 20_000).sum() < 33.7


def test_counter_starts_differ_between_seeds_and_steps():
    sampler = CounterSampler(10**9, 8, 8, 0)
    everything = np.concatenate([sampler.starts(0, 200), CounterSampler(10**9, 8, 8, 1).starts(0, 200)])
    assert len(np.unique(everything)) > 0.999 * everything.size


def test_one_legal_start():
    assert CounterSampler(9, 8, 3, 0).starts(0, 2).tolist() == [[0, 0, 0], [0, 0, 0]]
    assert WalkthroughSampler(0).draw(9, 8, 3).tolist() == [0, 0, 0]
    assert evenly_spaced_starts(9, 8, None).tolist() == [0]
    assert evenly_spaced_starts(9, 8, 1000).tolist() == [0]


@given(st.integers(1, 50), st.integers(0, 500), st.one_of(st.none(), st.integers(1, 600)))
def test_evaluation_windows_are_legal_and_cover_the_split(block_size, extra, tokens):
    length = block_size + 1 + extra
    starts = evenly_spaced_starts(length, block_size, tokens)
    whole = list(range(0, length - block_size, block_size))
    assert starts.min() == 0 and starts.max() <= length - block_size - 1
    assert (np.diff(starts) >= block_size).all()
    assert len(starts) == min(len(whole), max(1, (tokens or length) // block_size))
    if tokens is None:
        assert starts.tolist() == whole
    assert length - starts.max() <= block_size + length / len(starts) + 1


def test_a_split_that_is_too_short_is_named_with_what_it_needs():
    check_split_lengths(9, 9, 8)
    with pytest.raises(
        UserError, match="the validation split has 8 characters, but block_size 8 needs at least 9"
    ):
        check_split_lengths(100, 8, 8)
    with pytest.raises(UserError, match="the train split has 0 characters"):
        check_split_lengths(0, 0, 8)
    with pytest.raises(UserError, match="the text has 3 characters"):
        check_length("text", 3, 8)


@pytest.mark.parametrize(
    "make",
    [
        lambda: CounterSampler(8, 8, 1, 0),
        lambda: WalkthroughSampler(0).draw(8, 8, 1),
        lambda: evenly_spaced_starts(8, 8, None),
    ],
)
def test_no_sampler_takes_a_split_without_a_legal_start(make):
    with pytest.raises(UserError, match="needs at least 9"):
        make()
