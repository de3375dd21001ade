"""Learning curves and the step at which they reach a level, on figures worked out by hand."""

import json
import math

import pytest

from gptcli.analysis.curves import Curve, by_seed, default_metric, finite, mean_curve, steps_to_reach

T_1 = 12.706205  # two-sided 95 % point of Student's t with one degree of freedom, from printed tables


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), "2.0", True])
def test_only_finite_numbers_are_losses(value):
    assert finite(value) is None


def test_mean_curve_and_band(make_run):
    # The fixture's curves fall by 0.25 per 250 steps to the loss: 2.0 and 2.2, whose mean is 2.1.
    curve = mean_curve([make_run(seed=1, loss=2.0), make_run(seed=2, loss=2.2)], "val_loss")
    assert curve.steps == (250, 500, 750, 1000)
    assert curve.mean == pytest.approx((2.85, 2.6, 2.35, 2.1))
    assert curve.half_width == pytest.approx([T_1 * 0.2 / math.sqrt(2) / math.sqrt(2)] * 4, rel=1e-6)


def test_curve_keeps_the_steps_that_all_runs_have(make_run):
    full, short = make_run(seed=1), make_run(seed=2)
    records = [
        {"step": 500, "val_loss": 3.0},
        {"step": 600, "val_loss": None},
        {"step": 700, "batch_loss": 1.0},
    ]
    (short.path / "metrics.jsonl").write_text(
        "".join(f"{json.dumps(one)}\n" for one in records) + "{half a rec"
    )
    assert mean_curve([full, short], "val_loss").steps == (500,)


def test_no_curve_without_metrics(make_run):
    run = make_run()
    (run.path / "metrics.jsonl").unlink()
    assert mean_curve([run], "val_loss") is None


@pytest.mark.parametrize(
    ("level", "expected"), [(3.5, 0.0), (3.0, 0.0), (2.5, 50.0), (2.0, 100.0), (1.75, 150.0), (1.0, None)]
)
def test_steps_to_reach(level, expected):
    curve = Curve((0, 100, 200, 300), (3.0, 2.0, 1.5, 1.8), (None,) * 4)
    assert steps_to_reach(curve, level) == expected


def test_runs_of_one_seed_count_once(make_run):
    runs = [make_run(seed=1, loss=2.0), make_run(seed=1, loss=3.0), make_run(seed=2, val_loss=None)]
    assert by_seed(runs, lambda run: run.info["val_loss"]) == {1: 2.5}


def test_the_whole_split_is_compared_when_all_have_it(make_run):
    runs = [make_run(seed=1), make_run(seed=2)]
    assert default_metric(runs) == "full_val_loss"
    assert default_metric([*runs, make_run(seed=3, full_val_loss=None)]) == "val_loss"
