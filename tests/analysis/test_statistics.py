"""The statistics against figures worked out by hand, published examples and scipy's other routes."""

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gptcli.analysis.statistics import Difference, difference, holm, reading, summarize

# Two-sided 95 % points of Student's t from printed tables.
T_2, T_3 = 4.302653, 3.182446


def test_mean_and_interval_by_hand():
    # 1, 2, 3: variance 1, standard error 1 / sqrt(3), two degrees of freedom.
    summary = summarize([1.0, 2.0, 3.0])
    assert (summary.n, summary.mean) == (3, 2.0)
    assert summary.half_width == pytest.approx(T_2 / math.sqrt(3), rel=1e-6)


@pytest.mark.parametrize(
    ("values", "expected"), [([], (0, None, None)), ([2.5], (1, 2.5, None)), ([2.5, 2.5], (2, 2.5, 0.0))]
)
def test_summary_of_too_little(values, expected):
    summary = summarize(values)
    assert (summary.n, summary.mean, summary.half_width) == expected


def test_paired_difference_by_hand():
    # Gaps -1, -2, -3, -2: mean -2, variance 2/3, standard error sqrt(2/3)/2, t -sqrt(24), 3 degrees.
    gap = difference({1: 9.0, 2: 3.0, 3: 4.0, 4: 0.0}, {4: 2.0, 3: 7.0, 2: 5.0, 1: 10.0})
    assert (gap.value, gap.method, gap.pairs) == (-2.0, "paired", 4)
    assert gap.half_width == pytest.approx(T_3 * math.sqrt(2 / 3) / 2, rel=1e-6)
    # P(|t| > x) with three degrees of freedom has the closed form used here.
    t = math.sqrt(24)
    closed = 1 - 2 / math.pi * (math.atan(t / math.sqrt(3)) + t * math.sqrt(3) / (3 + t * t))
    assert gap.p == pytest.approx(closed, rel=1e-9)


def test_only_shared_seeds_are_paired():
    gap = difference({1: 2.0, 2: 3.0, 9: 100.0}, {1: 1.0, 2: 1.0, 8: -50.0})
    assert (gap.value, gap.pairs, gap.method) == (1.5, 2, "paired")


def test_welch_when_seeds_do_not_pair():
    # Means 3 and 7; variances 1 and 4; n 3 and 3: standard error sqrt(5/3), Welch's degrees of freedom 50/17.
    gap = difference({1: 2.0, 2: 3.0, 3: 4.0}, {4: 5.0, 5: 7.0, 6: 9.0})
    error, freedom = math.sqrt(5 / 3), (5 / 3) ** 2 / ((1 / 3) ** 2 / 2 + (4 / 3) ** 2 / 2)
    assert freedom == pytest.approx(50 / 17)
    assert (gap.value, gap.method, gap.pairs) == (-4.0, "welch", 0)
    assert gap.p == pytest.approx(2 * stats.t.sf(4 / error, freedom), rel=1e-9)
    assert gap.half_width == pytest.approx(stats.t.ppf(0.975, freedom) * error, rel=1e-9)
    assert reading(gap, 0.04) == "better (Welch: seeds do not pair)"


def test_one_seed_makes_no_claim():
    gap = difference({1: 1.0}, {1: 3.0, 2: 4.0})
    assert gap == Difference(-2.0, None, None, "none", 1, "one seed")
    assert reading(gap, None) == "no claim: one seed"


def test_equal_results_are_identical():
    gap = difference({1: 2.0, 2: 3.0}, {1: 2.0, 2: 3.0})
    assert (gap.value, gap.half_width, gap.p) == (0.0, 0.0, 1.0)
    assert reading(gap, 1.0) == "identical"


@pytest.mark.parametrize(
    ("values", "baseline"),
    [({1: 2.1, 2: 3.1}, {1: 2.0, 2: 3.0}), ({1: 2.5, 2: 2.5}, {3: 2.0, 4: 2.0})],
    ids=["paired, equal up to rounding", "unpaired"],
)
def test_a_difference_without_spread_makes_no_claim(values, baseline):
    gap = difference(values, baseline)
    assert gap.p is None and gap.half_width is None
    assert reading(gap, None) == "no claim: no spread between seeds"


@pytest.mark.parametrize(
    ("p_values", "expected"),
    [
        # Ordered 0.005, 0.01, 0.03, 0.04, times 4, 3, 2, 1: 0.02, 0.03, 0.06, 0.04; the last rises to 0.06.
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        ([0.6, 0.7], [1.0, 1.0]),
        ([0.02], [0.02]),
        ([], []),
    ],
)
def test_holm_by_hand(p_values, expected):
    assert holm(p_values) == pytest.approx(expected)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_the_closed_test_of_bonferroni(p_values):
    # A hypothesis falls when every intersection of hypotheses that holds it falls by Bonferroni's rule.
    everyone = range(len(p_values))
    sets = [chosen for size in everyone for chosen in combinations(everyone, size + 1)]
    for index, corrected in enumerate(holm(p_values)):
        bonferroni = [
            len(chosen) * min(p_values[one] for one in chosen) for chosen in sets if index in chosen
        ]
        closed = min(1.0, max(bonferroni))
        assert corrected == pytest.approx(closed)


@pytest.mark.parametrize(
    ("value", "p", "expected"),
    [
        (-0.1, 0.01, "better"),
        (0.1, 0.01, "worse"),
        (-0.1, 0.2, "no difference found"),
        (0.1, 0.05, "no difference found"),
    ],
)
def test_reading(value, p, expected):
    assert reading(Difference(value, 0.1, p, "paired", 5), p) == expected
