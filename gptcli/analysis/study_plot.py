"""The figure of a study drawn by matplotlib."""

from gptcli.terminal import printable


def draw_study(data, metric, figure):
    """Draws what study_figure returned into a matplotlib Figure, panels side by side on one scale of losses."""
    panels = data["panels"]
    rows = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, panel in zip(rows, panels, strict=True):
        for series in panel["series"]:
            _draw(axes, series)
        if data["log"]:
            axes.set_xscale("log")
        words = [_text(text) for _, text in data["ticks"]]
        crowded = sum(map(len, words)) > 60 / len(panels)
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


def _draw(axes, series):
    if not series["points"]:
        return
    x, mean, half_width = zip(*series["points"], strict=True)
    widths = None if None in half_width else half_width
    axes.errorbar(
        x,
        mean,
        yerr=widths,
        fmt="o-" if series["joined"] else "o",
        linestyle="--" if widths is None and series["joined"] else None,
        color=series["colour"],
        label=_text(series["label"]),
        capsize=2.5,
        markersize=4,
        linewidth=1.3,
    )


def _text(value):
    # A dollar sign would start mathematics in matplotlib.
    return printable(value).replace("$", r"\$")
