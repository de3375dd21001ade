"""How runs fall into groups and what the groups are called."""

import pytest

from gptcli.analysis.grouping import flatten, group_runs
from gptcli.errors import UserError


def labels(grouping):
    return [group.label for group in grouping.groups]


def test_flatten_joins_keys_with_dots():
    assert flatten({"a": 1, "b": {"c": [1, 2], "d": {"e": None}}}) == {"a": 1, "b.c": (1, 2), "b.d.e": None}


def test_seeds_alone_make_one_group(make_run):
    grouping = group_runs([make_run(seed=seed) for seed in range(3)])
    assert labels(grouping) == ["4_10"] and len(grouping.groups[0].runs) == 3


def test_stages_stand_for_what_they_change_and_follow_the_ladder(make_run):
    runs = [make_run(stage=stage, seed=seed) for stage in ("4_10", "4_9", "4_7") for seed in range(2)]
    grouping = group_runs(runs)
    assert labels(grouping) == ["4_7", "4_9", "4_10"]
    assert list(grouping.names) == ["stage.name"] and grouping.mixed == {}


def test_an_overridden_key_joins_the_stage(make_run):
    runs = [make_run(stage="4_7", changes={"model.num_layers": layers}) for layers in (12, 3)]
    grouping = group_runs([*runs, make_run(stage="4_9")])
    assert labels(grouping) == ["4_7 num_layers=3", "4_7 num_layers=12", "4_9 num_layers=3"]


def test_logs_titles_devices_and_threads_make_no_groups(make_run):
    runs = [
        make_run(),
        make_run(changes={"trainer.log_every": 7, "trainer.threads": 4, "trainer.device": "cpu"}),
        make_run(changes={"stage.title": "Another", "data.name": "auto", "sweep.workers": 2}),
    ]
    grouping = group_runs(runs)
    assert labels(grouping) == ["4_10"] and grouping.mixed == {}


def test_keys_with_one_last_part_keep_their_group(make_run):
    runs = [
        make_run(changes={"optimizer.name": "adamw", "schedule.name": "cosine"}),
        make_run(changes={"optimizer.name": "adam", "schedule.name": "linear"}),
    ]
    assert labels(group_runs(runs)) == ["optimizer=adam schedule=linear", "optimizer=adamw schedule=cosine"]


def test_false_is_not_zero(make_run):
    runs = [make_run(changes={"trainer.compile": 0}), make_run(changes={"model.residual": False})]
    runs.append(make_run(changes={"model.residual": 0}))
    assert labels(group_runs(runs)) == ["residual=false", "residual=0", "residual=true"]


def test_by_groups_by_the_chosen_key_and_says_what_else_varies(make_run):
    runs = [
        make_run(changes={"model.num_heads": heads, "model.num_layers": layers})
        for heads in (8, 2)
        for layers in (1, 2)
    ]
    grouping = group_runs(runs, by=["num_heads"])
    assert labels(grouping) == ["num_heads=2", "num_heads=8"]
    assert grouping.mixed == {"num_heads=2": ["model.num_layers"], "num_heads=8": ["model.num_layers"]}


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("model.num_haeds", "did you mean model.num_heads"),
        ("seed", "differ in their seed"),
        ("nothing", "no run has"),
    ],
)
def test_by_an_unknown_key_is_refused(make_run, key, words):
    with pytest.raises(UserError, match=words):
        group_runs([make_run()], by=[key])


def test_two_texts_of_one_name_are_told_apart(make_run):
    def corpus(digest):
        return {"name": "text_file", "sha256": digest * 32, "vocabulary": ["a"], "characters": 1}

    runs = [make_run(corpus=corpus("ab")), make_run(corpus=corpus("cd"))]
    assert labels(group_runs(runs)) == ["corpus=text_file abababab", "corpus=text_file cdcdcdcd"]
