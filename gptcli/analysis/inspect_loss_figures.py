"""Losses of an inspection drawn: what each part is worth, the prediction by depth, the loss by position."""

from gptcli.analysis.inspect_axes import (
    ATTENTION,
    BLOCK,
    CHECKPOINT,
    FEED_FORWARD,
    NORMAL_95,
    label_depths,
    open_axes,
    or_nan,
)

_KIND_COLOURS = {"head": ATTENTION, "attention": ATTENTION, "feed_forward": FEED_FORWARD, "block": BLOCK}


def worth_size(facts):
    """Returns the inches of draw_worth, or None when there is nothing to silence."""
    if not facts["ablation"]:
        return None
    counts = [len(parts) for parts in _worth_panels(facts) if parts]
    return 11.0, 1.6 + 0.24 * max(counts)


def _worth_panels(facts):
    heads = [part for part in facts["ablation"] if part["part"] == "head"]
    return heads, [part for part in facts["ablation"] if part["part"] != "head"]


def draw_worth(figure, facts):
    """Draws how much the loss rises when a part is silenced, with 95 % intervals."""
    panels = [parts for parts in _worth_panels(facts) if parts]
    for axes, parts in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for place, part in enumerate(parts):
            half_width = NORMAL_95 * (part["standard_error"] or 0.0)
            colour = _KIND_COLOURS[part["part"]]
            axes.errorbar(
                or_nan(part["difference"]),
                place,
                xerr=half_width,
                fmt="o",
                color=colour,
                capsize=2.5,
                markersize=5,
            )
            if part["block"] % 2 == 0:
                axes.axhspan(place - 0.5, place + 0.5, color="0.95", zorder=0, linewidth=0)
        axes.axvline(0, color="0.6", linewidth=1, linestyle="--", zorder=1)
        axes.set_yticks(range(len(parts)), [_part_words(part) for part in parts], fontsize=9)
        axes.set_ylim(len(parts) - 0.5, -0.5)
        axes.set_xlabel("loss without it, minus the loss (nats), 95 % interval")
        kind = "a head" if parts[0]["part"] == "head" else "a sub-layer or block"
        axes.set_title(f"What {kind} is worth", loc="left", fontsize=10)
        open_axes(axes)


def _part_words(part):
    if part["part"] == "head":
        return f"block {part['block']}, head {part['head']}"
    words = {"attention": "attention", "feed_forward": "feed-forward", "block": "all of it"}
    return f"block {part['block']}, {words[part['part']]}"


def depth_size(facts):
    """Returns the inches of draw_depth."""
    return 11.0, 3.6


def draw_depth(figure, facts):
    """Draws the loss of a prediction made at each depth, and at each position in the context."""
    left, right = figure.subplots(1, 2)
    depths = facts["loss_by_depth"]
    _losses(left, range(len(depths)), depths)
    label_depths(left, [depth["after"] for depth in depths], "Loss of the LM head applied after (nats)")
    for place, depth in enumerate(depths):
        if depth["loss"] is not None and len(depths) <= 16:
            left.annotate(
                f"{depth['loss']:.3f}", (place, depth["loss"]), (0, 6), textcoords="offset points", fontsize=8
            )
    left.axhline(facts["guessing"], color="0.6", linestyle="--", linewidth=1)
    left.annotate(
        "guessing",
        (1, facts["guessing"]),
        (-2, 3),
        ("axes fraction", "data"),
        "offset points",
        fontsize=8,
        color="0.4",
        ha="right",
    )
    left.margins(y=0.15)
    positions = facts["loss_by_position"]
    _losses(right, range(1, len(positions) + 1), positions)
    right.set_xlabel("characters seen")
    right.set_title("Loss by position in the context (nats), 95 % interval", loc="left", fontsize=10)
    if len(positions) > 32:
        right.set_xscale("log", base=2)
        right.xaxis.set_major_formatter("{x:.0f}")
    else:
        right.set_xticks(range(1, len(positions) + 1))
    open_axes(right)


def _losses(axes, places, losses):
    means = [or_nan(entry["loss"]) for entry in losses]
    errors = [NORMAL_95 * (entry["standard_error"] or 0.0) for entry in losses]
    if len(losses) > 32:
        low = [mean - error for mean, error in zip(means, errors, strict=True)]
        high = [mean + error for mean, error in zip(means, errors, strict=True)]
        axes.fill_between(places, low, high, color=CHECKPOINT, alpha=0.2, linewidth=0)
        axes.plot(places, means, color=CHECKPOINT)
    else:
        axes.errorbar(places, means, yerr=errors, fmt="o-", color=CHECKPOINT, capsize=2.5)
