"""Builds the comparison of groups of runs: what each reached, and what may be said against the baseline."""

from dataclasses import dataclass

from gptcli.analysis import curves
from gptcli.analysis.baseline import find_baselines, most_common
from gptcli.analysis.comparability import check_group, mismatch, vocabulary, warnings
from gptcli.analysis.flops import flops_per_token
from gptcli.analysis.grouping import group_runs, varying
from gptcli.analysis.statistics import Difference, Summary, difference, holm, reading, summarize
from gptcli.analysis.study import study_keys, study_of
from gptcli.config import StudyConfig, model_from_dict
from gptcli.errors import UserError


@dataclass(frozen=True)
class GroupResult:
    """One group. Losses in nats per token, flops in operations per run, tokens_per_second a mean over runs.

    summary is of the compared metric, final of val_loss at the last step, best of best_val_loss. against is
    None for the baseline. floor_distance is the mean minus the least loss that the corpus allows.
    """

    label: str
    settings: dict
    runs: tuple
    values: dict
    summary: Summary
    final: Summary
    best: Summary
    against: Difference | None
    holm_p: float | None
    reading: str
    parameters: int | None
    flops_per_token: int | None
    flops: float | None
    tokens_per_second: float | None
    steps: int | None
    steps_to_baseline: float | None
    floor: float | None
    floor_distance: float | None
    curve: curves.Curve | None
    differing: dict


@dataclass(frozen=True)
class Comparison:
    """Groups side by side.

    names: dotted key -> short name of the settings that tell groups apart. baseline is the group that most
    are compared with, baselines the one of each group (see Baselines), baseline_words what a heading calls
    them. study is the one that all runs record, if any. notes and left_out (run path, reason) are what a
    reader must be told.
    """

    metric: str
    metric_is_default: bool
    names: dict
    baseline: int
    baselines: tuple
    baseline_words: str
    groups: tuple
    study: StudyConfig | None
    notes: tuple
    left_out: tuple


def compare(runs, *, by=(), baseline=None, metric=None):
    """Returns the Comparison of runs.

    Args:
        by: keys to group by; those of the runs' study by default, or else everything that differs besides
            the seed.
        baseline: as find_baselines takes it; the study's by default, or else the first on the ladder.
        metric: one of curves.METRICS; full_val_loss by default when all runs have it, else val_loss.

    Raises:
        UserError: no finished run has the metric, a key or the baseline is unknown, or a group mixes corpora.
    """
    finished, left_out = _finished(runs)
    chosen = metric or curves.default_metric(finished)
    usable = [run for run in finished if curves.finite(run.info.get(chosen)) is not None]
    left_out += [(str(run.path), f"no finite {chosen}") for run in finished if run not in usable]
    if not usable:
        reasons = "; ".join(f"{path}: {reason}" for path, reason in left_out[:3])
        raise UserError(f"nothing to compare: no finished run with a {chosen} ({reasons or 'no runs'})")
    study = study_of(usable)
    grouping = group_runs(usable, by or study_keys(study, usable))
    for group in grouping.groups:
        check_group(group)
    baselines, said = _baselines(grouping, baseline, study)
    results = _results(grouping, baselines.positions, chosen)
    return Comparison(
        metric=chosen,
        metric_is_default=metric is None,
        names=grouping.names,
        baseline=most_common(baselines),
        baselines=baselines.positions,
        baseline_words=baselines.words,
        groups=results,
        study=study,
        notes=(*said, *_notes(grouping, results, left_out)),
        left_out=tuple(left_out),
    )


def _baselines(grouping, wanted, study):
    """Returns the Baselines, and a note where the study's own do not fit the runs."""
    if wanted is not None or study is None or study.baseline is None:
        return find_baselines(grouping, wanted), ()
    try:
        return find_baselines(grouping, study.baseline), ()
    except UserError:
        note = f"the study's baseline, {study.baseline}, is not one of the groups"
        return find_baselines(grouping), (note,)


def _finished(runs):
    finished, left_out = [], []
    for run in sorted(runs, key=lambda one: (one.info.get("seed") or 0, str(one.path))):
        reason = run.damage or run.info.get("reason")
        if run.status != "finished":
            left_out.append((str(run.path), f"{run.status}{f': {reason}' if reason else ''}"))
        elif run.info.get("seed") is None:
            left_out.append((str(run.path), "no seed in run.json"))
        else:
            finished.append(run)
    return finished, left_out


def _results(grouping, positions, metric):
    groups = grouping.groups
    gaps = [_gap(grouping, index, position, metric) for index, position in enumerate(positions)]
    tested = [index for index, gap in enumerate(gaps) if gap is not None and gap.p is not None]
    corrected = dict(zip(tested, holm([gaps[index].p for index in tested]), strict=True))
    settings = [group.flat[0] for group in groups]
    differing = varying(settings)
    curve_of = {
        position: curves.mean_curve(groups[position].runs, curves.curve_key(metric))
        for position in set(positions) - {None}
    }
    return tuple(
        _result(
            group,
            gaps[index],
            corrected.get(index),
            metric,
            curve_of.get(positions[index]),
            {key: settings[index].get(key) for key in differing},
        )
        for index, group in enumerate(groups)
    )


def _gap(grouping, index, position, metric):
    """Returns a group's Difference to its baseline; None when it is one itself."""
    if position == index:
        return None
    if position is None:
        return Difference(None, None, None, "none", 0, "no baseline with the same other settings")
    group, base = grouping.groups[index], grouping.groups[position]
    if problem := mismatch(base.runs[0], group.runs[0]):
        return Difference(None, None, None, "none", 0, problem)
    values, base_values = (
        curves.by_seed(one.runs, lambda run: run.info.get(metric)) for one in (group, base)
    )
    return difference(values, base_values)


def _result(group, gap, holm_p, metric, base_curve, differing):
    values = curves.by_seed(group.runs, lambda run: run.info.get(metric))
    summary = summarize(values.values())
    curve = curves.mean_curve(group.runs, curves.curve_key(metric))
    comparable = gap is None or gap.value is not None
    reached = (
        curves.steps_to_reach(curve, base_curve.mean[-1]) if curve and base_curve and comparable else None
    )
    floor = _mean(group.runs, "floor")
    per_token, tokens = _flops_per_token(group.runs[0]), _mean(group.runs, "tokens")
    return GroupResult(
        label=group.label,
        settings=group.settings,
        runs=group.runs,
        values=values,
        summary=summary,
        final=_summary(group.runs, "val_loss"),
        best=_summary(group.runs, "best_val_loss"),
        against=gap,
        holm_p=holm_p,
        reading="baseline" if gap is None else reading(gap, holm_p),
        parameters=_common(group.runs, "parameters"),
        flops_per_token=per_token,
        flops=None if per_token is None or tokens is None else per_token * tokens,
        tokens_per_second=_mean(group.runs, "tokens_per_second"),
        steps=_common(group.runs, "steps"),
        steps_to_baseline=reached,
        floor=floor,
        floor_distance=None if floor is None else summary.mean - floor,
        curve=curve,
        differing=differing,
    )


def _summary(runs, key):
    return summarize(curves.by_seed(runs, lambda run: run.info.get(key)).values())


def _mean(runs, key):
    return summarize(curves.by_seed(runs, lambda run: run.info.get(key)).values()).mean


def _common(runs, key):
    """Returns the value that all runs share, or None."""
    values = {run.info.get(key) for run in runs}
    return values.pop() if len(values) == 1 else None


def _flops_per_token(run):
    try:
        model = model_from_dict(run.config.get("model"))
    except UserError:
        # Written by another version, or damaged: everything else can still be compared.
        return None
    return flops_per_token(model, len(vocabulary(run)))


def _notes(grouping, results, left_out):
    notes = []
    for label, keys in grouping.mixed.items():
        notes.append(f"inside group {label}, {', '.join(keys)} varies: its mean is over more than seeds")
    for result in results:
        notes += _notes_on(result)
    notes += warnings(grouping.groups)
    if lonely := [result.label for result in results if len(result.values) == 1]:
        notes.append(f"one seed only ({', '.join(lonely)}): no claim can be made; run more seeds")
    if left_out:
        notes.append(
            f"{_many(len(left_out), 'run')} left out (failed, not finished or without the metric); "
            "means over those that remain flatter a group whose bad runs failed"
        )
    return tuple(notes)


def _many(number, word):
    return f"{number} {word}{'s' * (number != 1)}"


def _notes_on(result):
    label, gap = result.label, result.against
    if len(result.runs) > len(result.values):
        seeds = _many(len(result.values), "seed")
        yield f"{label}: {len(result.runs)} runs over {seeds}; runs of one seed are averaged"
    if gap is not None and gap.value is None:
        yield f"{label} is not compared with the baseline: {gap.reason}"
    if gap is not None and gap.method == "paired" and gap.pairs < len(result.values):
        yield f"{label}: paired over the {gap.pairs} seeds that the baseline has too, of {len(result.values)}"
    if result.summary.n > 1 and result.summary.half_width == 0:
        yield f"{label}: all seeds gave the same value; were they really different runs?"
    error = _mean(result.runs, "full_val_loss_standard_error") or 0.0
    if result.floor_distance is not None and result.floor_distance < -2 * error:
        yield f"{label} is {-result.floor_distance:.4f} nats below the corpus's floor: look for a leak"
