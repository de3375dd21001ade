"""The figure of a study drawn by matplotlib."""

from gptcli.terminal import printable


def draw_study(data, metric, figure):
    """Draws what study_figure returned into a matplotlib Figure, panels side by side on one scale of losses."""
    panels = data["panels"]
    rows = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, panel in zip(rows, panels, strict=True):
        for number, series in enumerate(panel["series"]):
            _draw(axes, series, _beside(data, number - (len(panel["series"]) - 1) / 2))
        if data["log"]:
            axes.set_xscale("log")
        words = [_text(text) for _, text in data["ticks"]]
        crowded = sum(len(word) + 2 for word in words) > 80 / len(panels)
        axes.set_xticks([place for place, _ in data["ticks"]], words, rotation=45 if crowded else 0)
        axes.minorticks_off()
        axes.set_xlabel(_text(data["x_name"]))
        axes.set_title(_text(panel["title"]), loc="left", fontsize=10)
        axes.grid(axis="y", color="0.92")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    rows[0].set_ylabel(f"{metric} (nats)".replace("validation loss over", "validation loss\nover"))
    if len(panels[0]["series"]) > 1:
        rows[-1].legend(frameon=False, fontsize=9)


def _beside(data, number):
    """Returns what moves a position a little aside, so that no interval hides another."""
    places = [place for place, _ in data["ticks"]]
    if data["log"]:
        factor = (max(places) / min(places)) ** (0.008 * number)
        return lambda place: place * factor
    return lambda place: place + 0.008 * number * (max(places) - min(places))


def _draw(axes, series, moved):
    if not series["points"]:
        return
    x, mean, half_width = zip(*series["points"], strict=True)
    widths = None if None in half_width else half_width
    axes.errorbar(
        [moved(place) for place in x],
        mean,
        yerr=widths,
        marker="o",
        linestyle="none" if not series["joined"] else "--" if widths is None else "-",
        color=series["colour"],
        label=_text(series["label"]),
        capsize=2.5,
        markersize=4,
        linewidth=1.3,
    )


def _text(value):
    # A dollar sign would start mathematics in matplotlib.
    return printable(value).replace("$", r"\$")
