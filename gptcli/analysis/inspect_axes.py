"""What the figures of an inspection share: colours, labels of depths and of logarithmic axes."""

import math

INITIAL, CHECKPOINT = "#9a9a9a", "#0072B2"
ATTENTION, FEED_FORWARD, BLOCK = "#D55E00", "#009E73", "#444444"
NORMAL_95 = 1.96  # standard errors to either side of a 95 % interval


def moments_of(facts):
    """Returns (key, words) of the two moments that are compared."""
    return [("initial", "at initialization"), ("checkpoint", f"at step {facts['step']:,}")]


def layer_colours(layers):
    """Yields (layer, colour): blocks from light to dark by depth, what lies around them in grey and black."""
    from matplotlib import colormaps

    blocks = [layer for layer in layers if layer.startswith("block_")]
    for layer in layers:
        if layer in blocks:
            share = blocks.index(layer) / max(1, len(blocks) - 1)
            yield layer, colormaps["plasma"](0.1 + 0.75 * share)
        else:
            yield layer, "0.6" if layer == "embeddings" else "black"


def label_depths(axes, depths, words):
    """Labels the depths across; a wide range of positive values gets a logarithmic axis."""
    axes.set_xticks(range(len(depths)), [depth.replace("_", " ") for depth in depths], fontsize=9)
    if len(depths) > 8:
        axes.tick_params(axis="x", rotation=60)
    axes.set_title(words, loc="left", fontsize=10)
    values = [v for line in axes.lines for v in line.get_ydata() if isinstance(v, float) and v > 0]
    if values and max(values) > 30 * min(values):
        axes.set_yscale("log")
        label_plainly(axes)
    axes.margins(x=0.08)
    open_axes(axes)


def label_training(axes, words):
    """Labels curves over the steps of a run."""
    axes.set_yscale("log")
    label_plainly(axes)
    axes.set_xlabel("step")
    axes.set_title(words, loc="left", fontsize=10)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    open_axes(axes)


def label_plainly(axes):
    """Labels a logarithmic axis 0.2, 0.5, 1, 2, ... instead of with powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axes.get_ylim()
    subs = (1, 2, 5) if high < 300 * low else (1,)
    axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def open_axes(axes):
    """Removes the frame above and on the right."""
    axes.spines[["top", "right"]].set_visible(False)


def or_nan(value):
    """Returns a number that matplotlib leaves out where there is none."""
    return math.nan if value is None else value
