"""A comparison as text: the terminal's table, JSON and CSV."""

import csv
import dataclasses
import io
import json

from gptcli.analysis.curves import metric_words
from gptcli.analysis.grouping import shown
from gptcli.analysis.output import CSV_START
from gptcli.terminal import printable, table

# Columns go from the left of this list as a terminal gets narrower; the others always stay.
_DISPENSABLE = ("tokens/s", "FLOPs", "best", "steps to baseline", "to floor", "parameters", "seeds")
_SPREADSHEET_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def interval(mean, half_width, *, signed=False):
    """Returns "2.2410 ± 0.0060", or the mean alone where there is no interval."""
    if mean is None:
        return "-"
    text = f"{mean:+.4f}" if signed else f"{mean:.4f}"
    return text if half_width is None else f"{text} ± {half_width:.4f}"


def p_words(p):
    """Returns "p 0.031", "p <0.001" or nothing."""
    if p is None:
        return ""
    return "p <0.001" if p < 0.001 else f"p {p:.2f}" if p >= 0.1 else f"p {p:.3f}"


def against_words(group):
    """Returns a group's difference to the baseline with its interval and corrected p."""
    if group.against is None:
        return "-"
    gap = interval(group.against.value, group.against.half_width, signed=True)
    return f"{gap}  {p_words(group.holm_p)}".rstrip()


def count(value):
    """Returns a whole number with separators, or "-"."""
    return "-" if value is None else f"{value:,.0f}"


def magnitude(value):
    """Returns 1.23e+15 style for large costs."""
    return "-" if value is None else "0" if value == 0 else f"{value:.2e}"


def headline(comparison):
    """Returns one sentence: what is compared, over how many seeds and steps, on which corpus."""
    groups = comparison.groups
    seeds = sorted({len(group.values) for group in groups})
    many = (
        f"{seeds[0]} to {seeds[-1]} seeds"
        if len(seeds) > 1
        else f"{seeds[0]} seed{'s' * (seeds[0] > 1)} each"
    )
    parts = [metric_words(comparison.metric), many]
    steps = {group.steps for group in groups}
    if len(steps) == 1 and None not in steps:
        parts.append(f"{count(steps.pop())} steps")
    corpora = dict.fromkeys(
        str((run.info.get("corpus") or {}).get("name")) for group in groups for run in group.runs
    )
    parts.append(" and ".join(corpora))
    return f"{', '.join(parts)} (95 % intervals; {_method(groups)})"


def _method(groups):
    methods = {group.against.method for group in groups if group.against is not None} - {"none"}
    if not methods:
        return "no differences tested"
    words = {"paired": "paired by seed", "welch": "by Welch's test"}
    return f"differences {' or '.join(words[method] for method in sorted(methods))}, Holm-corrected"


def terminal_lines(comparison, width=None):
    """Returns the comparison's table, notes and left-out runs as printable lines.

    Args:
        width: columns of the terminal; None keeps every column. When not even the needed columns fit, each
            group gets lines of its own.
    """
    lines = [*study_lines(comparison.study), printable(headline(comparison)), ""]
    if not comparison.metric_is_default or comparison.metric != "full_val_loss":
        chosen = "asked for" if not comparison.metric_is_default else "not all runs have full_val_loss"
        lines[-1:-1] = [f"metric {comparison.metric} ({chosen})"]
    lines += _fitted(comparison, width)
    lines += [""] * bool(comparison.notes or comparison.left_out)
    lines += [printable(f"note: {note}") for note in comparison.notes]
    lines += [printable(f"left out: {path}  ({reason})") for path, reason in comparison.left_out]
    return lines


def study_lines(study):
    """Returns the question of a study and the claim it tests, as printable lines."""
    if study is None:
        return []
    lines = [f"study {study.name}: {study.question}"] + [f"claim: {study.claim}"] * (study.claim is not None)
    return [*map(printable, lines), ""]


def _fitted(comparison, width):
    columns = _columns(comparison)
    droppable = [name for name in _DISPENSABLE if name in columns]
    while True:
        lines = table(
            list(zip(*columns.values(), strict=True)),
            header=list(columns),
            right=[i for i, name in enumerate(columns) if name in _RIGHT],
        )
        if width is None or max(map(len, lines)) <= width:
            return lines
        if not droppable:
            return _stacked(comparison)
        del columns[droppable.pop(0)]


_RIGHT = ("seeds", "parameters", "FLOPs", "tokens/s", "steps to baseline", "to floor", "best")


def _columns(comparison):
    """Returns column name -> cells; columns that would say nothing are left out."""
    groups = comparison.groups
    columns = {
        name: [shown(group.settings[key]) for group in groups] for key, name in comparison.names.items()
    } or {"group": [group.label for group in groups]}
    columns |= {
        "seeds": [str(len(group.values)) for group in groups],
        "parameters": [count(group.parameters) for group in groups],
        "FLOPs": [magnitude(group.flops) for group in groups],
        "tokens/s": [count(group.tokens_per_second) for group in groups],
        "mean": [interval(group.summary.mean, group.summary.half_width) for group in groups],
        "best": [interval(group.best.mean, None) for group in groups],
        "to floor": [interval(group.floor_distance, None, signed=True) for group in groups],
        "steps to baseline": [count(group.steps_to_baseline) for group in groups],
        f"against {comparison.baseline_words}": [against_words(group) for group in groups],
        "reading": [group.reading if group.against is not None else "-" for group in groups],
    }
    if len(groups) == 1:
        for name in ("steps to baseline", f"against {comparison.baseline_words}", "reading"):
            del columns[name]
    return {
        name: cells
        for name, cells in columns.items()
        if name not in _DISPENSABLE
        or (set(cells) != {"-"} and not (name == "seeds" and len(set(cells)) == 1))
    }


def _stacked(comparison):
    lines = []
    for group in comparison.groups:
        lines.append(printable(group.label))
        lines.append(f"  {interval(group.summary.mean, group.summary.half_width)}")
        if group.against is not None:
            lines += [f"  {part}" for part in against_words(group).split("  ") if part]
        lines.append(printable(f"  {group.reading}"))
    return lines


def to_json(comparison):
    """Returns the comparison as strict JSON text: no NaN, no Infinity."""
    return json.dumps(_plain(comparison), indent=2, ensure_ascii=True, allow_nan=False)


def _plain(comparison):
    return {
        "metric": comparison.metric,
        "keys": list(comparison.names),
        "study": comparison.study and dataclasses.asdict(comparison.study),
        "baseline": comparison.baseline_words,
        "groups": [
            {**_plain_group(group), "baseline": None if position is None else comparison.groups[position].label}
            for group, position in zip(comparison.groups, comparison.baselines, strict=True)
        ],
        "notes": list(comparison.notes),
        "left_out": [{"run": path, "reason": reason} for path, reason in comparison.left_out],
    }


def _plain_group(group):
    gap, curve = group.against, group.curve
    return {
        "group": group.label,
        "settings": {
            key: shown(value) if isinstance(value, tuple) else value for key, value in group.settings.items()
        },
        "seeds": [{"seed": seed, "value": value} for seed, value in group.values.items()],
        "runs": [str(run.path) for run in group.runs],
        **_numbers(group),
        "reading": group.reading,
        "method": None if gap is None else gap.method,
        "curve": curve and {"steps": curve.steps, "mean": curve.mean, "half_width": curve.half_width},
    }


def _numbers(group):
    gap = group.against
    return {
        "mean": group.summary.mean,
        "interval": group.summary.half_width,
        "difference": gap and gap.value,
        "difference_interval": gap and gap.half_width,
        "p": gap and gap.p,
        "p_holm": group.holm_p,
        "pairs": gap and gap.pairs,
        "final_val_loss": group.final.mean,
        "final_val_loss_interval": group.final.half_width,
        "best_val_loss": group.best.mean,
        "best_val_loss_interval": group.best.half_width,
        "parameters": group.parameters,
        "flops_per_token": group.flops_per_token,
        "flops": group.flops,
        "tokens_per_second": group.tokens_per_second,
        "steps": group.steps,
        "steps_to_baseline": group.steps_to_baseline,
        "floor": group.floor,
        "floor_distance": group.floor_distance,
    }


def to_csv(comparison):
    """Returns one row per group; text that a spreadsheet would take for a formula gets an apostrophe."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    keys = list(comparison.names)
    numbers = [_numbers(group) for group in comparison.groups]
    names = [name for name in numbers[0] if name != "mean"]
    writer.writerow([*CSV_START.rstrip(",").split(","), *names, "method", "reading", *keys])
    for group, row in zip(comparison.groups, numbers, strict=True):
        method = group.against.method if group.against is not None else ""
        cells = [
            group.label,
            comparison.metric,
            len(group.values),
            row["mean"],
            *(row[name] for name in names),
        ]
        cells += [method, group.reading, *(shown(group.settings[key]) for key in keys)]
        writer.writerow([_safe(cell) for cell in cells])
    return file.getvalue()


def _safe(cell):
    if isinstance(cell, str) and cell.startswith(_SPREADSHEET_FORMULA):
        return f"'{cell}"
    return "" if cell is None else cell
