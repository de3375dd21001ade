"""The figures of an inspection, drawn by matplotlib: one page, or one PNG for each subject."""

import io
import warnings

from gptcli.analysis.inspect_attention_figures import draw_maps, draw_measures, maps_size, measures_size
from gptcli.analysis.inspect_flow_figures import draw_gradients, draw_stream, gradients_size, stream_size
from gptcli.analysis.inspect_loss_figures import depth_size, draw_depth, draw_worth, worth_size
from gptcli.analysis.inspect_output import MARK
from gptcli.terminal import printable

# Name -> (inches (width, height), or None where it does not apply; the function that draws).
_FIGURES = {
    "attention": (maps_size, draw_maps),
    "heads": (measures_size, draw_measures),
    "worth": (worth_size, draw_worth),
    "gradients": (gradients_size, draw_gradients),
    "residual_stream": (stream_size, draw_stream),
    "depth": (depth_size, draw_depth),
}
_TITLE_INCHES = 0.6


def separate_pages(facts):
    """Returns {name: the bytes of a PNG} of every figure that applies to an inspection."""
    pages = {}
    for name, size, draw in _applicable(facts):
        figure = _figure(size)
        draw(figure, facts)
        pages[name] = _png(figure)
    return pages


def one_page(facts):
    """Returns all figures that apply, below each other, as the bytes of one PNG."""
    chosen = _applicable(facts)
    heights = [height for _, (_, height), _ in chosen]
    figure = _figure((max(width for _, (width, _), _ in chosen), sum(heights) + _TITLE_INCHES))
    figure.suptitle(title(facts), fontsize=15, fontweight="bold", x=0.01, ha="left")
    panels = figure.subfigures(len(chosen), 1, height_ratios=heights, squeeze=False)[:, 0]
    for panel, (_, _, draw) in zip(panels, chosen, strict=True):
        draw(panel, facts)
    return _png(figure)


def title(facts):
    """Returns what the page shows in one line; a dollar sign would start mathematics."""
    loss = "unknown" if facts["loss"] is None else f"{facts['loss']:.4f} nats"
    text = f"Stage {facts['stage']}  {facts['title']}   step {facts['step']:,}   {facts['split']} loss {loss}"
    return printable(text).replace("$", r"\$")


def _applicable(facts):
    sized = [(name, size(facts), draw) for name, (size, draw) in _FIGURES.items()]
    return [(name, size, draw) for name, size, draw in sized if size is not None]


def _figure(size):
    # Figure and its Agg canvas, not pyplot: no window system and no state shared with a caller is touched.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _png(figure):
    file = io.BytesIO()
    with warnings.catch_warnings():
        # A symbol that the font lacks is drawn as a box, which says enough.
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(file, format="png", metadata={"Software": MARK})
    return file.getvalue()
