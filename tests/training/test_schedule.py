"""The learning rate at each update against the formulas, with warm-ups and runs of every length."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcli.config import ScheduleConfig
from gptcli.training.schedule import depends_on_steps, learning_rate

NAMES = ["constant", "linear", "cosine"]


def rates(name, steps, warmup_steps=0, final_fraction=0.1, peak=2.0):
    """Returns the rate of every update of a run."""
    schedule = ScheduleConfig(name, warmup_steps, 1.0 if name == "constant" else final_fraction)
    return [learning_rate(step, peak, schedule, steps) for step in range(steps)]


def test_constant():
    assert rates("constant", 5) == [2.0] * 5
    assert rates("constant", 5, warmup_steps=4) == [0.5, 1.0, 1.5, 2.0, 2.0]


def test_linear():
    assert rates("linear", 5, final_fraction=0.0) == pytest.approx([2.0, 1.5, 1.0, 0.5, 0.0])
    assert rates("linear", 5, final_fraction=0.5) == pytest.approx([2.0, 1.75, 1.5, 1.25, 1.0])
    assert rates("linear", 6, 2, 0.0) == pytest.approx([1.0, 2.0, 2.0, 4 / 3, 2 / 3, 0.0])


def test_cosine():
    expected = [0.2 + 1.8 * (1 + math.cos(math.pi * step / 8)) / 2 for step in range(9)]
    assert rates("cosine", 9) == pytest.approx(expected)
    assert rates("cosine", 9)[4] == pytest.approx(1.1)


@pytest.mark.parametrize("name", NAMES)
@given(steps=st.integers(1, 60), warmup=st.integers(0, 60), fraction=st.floats(0.0, 1.0))
def test_every_run_has_sensible_rates(name, steps, warmup, fraction):
    warmup = min(warmup, steps)
    values = rates(name, steps, warmup, fraction)
    assert values[0] > 0 and max(values) <= 2.0 * (1 + 1e-12)
    assert values[:warmup] == pytest.approx([2.0 * (step + 1) / warmup for step in range(warmup)])
    rest = values[warmup:]
    assert all(later <= earlier + 1e-12 for earlier, later in itertools.pairwise(rest))
    if len(rest) > 1:
        assert rest[0] == 2.0
        assert rest[-1] == pytest.approx(2.0 if name == "constant" else 2.0 * fraction)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("steps", "warmup"), [(1, 0), (1, 1), (2, 1), (2, 2), (10, 10), (10, 9)])
def test_warmup_up_to_the_whole_run_divides_by_nothing(name, steps, warmup):
    values = rates(name, steps, warmup)
    assert len(values) == steps and values[0] > 0
    assert max(values) == 2.0


@pytest.mark.parametrize("name", NAMES)
def test_past_the_end_the_rate_stays_at_its_last_value(name):
    schedule = ScheduleConfig(name, 0, 1.0 if name == "constant" else 0.1)
    assert learning_rate(50, 2.0, schedule, 10) == pytest.approx(2.0 if name == "constant" else 0.2)


def test_only_a_constant_rate_is_the_same_in_a_longer_run():
    for name in NAMES:
        same = rates(name, 10)[:5] == rates(name, 20)[:5]
        assert same == (name == "constant") == (not depends_on_steps(ScheduleConfig(name, 0, 1.0)))
