"""What a handful of seeds allows one to say: means with t intervals, paired differences, Holm correction."""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
LEVEL = 0.05
# Below this, relative to the values, a spread is rounding: a t statistic made of it would mean nothing.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Summary:
    """A mean over n seeds; half_width is that of its 95 % t interval, None when n < 2."""

    n: int
    mean: float | None
    half_width: float | None


@dataclass(frozen=True)
class Difference:
    """A group's mean minus the baseline's.

    method: "paired" (over `pairs` seeds that both have), "welch" (fewer than two shared seeds) or "none" (no
    test is possible; `reason` says why). p is the two-sided p value before any correction.
    """

    value: float | None
    half_width: float | None
    p: float | None
    method: str
    pairs: int
    reason: str | None = None


def summarize(values):
    """Returns the Summary of a sequence of finite values, one per seed."""
    values = np.asarray(list(values), dtype=float)
    if values.size == 0:
        return Summary(0, None, None)
    mean = float(values.mean())
    if values.size < 2:
        return Summary(1, mean, None)
    if _has_no_spread(values, values):
        return Summary(values.size, mean, 0.0)
    low, high = stats.t.interval(CONFIDENCE, values.size - 1, loc=mean, scale=stats.sem(values))
    return Summary(values.size, mean, float(high - low) / 2)


def difference(values, baseline):
    """Returns the Difference between two mappings of seed to finite value.

    Seeds that both sides have are paired (Student's paired t test), since they see the same batches and the
    same evaluation windows. With fewer than two in common, Welch's t test for unequal variances takes over.
    """
    shared = sorted(set(values) & set(baseline))
    if min(len(values), len(baseline)) < 2:
        return _untested(values, baseline, shared)
    if len(shared) >= 2:
        return _paired([values[seed] for seed in shared], [baseline[seed] for seed in shared])
    return _welch(list(values.values()), list(baseline.values()))


def _untested(values, baseline, shared):
    if not values or not baseline:
        return Difference(None, None, None, "none", 0, "no runs")
    if shared:
        value = float(np.mean([values[seed] - baseline[seed] for seed in shared]))
    else:
        value = float(np.mean(list(values.values())) - np.mean(list(baseline.values())))
    return Difference(value, None, None, "none", len(shared), "one seed")


def _paired(values, baseline):
    values, baseline = np.asarray(values, dtype=float), np.asarray(baseline, dtype=float)
    gaps = values - baseline
    if _has_no_spread(gaps, np.concatenate([values, baseline])):
        return _without_spread(float(gaps.mean()), values, "paired", gaps.size)
    test = stats.ttest_rel(values, baseline)
    low, high = test.confidence_interval(CONFIDENCE)
    return Difference(float(gaps.mean()), float(high - low) / 2, float(test.pvalue), "paired", gaps.size)


def _welch(values, baseline):
    values, baseline = np.asarray(values, dtype=float), np.asarray(baseline, dtype=float)
    value = float(values.mean() - baseline.mean())
    if _has_no_spread(values, values) and _has_no_spread(baseline, baseline):
        return _without_spread(value, values, "welch", 0)
    test = stats.ttest_ind(values, baseline, equal_var=False)
    low, high = test.confidence_interval(CONFIDENCE)
    return Difference(value, float(high - low) / 2, float(test.pvalue), "welch", 0)


def _without_spread(value, values, method, pairs):
    if abs(value) <= _ROUNDING * max(1.0, float(np.abs(values).max())):
        return Difference(0.0, 0.0, 1.0, method, pairs, "identical")
    return Difference(value, None, None, "none", pairs, "no spread between seeds")


def _has_no_spread(values, scale):
    return float(np.ptp(values)) <= _ROUNDING * max(1.0, float(np.abs(scale).max()))


def holm(p_values):
    """Returns the p values, in the given order, corrected by Holm's step-down rule (1979)."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    corrected, running = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = running
    return corrected


def reading(gap, holm_p):
    """Returns in words what a Difference in a loss says at the 5 % level, given its corrected p value."""
    if gap.reason == "identical":
        return "identical"
    if holm_p is None or not math.isfinite(holm_p):
        return f"no claim: {gap.reason or 'no test possible'}"
    word = ("better" if gap.value < 0 else "worse") if holm_p < LEVEL else "no difference found"
    return f"{word} (Welch: seeds do not pair)" if gap.method == "welch" else word
