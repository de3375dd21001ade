"""An inspection as the terminal shows it."""

import textwrap

from gptcli.terminal import printable, table

_MOST_WORDS = 100  # columns of running text

_HEAD_COLUMNS = {
    "entropy": "entropy",
    "relative_entropy": "of even",
    "distance": "distance",
    "itself": "itself",
    "previous": "previous",
    "same_character": "same",
    "line_start": "line",
    "space": "space",
    "colon": "colon",
}
_COUNTED = ("entropy", "distance")


def terminal_lines(facts, width=None):
    """Returns the lines of an inspection.

    Args:
        facts: what gptcli.analysis.inspection.inspect returned.
        width: columns of the terminal; wider tables are split (default: never).
    """
    lines = _headline(facts)
    if facts["attention"]:
        lines += ["", *_heads(facts, width)]
    if facts["ablation"]:
        lines += ["", *_sublayers(facts, width)]
    lines += ["", *_depths(facts, width), "", _positions(facts["loss_by_position"])]
    return lines


def _headline(facts):
    windows = f"{facts['windows']:,} windows of {facts['block_size']} characters"
    where = f"{windows} ({facts['corpus']}, {facts['split']})"
    lines = [
        f"stage {facts['stage']}  {facts['title']}   {facts['parameters']:,} parameters"
        f"   step {facts['step']:,}",
        f"loss {plus_minus(facts['loss'], facts['standard_error'])} nats on {where}",
    ]
    return [printable(line) for line in lines + [f"note  {note}" for note in facts["notes"]]]


def _heads(facts, width):
    attention = facts["attention"]
    worth = {(part["block"], part["head"]): part for part in facts["ablation"] if part["part"] == "head"}
    rows = []
    for head in attention["heads"]:
        place = (head["block"], head["head"])
        rows.append([f"{place[0]}.{place[1]}", _worth(worth[place]), *_measure_cells(head)])
    rows.append(["even", "-", *_measure_cells(attention["uniform"])])
    explanation = (
        "heads (block.head): what each is worth (the loss without it, minus the loss), the entropy of its"
        " weights in nats and against an even spread, their mean distance in characters, and the share of"
        " them on the place itself, the place before, earlier places with the same character, first"
        " characters of a line, spaces, colons"
    )
    return [*_wrapped(explanation, width), *fitted(rows, ["head", "worth", *_HEAD_COLUMNS.values()], width)]


def _measure_cells(measures):
    for name in _HEAD_COLUMNS:
        value = measures[name]
        yield "-" if value is None else f"{value:.2f}" if name in _COUNTED else f"{100 * value:.0f} %"


def _sublayers(facts, width):
    cells = {}
    for part in facts["ablation"]:
        if part["part"] != "head":
            cells.setdefault(part["block"], {})[part["part"]] = _worth(part)
    kinds = [
        kind for kind in ("attention", "feed_forward", "block") if any(kind in row for row in cells.values())
    ]
    rows = [[f"{number}", *(row.get(kind, "-") for kind in kinds)] for number, row in cells.items()]
    header = ["block", *(kind.replace("_", "-") if kind != "block" else "all of it" for kind in kinds)]
    explanation = "what each block is worth, and each of its sub-layers"
    return [*_wrapped(explanation, width), *fitted(rows, header, width)]


def _depths(facts, width):
    norms, scales, dead = facts["gradient_norm"], facts["residual_rms"], facts["dead_relu_share"]
    losses = {depth["after"]: depth["loss"] for depth in facts["loss_by_depth"]}
    kinds = [kind for kind in ("attention", "feed_forward") if f"block_1/{kind}" in scales["checkpoint"]]
    rows = []
    for layer in dict.fromkeys([*losses, *norms["checkpoint"]]):
        row = [layer.replace("_", " ")]
        row += [_number(layer_norm(norms[when].get(layer))) for when in ("initial", "checkpoint")]
        row += [_number(scales[when].get(layer)) for when in ("initial", "checkpoint")]
        row += [_number(scales["checkpoint"].get(f"{layer}/{kind}")) for kind in kinds]
        share = dead["checkpoint"].get(layer)
        row += ["-" if share is None else f"{100 * share:.1f} %"] if dead["checkpoint"] else []
        rows.append([*row, _number(losses.get(layer), 4)])
    header = ["depth", "gradient 0", "gradient", "stream 0", "stream"]
    header += [kind.replace("_", "-") for kind in kinds]
    header += (["dead ReLU"] if dead["checkpoint"] else []) + ["loss here"]
    explanation = (
        "by depth (0: at initialization): gradient norm, root mean square of the residual stream and of what"
        " each sub-layer puts out, units that are never active, the loss of the LM head applied right there"
    )
    return [*_wrapped(explanation, width), *fitted(rows, header, width)]


def layer_norm(groups):
    """Returns the gradient norm of a layer from those of its groups, or None."""
    if not groups or any(norm is None for norm in groups.values()):
        return None
    return sum(norm * norm for norm in groups.values()) ** 0.5


def _positions(by_position):
    last = len(by_position)
    shown = [place for place in range(1, last + 1) if place & (place - 1) == 0 or place == last]
    losses = [f"{place}: {_number(by_position[place - 1]['loss'])}" for place in shown]
    return f"loss by characters seen  {'  '.join(losses)}"


def fitted(rows, header, width):
    """Yields the lines of a table, cut into several with the same first column where it is too wide."""
    columns = list(range(1, len(header)))
    while columns:
        count = len(columns)
        while count > 1 and width and _width(rows, header, columns[:count]) > width:
            count -= 1
        yield from _part(rows, header, columns[:count])
        columns = columns[count:]


def _part(rows, header, columns):
    chosen = [0, *columns]
    cells = [[row[column] for column in chosen] for row in rows]
    return table(cells, [header[column] for column in chosen], right=range(1, len(chosen)))


def _width(rows, header, columns):
    return max(map(len, _part(rows, header, columns)))


def _wrapped(words, width):
    return textwrap.wrap(words, min(width or _MOST_WORDS, _MOST_WORDS), break_on_hyphens=False)


def _worth(part):
    return plus_minus(part["difference"], part["standard_error"], signed=True)


def plus_minus(value, error, *, signed=False):
    """Returns "2.2410 ± 0.0060", or the value alone where the error is not known."""
    if value is None:
        return "-"
    text = f"{value:+.4f}" if signed else f"{value:.4f}"
    return text if error is None else f"{text} ± {error:.4f}"


def _number(value, decimals=3):
    if value is None:
        return "-"
    return f"{value:.{decimals}f}" if value == 0 or 0.001 <= abs(value) < 10_000 else f"{value:.1e}"
