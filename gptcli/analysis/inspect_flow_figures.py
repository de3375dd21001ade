"""Gradients and activations of an inspection drawn: by layer, by depth and through training."""

import math

from gptcli.analysis.inspect_axes import (
    ATTENTION,
    CHECKPOINT,
    FEED_FORWARD,
    INITIAL,
    label_depths,
    label_training,
    layer_colours,
    moments_of,
    or_nan,
)
from gptcli.analysis.inspect_tables import layer_norm

_GROUPS = (
    *("token", "position"),
    *("query", "key", "value", "projection", "expand", "contract", "extra"),
    *("norm", "lm_head"),
)


def gradients_size(facts):
    """Returns the inches of draw_gradients."""
    return 13.0, 1.7 + 0.34 * len(facts["gradient_norm"]["checkpoint"]) + (3.2 if facts["training"] else 0.0)


def draw_gradients(figure, facts):
    """Draws gradient norms by layer and group before and after training, and on the way if known."""
    from matplotlib.colors import LogNorm

    norms = facts["gradient_norm"]
    layers = list(norms["checkpoint"])
    groups = [group for group in _GROUPS if any(group in norms["checkpoint"][layer] for layer in layers)]
    values = [n for when in norms.values() for layer in when.values() for n in layer.values() if n]
    most = max(values, default=1.0)
    scale = LogNorm(min([*values, most / 10]), most)  # at least a decade, or noise would look like structure
    tables = figure
    if facts["training"]:
        height = gradients_size(facts)[1]
        tables, below = figure.subfigures(2, 1, height_ratios=[height - 3.2, 3.2])
        _norms_through_training(below.subplots(), facts)
    grid = tables.subplots(1, 2, sharey=True)
    for axes, (when, words) in zip(grid, moments_of(facts), strict=True):
        image = _norm_table(axes, norms[when], layers, groups, scale)
        axes.set_title(f"Gradient norm {words}", loc="left", fontsize=10)
    bar = tables.colorbar(image, ax=grid, pad=0.01, aspect=14)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8)


def _norm_table(axes, norms, layers, groups, scale):
    cells = [[norms[layer].get(group) or math.nan for group in groups] for layer in layers]
    axes.set_facecolor("#f4f4f4")
    image = axes.imshow(cells, cmap="viridis", norm=scale, aspect="auto")
    for y, row in enumerate(cells):
        for x, value in enumerate(row):
            if not math.isnan(value):
                colour = "white" if image.norm(value) < 0.6 else "black"
                axes.text(x, y, f"{value:.2g}", ha="center", va="center", fontsize=7.5, color=colour)
    words = [group.replace("lm_head", "LM head").replace("_", " ") for group in groups]
    axes.set_xticks(range(len(groups)), words, fontsize=8, rotation=35, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(layers)), [layer.replace("_", " ") for layer in layers], fontsize=9)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return image


def _norms_through_training(axes, facts):
    moments = facts["training"]
    steps = [moment["step"] for moment in moments]
    for layer, colour in layer_colours(list(facts["gradient_norm"]["checkpoint"])):
        norms = [or_nan(layer_norm(moment["gradient_norm"].get(layer))) for moment in moments]
        axes.plot(steps, norms, color=colour, linewidth=1.6, label=layer.replace("_", " "))
    label_training(axes, "Gradient norm by layer through training")


def stream_size(facts):
    """Returns the inches of draw_stream."""
    return 13.0, 3.9 + (3.2 if facts["training"] else 0.0)


def draw_stream(figure, facts):
    """Draws the scale of the residual stream and of its parts by depth, and the share of dead units."""
    row = figure
    if facts["training"]:
        row, below = figure.subfigures(2, 1, height_ratios=[3.9, 3.2])
        _scale_through_training(below.subplots(), facts)
    contributions = any("/" in place for place in facts["residual_rms"]["checkpoint"])
    dead = bool(facts["dead_relu_share"]["checkpoint"])
    panels = iter(row.subplots(1, 1 + contributions + dead, squeeze=False)[0])
    _stream_by_depth(next(panels), facts)
    if contributions:
        _contributions(next(panels), facts)
    if dead:
        _dead_units(next(panels), facts)


def _stream_by_depth(axes, facts):
    depths = [place for place in facts["residual_rms"]["checkpoint"] if "/" not in place]
    for (when, words), colour in zip(moments_of(facts), (INITIAL, CHECKPOINT), strict=True):
        scales = [or_nan(facts["residual_rms"][when][depth]) for depth in depths]
        axes.plot(range(len(depths)), scales, "o-", color=colour, label=words)
    label_depths(axes, depths, "Scale of the residual stream (root mean square)")
    axes.set_ylim(bottom=0 if axes.get_yscale() == "linear" else None)
    axes.legend(frameon=False, fontsize=9)


def _contributions(axes, facts):
    kinds = {"attention": ATTENTION, "feed_forward": FEED_FORWARD}
    blocks = [
        place for place in facts["residual_rms"]["checkpoint"] if place.count("_") == 1 and "/" not in place
    ]
    for kind, colour in kinds.items():
        for (when, words), style in zip(moments_of(facts), ("o--", "o-"), strict=True):
            scales = [or_nan(facts["residual_rms"][when].get(f"{block}/{kind}")) for block in blocks]
            if not all(map(math.isnan, scales)):
                axes.plot(
                    range(len(blocks)),
                    scales,
                    style,
                    color=colour,
                    alpha=0.45 if when == "initial" else 1.0,
                    label=f"{kind.replace('_', '-')} {words}",
                )
    label_depths(axes, blocks, "What sub-layers put out (root mean square)")
    if axes.get_yscale() == "linear":
        axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.1))


def _dead_units(axes, facts):
    shares = facts["dead_relu_share"]
    blocks = list(shares["checkpoint"])
    for offset, (when, words), colour in zip(
        (-0.2, 0.2), moments_of(facts), (INITIAL, CHECKPOINT), strict=True
    ):
        heights = [100 * shares[when][block] for block in blocks]
        bars = axes.bar(
            [place + offset for place in range(len(blocks))], heights, 0.38, color=colour, label=words
        )
        axes.bar_label(bars, fmt="%.1f", fontsize=8, padding=1)
    label_depths(axes, blocks, "ReLU units that are never active (%)")
    axes.set_ylim(0, max(1.0, axes.get_ylim()[1] * 1.25))
    axes.legend(frameon=False, fontsize=8)


def _scale_through_training(axes, facts):
    depths = [place for place in facts["residual_rms"]["checkpoint"] if "/" not in place]
    moments = facts["training"]
    for depth, colour in layer_colours(depths):
        scales = [or_nan(moment["residual_rms"].get(depth)) for moment in moments]
        label = f"after {depth.replace('_', ' ')}"
        axes.plot([moment["step"] for moment in moments], scales, color=colour, linewidth=1.6, label=label)
    label_training(axes, "Scale of the residual stream through training")
