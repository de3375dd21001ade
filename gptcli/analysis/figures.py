"""What the figures show, as plain data that matplotlib and the page's plotly draw alike."""

from gptcli.analysis.curves import curve_key, metric_words
from gptcli.analysis.grouping import shown, sort_key
from gptcli.analysis.study import study_figure

BASELINE_COLOUR = "#8a8a8a"
# Okabe and Ito's colour-blind-safe set without its yellow and black, which vanish on a white or a dark page.
_FEW = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
# Many groups are ordered, so they take their colours from one ramp of middling lightness, blue to ochre.
_RAMP = ((58, 91, 199), (38, 139, 178), (86, 164, 120), (190, 158, 56), (212, 110, 44))


def colours(comparison):
    """Returns one colour "#rrggbb" per group; a baseline is grey."""
    others = [index for index, position in enumerate(comparison.baselines) if index != position]
    chosen = (
        _FEW if len(others) <= len(_FEW) else [_ramp(rank / (len(others) - 1)) for rank in range(len(others))]
    )
    by_index = dict(zip(others, chosen, strict=False))
    return [by_index.get(index, BASELINE_COLOUR) for index in range(len(comparison.groups))]


def _ramp(share):
    position = share * (len(_RAMP) - 1)
    index = min(int(position), len(_RAMP) - 2)
    mixed = [
        round(low + (high - low) * (position - index))
        for low, high in zip(_RAMP[index], _RAMP[index + 1], strict=True)
    ]
    return "#{:02x}{:02x}{:02x}".format(*mixed)


def heat_map(comparison):
    """Returns {x, y, x_name, y_name, mean} of groups told apart by two keys, or None; empty cells None."""
    if len(comparison.names) != 2:
        return None
    (y_key, y_name), (x_key, x_name) = comparison.names.items()
    cells = {
        (shown(group.settings[y_key]), shown(group.settings[x_key])): group.summary.mean
        for group in comparison.groups
    }
    # Groups are sorted by the first key, then by the second: the order of the x axis needs its own sort.
    y, x = list(dict.fromkeys(row for row, _ in cells)), _in_order(comparison.groups, x_key)
    if len(x) < 2 or len(y) < 2:
        return None
    mean = [[cells.get((row, column)) for column in x] for row in y]
    return {"x": x, "y": y, "x_name": x_name, "y_name": y_name, "mean": mean}


def _in_order(groups, key):
    values = sorted((group.settings[key] for group in groups), key=sort_key)
    return list(dict.fromkeys(map(shown, values)))


def figure_data(comparison):
    """Returns JSON-ready data of all figures of a comparison."""
    return {
        "metric": metric_words(comparison.metric),
        "curve": metric_words(curve_key(comparison.metric)),
        "curve_range": _curve_range(comparison.groups),
        "baseline": comparison.baseline,
        "baseline_words": comparison.baseline_words,
        "study": study_figure(comparison),
        "groups": [
            {**_group(group, colour), "is_baseline": index == position}
            for index, (group, colour, position) in enumerate(
                zip(comparison.groups, colours(comparison), comparison.baselines, strict=True)
            )
        ],
        "heat_map": heat_map(comparison),
    }


def _curve_range(groups):
    """Returns the losses [low, high] worth seeing first: without the fall in the first tenth of the steps."""
    lows, highs = [], []
    for curve in (group.curve for group in groups if group.curve):
        late = [
            (mean - (half or 0.0), mean + (half or 0.0))
            for step, mean, half in zip(curve.steps, curve.mean, curve.half_width, strict=True)
            if step >= curve.steps[-1] / 10
        ]
        lows.append(min(low for low, _ in late))
        highs.append(max(high for _, high in late))
    if not lows:
        return None
    room = 0.05 * (max(highs) - min(lows)) or 0.05
    return [min(lows) - room, max(highs) + room]


def _group(group, colour):
    gap, curve = group.against, group.curve
    return {
        "label": group.label,
        "colour": colour,
        "mean": group.summary.mean,
        "half_width": group.summary.half_width,
        "seeds": len(group.values),
        "parameters": group.parameters,
        "flops": group.flops,
        "difference": gap and gap.value,
        "difference_half_width": gap and gap.half_width,
        "reading": group.reading,
        "curve": curve and {"steps": curve.steps, "mean": curve.mean, "half_width": curve.half_width},
    }
