"""Attention drawn: every head's weights on a text, and its habits against those of an even spread."""

import math

from gptcli.analysis.attention_maps import MEASURES, SHARES
from gptcli.terminal import printable

_MEASURE_WORDS = {
    "entropy": "entropy\n(nats)",
    "relative_entropy": "entropy\nof even",
    "distance": "distance\n(characters)",
    "itself": "on itself",
    "previous": "on the\nprevious",
    "same_character": "on the same\ncharacter",
    "line_start": "on a line's\nstart",
    "space": "on spaces",
    "colon": "on colons",
}
_VISIBLE = {"\n": "↵", " ": "␣", "\t": "⇥", "\r": "␍"}
_MOST_INCHES = 5.2  # of one map
_RATIO = 8  # times as much or as little as an even spread reaches the ends of the colours


def maps_size(facts):
    """Returns the inches of draw_maps, or None without attention."""
    if not facts["attention"]:
        return None
    maps = facts["attention"]["maps"]
    inches = _map_inches(facts)
    return len(maps[0]) * (inches + 0.35) + 1.0, len(maps) * (inches + 0.55) + 1.0


def _map_inches(facts):
    characters, heads = len(facts["attention"]["text"]["characters"]), facts["num_heads"]
    return min(_MOST_INCHES, max(0.26 * characters, min(3.6, 9.0 / heads), 1.2))


def draw_maps(figure, facts):
    """Draws every head's weights: blocks downwards, heads across; in a map queries down, keys across."""
    from matplotlib.colors import PowerNorm

    attention = facts["attention"]
    maps, text = attention["maps"], attention["text"]
    labels = [visible(character) for character in text["characters"]]
    worth = {(part["block"], part["head"]): part["difference"] for part in facts["ablation"]}
    grid = figure.subplots(len(maps), len(maps[0]), squeeze=False)
    # The square root of a weight as its shade: a wide spread stays visible beside a sharp peak.
    norm = PowerNorm(0.5, 0, 1)
    inches = _map_inches(facts)
    size = max(9.0, 2.8 * inches)  # of the titles' letters: a larger map is looked at from further away
    for block, of_block in enumerate(maps, start=1):
        for head, weights in enumerate(of_block, start=1):
            axes = grid[block - 1][head - 1]
            image = _map(axes, weights, labels, norm, inches)
            axes.set_title(f"block {block}, head {head}", loc="left", fontsize=size, fontweight="bold", pad=4)
            if worth.get((block, head)) is not None:
                value = f"{worth[block, head]:+.3f}"
                axes.set_title(value, loc="right", fontsize=size - 1, color="0.35", pad=4)
    bar = figure.colorbar(image, ax=grid, shrink=min(1.0, 2.5 / len(maps)), aspect=18, pad=0.015)
    bar.set_ticks([0, 0.05, 0.25, 0.5, 1])
    bar.ax.tick_params(labelsize=size - 1)
    bar.outline.set_visible(False)
    figure.suptitle(
        f"Attention: each row looks back at its columns ({_plain(text['source'])})\n"
        "right of the titles: the loss without the head, minus the loss",
        fontsize=size,
        x=0.01,
        ha="left",
    )


def _map(axes, weights, labels, norm, inches):
    length = len(labels)
    cells = [[*row[: query + 1], *[math.nan] * (length - query - 1)] for query, row in enumerate(weights)]
    axes.set_facecolor("#f4f4f4")
    image = axes.imshow(cells, cmap="Blues", norm=norm, interpolation="nearest")
    size = min(9.0, 0.72 * 72 * inches / length)
    font = {"fontfamily": "DejaVu Sans Mono", "fontsize": size}
    axes.set_xticks(range(length), labels, **font)
    axes.set_yticks(range(length), labels, **font)
    axes.tick_params(length=0, pad=2)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if length <= 32:
        edges = [place + 0.5 for place in range(length - 1)]
        axes.set_xticks(edges, minor=True)
        axes.set_yticks(edges, minor=True)
        axes.grid(which="minor", color="white", linewidth=0.6)
        axes.tick_params(which="minor", length=0)
    return image


def measures_size(facts):
    """Returns the inches of draw_measures, or None without attention."""
    if not facts["attention"]:
        return None
    return 11.0, 1.7 + 0.3 * (1 + len(facts["attention"]["heads"]))


def draw_measures(figure, facts):
    """Draws the heads' measures as a table whose shades tell how far each is from an even spread."""
    from matplotlib.colors import Normalize

    heads, uniform = facts["attention"]["heads"], facts["attention"]["uniform"]
    rows = [uniform, *heads]
    cells = [[_ratio(row, uniform, name) for name in MEASURES] for row in rows]
    axes = figure.subplots()
    axes.set_facecolor("#f4f4f4")
    limit = math.log2(_RATIO)
    image = axes.imshow(cells, cmap="RdBu_r", norm=Normalize(-limit, limit), aspect="auto")
    for y, row in enumerate(rows):
        for x, name in enumerate(MEASURES):
            strong = not math.isnan(cells[y][x]) and abs(cells[y][x]) > 0.62 * limit
            colour = "white" if strong else "0.15"
            axes.text(x, y, _measure_text(row, name), ha="center", va="center", fontsize=9, color=colour)
    axes.set_xticks(range(len(MEASURES)), [_MEASURE_WORDS[name] for name in MEASURES], fontsize=9)
    names = ["even", *(f"block {row['block']}, head {row['head']}" for row in heads)]
    axes.set_yticks(range(len(rows)), names)
    axes.tick_params(length=0, labelsize=9)
    axes.xaxis.tick_top()
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.axhline(0.5, color="white", linewidth=3)
    ticks = [-limit, -limit / 3, 0, limit / 3, limit]
    bar = figure.colorbar(image, ax=axes, ticks=ticks, pad=0.015, aspect=14)
    bar.ax.set_yticklabels([f"{2**tick:.3g} ×" for tick in ticks], fontsize=8)
    bar.outline.set_visible(False)
    figure.suptitle(
        "What the heads attend to, on average; shades: how many times as much as an evenly spread head",
        fontsize=10,
        x=0.01,
        ha="left",
    )


def _ratio(row, uniform, name):
    """Returns log2 of a measure against the even spread's, NaN where there is none."""
    value, even = row[name], uniform[name]
    if value is None or not even:
        return math.nan
    return math.log2(max(value / even, 1 / _RATIO))


def _measure_text(row, name):
    if row[name] is None:
        return "–"
    return f"{100 * row[name]:.0f} %" if name in SHARES or name == "relative_entropy" else f"{row[name]:.2f}"


def visible(character):
    """Returns a character as a tick label: newline and space can be seen, controls are escaped."""
    return _VISIBLE.get(character) or _plain(character)


def _plain(text):
    # A dollar sign would start mathematics in matplotlib.
    return printable(text).replace("$", r"\$")
