"""The measured losses of runs: which one is compared, mean learning curves, when a curve reaches a level."""

import math
from dataclasses import dataclass

from gptcli.analysis.statistics import summarize
from gptcli.training.files import UnreadableFile

METRICS = ("full_val_loss", "val_loss", "best_val_loss", "train_loss")
# best_val_loss and full_val_loss are single numbers of a run; the curve that leads to them is val_loss.
_CURVES = {"train_loss": "train_loss"}


@dataclass(frozen=True)
class Curve:
    """The mean over seeds at each step that all have; half_width is None for one seed."""

    steps: tuple
    mean: tuple
    half_width: tuple


def finite(value):
    """Returns value as a float when it is a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def default_metric(runs):
    """Returns full_val_loss when every run has it, else val_loss."""
    complete = all(finite(run.info.get("full_val_loss")) is not None for run in runs)
    return "full_val_loss" if runs and complete else "val_loss"


def metric_words(metric):
    """Returns how a sentence speaks of a metric."""
    return {
        "full_val_loss": "validation loss over the whole split",
        "val_loss": "validation loss",
        "best_val_loss": "best validation loss",
        "train_loss": "training loss",
    }[metric]


def curve_key(metric):
    """Returns the name, in metrics.jsonl, of the curve that belongs to a metric."""
    return _CURVES.get(metric, "val_loss")


def by_seed(runs, value_of):
    """Returns seed -> value, the mean where runs share a seed; runs without the value are left out."""
    found = {}
    for run in runs:
        value = finite(value_of(run))
        if value is not None:
            found.setdefault(run.info.get("seed"), []).append(value)
    return {seed: math.fsum(values) / len(values) for seed, values in found.items()}


def mean_curve(runs, key):
    """Returns the Curve of a measured key over the steps at which every run has it, or None."""
    series = []
    for run in runs:
        points = {record["step"]: finite(record.get(key)) for record in _records(run)}
        series.append({step: value for step, value in points.items() if value is not None})
    if not series:
        return None
    steps = sorted(set.intersection(*map(set, series)))
    if not steps:
        return None
    summaries = [_at(runs, series, step) for step in steps]
    return Curve(
        tuple(steps), tuple(one.mean for one in summaries), tuple(one.half_width for one in summaries)
    )


def _records(run):
    try:
        return run.metrics()
    except UnreadableFile:
        return []


def _at(runs, series, step):
    position = {id(run): points[step] for run, points in zip(runs, series, strict=True)}
    return summarize(by_seed(runs, lambda run: position[id(run)]).values())


def steps_to_reach(curve, level):
    """Returns the step at which a curve, joined by straight lines, first is at or below level, or None."""
    previous = None
    for step, value in zip(curve.steps, curve.mean, strict=True):
        if value <= level:
            if previous is None or previous[1] == value:
                return float(step)
            share = (previous[1] - level) / (previous[1] - value)
            return previous[0] + share * (step - previous[0])
        previous = (step, value)
    return None
