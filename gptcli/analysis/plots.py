"""The figures of a comparison drawn by matplotlib into one PNG."""

import importlib.util
import io
import warnings

from gptcli.analysis.figures import figure_data
from gptcli.analysis.output import MARK
from gptcli.analysis.study_plot import draw_study
from gptcli.errors import UserError
from gptcli.terminal import printable

_MANY_LABELS = 14


def check_library():
    """Raises UserError when matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError("--png needs matplotlib; install it with: pip install 'gptcli[plots]'")


def to_png(comparison):
    """Returns the figures of a comparison as the bytes of a PNG; of a study, the one that answers its question."""
    # Figure and its Agg canvas, not pyplot: no window system and no state shared with a caller is touched.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    data = figure_data(comparison)
    if study := data["study"]:
        size = (3.2 + 2.8 * len(study["panels"]), 3.6)
        figure = Figure(figsize=size, dpi=110, layout="constrained")
        FigureCanvasAgg(figure)
        draw_study(study, data["metric"], figure)
        return _png(figure)
    panels = [
        panel
        for panel in (_differences, _curves, _against_parameters, _against_flops, _heat_map)
        if panel(data)
    ]
    rows = (len(panels) + 1) // 2
    figure = Figure(figsize=(12, 4.6 * rows), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(rows, 2)
    for index, panel in enumerate(panels):
        alone = index == len(panels) - 1 and len(panels) % 2 == 1
        axes = figure.add_subplot(grid[index // 2, :] if alone else grid[index // 2, index % 2])
        panel(data, axes)
        axes.spines[["top", "right"]].set_visible(False)
    return _png(figure)


def _png(figure):
    file = io.BytesIO()
    with warnings.catch_warnings():
        # A symbol that the font lacks is drawn as a box, which says enough.
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(file, format="png", metadata={"Software": MARK})
    return file.getvalue()


def _text(value):
    # A dollar sign would start mathematics in matplotlib.
    return printable(value).replace("$", r"\$")


def _differences(data, axes=None):
    """Every group's difference to the baseline; without axes, whether there is anything to draw."""
    groups = [group for group in data["groups"] if group["difference"] is not None]
    if axes is None:
        return bool(groups)
    for position, group in enumerate(groups):
        axes.errorbar(
            group["difference"],
            position,
            xerr=group["difference_half_width"],
            fmt="o",
            color=group["colour"],
            capsize=3,
        )
    axes.axvline(0, color="0.6", linewidth=1, linestyle="--")
    axes.set_yticks(range(len(groups)), [_text(group["label"]) for group in groups])
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.set_xlabel("difference (nats), 95 % interval; left is better")
    axes.set_title(_text(f"Against {data['baseline_words']}"), loc="left")
    return True


def _curves(data, axes=None):
    groups = [group for group in data["groups"] if group["curve"]]
    if axes is None:
        return bool(groups)
    for group in groups:
        curve = group["curve"]
        axes.plot(
            curve["steps"], curve["mean"], color=group["colour"], linewidth=1.6, label=_text(group["label"])
        )
        if None not in curve["half_width"]:
            low, high = zip(
                *((m - h, m + h) for m, h in zip(curve["mean"], curve["half_width"], strict=True)),
                strict=True,
            )
            axes.fill_between(curve["steps"], low, high, color=group["colour"], alpha=0.18, linewidth=0)
    axes.set_xlabel("step")
    axes.set_ylim(data["curve_range"])
    axes.set_ylabel(f"{data['curve']} (nats)")
    axes.set_title("Learning curves, mean and 95 % band", loc="left")
    axes.legend(frameon=False, fontsize="small", ncols=1 + (len(groups) > 8), loc="upper right")
    return True


def _against_parameters(data, axes=None):
    return _scatter(data, axes, "parameters", "parameters")


def _against_flops(data, axes=None):
    return _scatter(data, axes, "flops", "training FLOPs")


def _scatter(data, axes, key, words):
    groups = [group for group in data["groups"] if group[key]]
    if axes is None:
        return len({group[key] for group in groups}) > 1
    for group in groups:
        axes.errorbar(
            group[key], group["mean"], yerr=group["half_width"], fmt="o", color=group["colour"], capsize=3
        )
        if len(groups) <= _MANY_LABELS:
            axes.annotate(
                _text(group["label"]),
                (group[key], group["mean"]),
                xytext=(6, 5),
                textcoords="offset points",
                fontsize=8,
            )
    sizes = [group[key] for group in groups]
    if max(sizes) > 4 * min(sizes):
        axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.set_xlabel(words)
    axes.set_ylabel(f"{data['metric']} (nats)")
    axes.set_title(f"Loss against {words}", loc="left")
    return True


def _heat_map(data, axes=None):
    found = data["heat_map"]
    if axes is None:
        return found is not None
    cells = [[float("nan") if value is None else value for value in row] for row in found["mean"]]
    image = axes.imshow(cells, cmap="cividis_r", aspect="auto")
    for y, row in enumerate(found["mean"]):
        for x, value in enumerate(row):
            if value is not None:
                shade = "black" if image.norm(value) < 0.5 else "white"
                axes.text(x, y, f"{value:.3f}", ha="center", va="center", color=shade, fontsize=9)
    axes.set_xticks(range(len(found["x"])), [_text(value) for value in found["x"]])
    axes.set_yticks(range(len(found["y"])), [_text(value) for value in found["y"]])
    axes.set_xlabel(_text(found["x_name"]))
    axes.set_ylabel(_text(found["y_name"]))
    axes.set_title(_text(f"Mean {data['metric']}"), loc="left")
    return True
