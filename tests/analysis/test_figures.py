"""What the figures show, and that matplotlib draws it into a PNG that is known again."""

import struct
import sys

import pytest

from gptcli.analysis.compare import compare
from gptcli.analysis.figures import BASELINE_COLOUR, colours, figure_data, heat_map
from gptcli.analysis.output import check_target
from gptcli.analysis.plots import check_library, to_png
from gptcli.errors import UserError


@pytest.fixture
def grid(make_run):
    losses = {(1, 2): 2.5, (1, 10): 2.4, (3, 2): 2.3}
    return compare(
        [
            make_run(
                seed=seed,
                loss=loss + seed / 100,
                changes={"model.num_layers": layers, "model.num_heads": heads},
            )
            for (layers, heads), loss in losses.items()
            for seed in range(2)
        ],
        metric="val_loss",
    )


def test_heat_map_of_two_keys_leaves_missing_cells_empty(grid):
    found = heat_map(grid)
    assert (found["y_name"], found["y"]) == ("num_layers", ["1", "3"])
    assert (found["x_name"], found["x"]) == ("num_heads", ["2", "10"])
    assert found["mean"] == [[pytest.approx(2.505), pytest.approx(2.405)], [pytest.approx(2.305), None]]


def test_no_heat_map_for_one_key(make_run):
    assert heat_map(compare([make_run(stage="4_7"), make_run(stage="4_9")])) is None


def test_every_group_has_its_colour_and_the_baseline_is_grey(make_run):
    runs = [make_run(changes={"model.num_layers": layers}) for layers in range(1, 13)]
    chosen = colours(compare(runs, baseline="num_layers=3"))
    assert chosen[2] == BASELINE_COLOUR and len(set(chosen)) == 12


def test_curves_start_after_the_first_fall(make_run):
    # Losses 2.75 at step 250 down to 2.0: all lie behind the first tenth; 5 % of 0.75 is room on both sides.
    low, high = figure_data(compare([make_run()]))["curve_range"]
    assert (low, high) == (pytest.approx(2.0 - 0.0375), pytest.approx(2.75 + 0.0375))


def test_png_is_drawn_and_may_be_replaced(grid, tmp_path):
    data = to_png(grid)
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    # Two rows: differences and curves, FLOPs and the heat map; all runs have the same number of parameters.
    assert (width, height) == (1800, 1380)
    path = tmp_path / "a.png"
    path.write_bytes(data)
    check_target(path, "--png")


@pytest.mark.parametrize("stage", ["$x^", "\\frac{", "<b>", "\x1b[0m", "日本語"])
def test_png_takes_any_name(make_run, stage):
    assert to_png(compare([make_run(stage=stage), make_run()])).startswith(b"\x89PNG")


def test_missing_matplotlib_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"needs matplotlib.*gptcli\[plots\]"):
        check_library()
