"""What changes with depth, drawn: what each part is worth, gradients, the residual stream, the prediction."""

import math

from gptcli.analysis.inspect_tables import layer_norm

INITIAL, CHECKPOINT = "#9a9a9a", "#0072B2"
ATTENTION, FEED_FORWARD, BLOCK = "#D55E00", "#009E73", "#444444"
_KIND_COLOURS = {"head": ATTENTION, "attention": ATTENTION, "feed_forward": FEED_FORWARD, "block": BLOCK}
_GROUPS = (
    *("token", "position"),
    *("query", "key", "value", "projection", "expand", "contract", "extra"),
    *("norm", "lm_head"),
)
_NORMAL_95 = 1.96


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
            half_width = _NORMAL_95 * (part["standard_error"] or 0.0)
            colour = _KIND_COLOURS[part["part"]]
            axes.errorbar(
                _or_nan(part["difference"]),
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
        _open(axes)


def _part_words(part):
    if part["part"] == "head":
        return f"block {part['block']}, head {part['head']}"
    words = {"attention": "attention", "feed_forward": "feed-forward", "block": "all of it"}
    return f"block {part['block']}, {words[part['part']]}"


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
    scale = LogNorm(min(values, default=0.1), max(values, default=1.0))
    tables = figure
    if facts["training"]:
        height = gradients_size(facts)[1]
        tables, below = figure.subfigures(2, 1, height_ratios=[height - 3.2, 3.2])
        _norms_through_training(below.subplots(), facts)
    grid = tables.subplots(1, 2, sharey=True)
    for axes, (when, words) in zip(grid, _moments(facts), strict=True):
        image = _norm_table(axes, norms[when], layers, groups, scale)
        axes.set_title(f"Gradient norm {words}", loc="left", fontsize=10)
    bar = tables.colorbar(image, ax=grid, pad=0.01, aspect=14)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8)


def _moments(facts):
    return [("initial", "at initialization"), ("checkpoint", f"at step {facts['step']:,}")]


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
    initial = {"step": 0, "gradient_norm": facts["gradient_norm"]["initial"]}
    moments = [initial, *facts["training"]]
    steps = [moment["step"] for moment in moments]
    for layer, colour in _layer_colours(list(facts["gradient_norm"]["checkpoint"])):
        norms = [_or_nan(layer_norm(moment["gradient_norm"].get(layer))) for moment in moments]
        axes.plot(steps, norms, color=colour, linewidth=1.6, label=layer.replace("_", " "))
    _through_training(axes, "Gradient norm by layer through training")


def _through_training(axes, words):
    axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_title(words, loc="left", fontsize=10)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    _open(axes)


def _layer_colours(layers):
    """Yields (layer, colour): blocks from light to dark by depth, what lies around them in grey and black."""
    from matplotlib import colormaps

    blocks = [layer for layer in layers if layer.startswith("block_")]
    for layer in layers:
        if layer in blocks:
            share = blocks.index(layer) / max(1, len(blocks) - 1)
            yield layer, colormaps["plasma"](0.1 + 0.75 * share)
        else:
            yield layer, "0.6" if layer == "embeddings" else "black"


def stream_size(facts):
    """Returns the inches of draw_stream."""
    return 13.0, 3.6 + (3.2 if facts["training"] else 0.0)


def draw_stream(figure, facts):
    """Draws the scale of the residual stream and of its parts by depth, and the share of dead units."""
    row = figure
    if facts["training"]:
        row, below = figure.subfigures(2, 1, height_ratios=[3.6, 3.2])
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
    for (when, words), colour in zip(_moments(facts), (INITIAL, CHECKPOINT), strict=True):
        scales = [_or_nan(facts["residual_rms"][when][depth]) for depth in depths]
        axes.plot(range(len(depths)), scales, "o-", color=colour, label=words)
    _by_depth(axes, depths, "Scale of the residual stream (root mean square)")
    axes.legend(frameon=False, fontsize=9)


def _contributions(axes, facts):
    kinds = {"attention": ATTENTION, "feed_forward": FEED_FORWARD}
    blocks = [
        place for place in facts["residual_rms"]["checkpoint"] if place.count("_") == 1 and "/" not in place
    ]
    for kind, colour in kinds.items():
        for (when, words), style in zip(_moments(facts), ("o--", "o-"), strict=True):
            scales = [_or_nan(facts["residual_rms"][when].get(f"{block}/{kind}")) for block in blocks]
            if not all(map(math.isnan, scales)):
                axes.plot(
                    range(len(blocks)),
                    scales,
                    style,
                    color=colour,
                    alpha=0.45 if when == "initial" else 1.0,
                    label=f"{kind.replace('_', '-')} {words}",
                )
    _by_depth(axes, blocks, "What sub-layers put out (root mean square)")
    axes.legend(frameon=False, fontsize=8)


def _dead_units(axes, facts):
    shares = facts["dead_relu_share"]
    blocks = list(shares["checkpoint"])
    for offset, (when, words), colour in zip(
        (-0.2, 0.2), _moments(facts), (INITIAL, CHECKPOINT), strict=True
    ):
        heights = [100 * shares[when][block] for block in blocks]
        bars = axes.bar(
            [place + offset for place in range(len(blocks))], heights, 0.38, color=colour, label=words
        )
        axes.bar_label(bars, fmt="%.1f", fontsize=8, padding=1)
    _by_depth(axes, blocks, "ReLU units that are never active (%)")
    axes.set_ylim(0, max(1.0, axes.get_ylim()[1] * 1.25))
    axes.legend(frameon=False, fontsize=8)


def _scale_through_training(axes, facts):
    depths = [place for place in facts["residual_rms"]["checkpoint"] if "/" not in place]
    moments = facts["training"]
    for depth, colour in _layer_colours(depths):
        scales = [_or_nan(moment["residual_rms"].get(depth)) for moment in moments]
        label = f"after {depth.replace('_', ' ')}"
        axes.plot([moment["step"] for moment in moments], scales, color=colour, linewidth=1.6, label=label)
    _through_training(axes, "Scale of the residual stream through training")


def depth_size(facts):
    """Returns the inches of draw_depth."""
    return 11.0, 3.6


def draw_depth(figure, facts):
    """Draws the loss of a prediction made at each depth, and at each position in the context."""
    left, right = figure.subplots(1, 2)
    depths = facts["loss_by_depth"]
    _losses(left, range(len(depths)), depths)
    _by_depth(left, [depth["after"] for depth in depths], "Loss of the LM head applied after")
    for place, depth in enumerate(depths):
        if depth["loss"] is not None and len(depths) <= 16:
            left.annotate(
                f"{depth['loss']:.3f}", (place, depth["loss"]), (0, 6), textcoords="offset points", fontsize=8
            )
    left.axhline(facts["guessing"], color="0.6", linestyle="--", linewidth=1)
    left.annotate(
        "guessing", (0, facts["guessing"]), (2, 3), textcoords="offset points", fontsize=8, color="0.4"
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
    _open(right)


def _losses(axes, places, losses):
    means = [_or_nan(entry["loss"]) for entry in losses]
    errors = [_NORMAL_95 * (entry["standard_error"] or 0.0) for entry in losses]
    if len(losses) > 32:
        low = [mean - error for mean, error in zip(means, errors, strict=True)]
        high = [mean + error for mean, error in zip(means, errors, strict=True)]
        axes.fill_between(places, low, high, color=CHECKPOINT, alpha=0.2, linewidth=0)
        axes.plot(places, means, color=CHECKPOINT)
    else:
        axes.errorbar(places, means, yerr=errors, fmt="o-", color=CHECKPOINT, capsize=2.5)


def _by_depth(axes, depths, words):
    axes.set_xticks(range(len(depths)), [depth.replace("_", " ") for depth in depths], fontsize=9)
    if len(depths) > 8:
        axes.tick_params(axis="x", rotation=60)
    axes.set_title(words, loc="left", fontsize=10)
    values = [v for line in axes.lines for v in line.get_ydata() if isinstance(v, float) and v > 0]
    if values and max(values) > 30 * min(values):
        axes.set_yscale("log")
    axes.margins(x=0.08)
    _open(axes)


def _open(axes):
    axes.spines[["top", "right"]].set_visible(False)


def _or_nan(value):
    return math.nan if value is None else value
