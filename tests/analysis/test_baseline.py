"""Which group each group is compared with."""

import pytest

from gptcli.analysis.baseline import find_baselines
from gptcli.analysis.compare import compare
from gptcli.analysis.grouping import group_runs
from gptcli.errors import UserError

# The groups in their order: layers 1 with 2 and 4 heads, then layers 3 with 2 and 4 heads.
CELLS = [(1, 2), (1, 4), (3, 2), (3, 4)]


def runs_of(make_run, cells, **more):
    return [make_run(changes={"model.num_layers": layers, "model.num_heads": heads}, **more) for layers, heads in cells]


@pytest.fixture
def grid(make_run):
    return group_runs(runs_of(make_run, CELLS))


@pytest.mark.parametrize(
    ("wanted", "position", "words"),
    [
        (None, 0, "num_layers=1 num_heads=2"),
        ("num_layers=3 num_heads=2", 2, "num_layers=3 num_heads=2"),
        ("num_heads=4,num_layers=1", 1, "num_layers=1 num_heads=4"),
        ("model.num_heads=4,num_layers=3", 3, "num_layers=3 num_heads=4"),
    ],
)
def test_one_group_for_all(grid, wanted, position, words):
    found = find_baselines(grid, wanted)
    assert found.positions == (position,) * 4 and found.words == words


@pytest.mark.parametrize(
    ("wanted", "positions", "words"),
    [
        ("num_heads=4", (1, 1, 3, 3), "num_heads=4 at the same num_layers"),
        ("num_layers=1", (0, 1, 0, 1), "num_layers=1 at the same num_heads"),
        ("4", (1, 1, 3, 3), "4 at the same num_layers"),
        ("previous", (0, 0, 1, 2), "the one before"),
    ],
)
def test_one_group_for_each_value_of_the_other_setting(grid, wanted, positions, words):
    found = find_baselines(grid, wanted)
    assert found.positions == positions and found.words == words


def test_a_value_of_the_only_setting(make_run):
    grouping = group_runs([make_run(stage=stage) for stage in ("4_7", "4_9")])
    assert find_baselines(grouping, "4_9").positions == find_baselines(grouping, "stage=4_9").positions == (1, 1)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("5_11", "is not one of the groups: num_layers=1 num_heads=2, "),
        ("heads=4", "is not one of"),
        ("num_heads=8", "is not one of"),
        ("", "is not one of"),
        ("=", "is not one of"),
    ],
)
def test_what_fits_no_group_is_refused(grid, wanted, words):
    with pytest.raises(UserError, match=words):
        find_baselines(grid, wanted)


def test_a_value_of_two_settings_is_refused(make_run):
    grouping = group_runs(runs_of(make_run, [(1, 4), (4, 2)]))
    with pytest.raises(UserError, match="fits more than one setting: num_layers=4, num_heads=4"):
        find_baselines(grouping, "4")


def test_each_difference_is_to_the_baseline_with_the_same_other_settings(make_run):
    losses = {(1, 2): 2.5, (1, 4): 2.4, (3, 2): 2.2, (3, 4): 2.3}
    runs = [
        make_run(seed=seed, loss=loss + 0.01 * seed + 0.002 * seed * heads, changes=changes(layers, heads))
        for (layers, heads), loss in losses.items()
        for seed in range(3)
    ]
    found = compare(runs, baseline="num_heads=2", metric="val_loss")
    # Over seeds 0, 1, 2 the gaps are the means' plus 0, 0.004 and 0.008.
    assert [group.against and round(group.against.value, 6) for group in found.groups] == [
        None, -0.096, None, 0.104,
    ]  # fmt: skip
    assert [group.reading for group in found.groups] == ["baseline", "better", "baseline", "worse"]


def test_a_group_without_its_baseline_is_left_alone_and_said(make_run):
    runs = [run for seed in (0, 1) for run in runs_of(make_run, [(1, 2), (1, 4), (3, 2), (5, 4)], seed=seed)]
    found = compare(runs, baseline="num_heads=2")
    assert found.groups[3].against.value is None
    assert found.groups[3].reading == "no claim: no baseline with the same other settings"
    assert any("num_layers=5 num_heads=4 is not compared with the baseline" in note for note in found.notes)


def changes(layers, heads):
    return {"model.num_layers": layers, "model.num_heads": heads}
