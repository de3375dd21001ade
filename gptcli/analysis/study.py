"""The study that a sweep's runs belong to, as they record it, and the figure that answers its question."""

from gptcli.analysis.grouping import shown, sort_key
from gptcli.config import study_from_dict
from gptcli.errors import UserError

# Okabe and Ito's colour-blind-safe set without its yellow and black, which vanish on a white or a dark page.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def study_of(runs):
    """Returns the StudyConfig that all runs record, or None where they do not share one."""
    recorded = [run.config.get("study") for run in runs]
    if not recorded or any(one != recorded[0] for one in recorded):
        return None
    try:
        study = study_from_dict(recorded[0])
    except UserError:
        return None
    return None if study.name == "none" else study


def study_keys(study, runs):
    """Returns the settings that a study groups by, as far as any of the runs has them."""
    return tuple(key for key in study.by if any(run.value(key) is not None for run in runs)) if study else ()


def study_figure(comparison):
    """Returns JSON-ready data of a study's figure, or None where the groups are not the study's.

    x_name; ticks as [position, text]; log (the axis is logarithmic); panels of a title and series, each a label, a
    colour and points as [x, mean, half width or None], x in the order of the axis.
    """
    study = comparison.study
    keys = [key for key in (study.x, study.lines, study.panels) if key] if study else []
    if not keys or set(keys) != set(comparison.names) or study.x is None:
        return None
    axis = _Axis(_values(comparison.groups, study.x))
    lines = _values(comparison.groups, study.lines)
    panels = [
        {
            "title": f"{comparison.names[study.panels]} {shown(panel)}" if study.panels else "",
            "series": _series(comparison.groups, study, panel, lines, axis),
        }
        for panel in _values(comparison.groups, study.panels)
    ]
    return {"x_name": comparison.names[study.x], "ticks": axis.ticks, "log": axis.log, "panels": panels}


class _Axis:
    """Numbers stand where they are, on a logarithmic axis when they span a factor above 4; words in their order."""

    def __init__(self, values):
        numbers = all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in values)
        positive = [one for one in values if numbers and one > 0]
        self.numeric = numbers
        self.log = len(positive) == len(values) and max(values) > 4 * min(values)
        self._places = {shown(one): one if numbers else place for place, one in enumerate(values)}
        self.ticks = [[place, text] for text, place in self._places.items()]

    def place(self, value):
        return self._places[shown(value)]


def _values(groups, key):
    """Returns the values of a setting in order; of no setting, one None."""
    if key is None:
        return [None]
    found = {shown(group.settings[key]): group.settings[key] for group in groups}
    return sorted(found.values(), key=sort_key)


def _series(groups, study, panel, lines, axis):
    found = []
    for number, line in enumerate(lines):
        members = [group for group in groups if _is(group, study.lines, line) and _is(group, study.panels, panel)]
        points = [
            [axis.place(group.settings[study.x]), group.summary.mean, group.summary.half_width] for group in members
        ]
        label = shown(line) if study.lines else "mean over seeds"
        found.append(
            {
                "label": label,
                "colour": _COLOURS[number % len(_COLOURS)],
                "joined": axis.numeric,
                "points": sorted(points),
            }
        )
    floors = {axis.place(group.settings[study.x]): group.floor for group in groups if group.floor}
    if floors and len(lines) == 1:
        points = [[place, floor, None] for place, floor in sorted(floors.items())]
        found.append({"label": "best possible", "colour": "#8a8a8a", "joined": True, "points": points})
    return found


def _is(group, key, value):
    return key is None or shown(group.settings[key]) == shown(value)
