"""What a study recorded in runs decides: grouping, baseline, question and figure; what a stranger wrote is checked."""

import json

import pytest

from gptcli.analysis.compare import compare
from gptcli.analysis.page import command_line, to_html
from gptcli.analysis.plots import to_png
from gptcli.analysis.study import study_figure, study_of
from gptcli.analysis.tables import terminal_lines, to_json

STUDY = {
    "name": "depth",
    "question": "Does depth help?",
    "claim": "it does (nobody, 2017).",
    "by": ["model.num_layers", "model.position"],
    "baseline": "position=none",
    "x": "model.num_layers",
    "lines": "model.position",
    "panels": None,
}


@pytest.fixture
def study_runs(make_run):
    """Makes the runs of a study: two depths, two kinds of positions, two seeds."""

    def make(study=STUDY, cells=((1, "none"), (8, "none"), (1, "learned"), (8, "learned")), **info):
        made = []
        for layers, position in cells:
            for seed in (0, 1):
                changes = {"model.num_layers": layers, "model.position": position}
                run = make_run(seed=seed, loss=2 + layers / 100 + seed / 50, changes=changes, **info)
                run.config["study"] = dict(study)
                made.append(run)
        return made

    return make


def test_grouping_and_baseline_are_the_studys(study_runs):
    found = compare(study_runs())
    assert list(found.names) == ["model.num_layers", "model.position"]
    assert found.baseline_words == "position=none at the same num_layers"
    assert [group.label for group in found.groups if group.against is None] == [
        "num_layers=1 position=none", "num_layers=8 position=none",
    ]  # fmt: skip


def test_what_is_asked_for_wins(study_runs):
    found = compare(study_runs(), by=["num_layers"], baseline="num_layers=8")
    assert (list(found.names), found.baseline) == (["model.num_layers"], 1)


def test_the_question_stands_first(study_runs):
    found = compare(study_runs())
    assert terminal_lines(found)[:3] == ["study depth: Does depth help?", "claim: it does (nobody, 2017).", ""]
    assert json.loads(to_json(found))["study"]["question"] == "Does depth help?"
    page = to_html(found)
    assert "<h1>Does depth help?</h1>" in page and "it does (nobody, 2017)." in page and 'id="study-0-figure"' in page


def test_a_study_is_no_difference_between_runs(study_runs, make_run):
    runs = study_runs(cells=((1, "none"),))
    runs.append(make_run(seed=2, changes={"model.num_layers": 1, "model.position": "none"}))
    found = compare(runs)
    assert len(found.groups) == 1 and found.study is None


def test_a_baseline_that_is_not_there_is_said(study_runs):
    found = compare(study_runs(cells=((1, "learned"), (8, "learned"))))
    assert "the study's baseline, position=none, is not one of the groups" in found.notes[0]
    assert found.baseline == 0


def test_figure_places_each_group(study_runs):
    figure = study_figure(compare(study_runs(), metric="val_loss"))
    assert (figure["x_name"], figure["log"], figure["ticks"]) == ("num_layers", True, [[1, "1"], [8, "8"]])
    (panel,) = figure["panels"]
    assert [series["label"] for series in panel["series"]] == ["learned", "none"]
    # Losses 2.01 and 2.03: mean 2.02, half width t(0.975, 1) 12.7062 * 0.02 / 2.
    assert panel["series"][0]["points"] == [
        [1, pytest.approx(2.02), pytest.approx(0.127062)],
        [8, pytest.approx(2.09), pytest.approx(0.127062)],
    ]


def test_words_stand_in_their_order_and_are_not_joined(make_run):
    runs = [make_run(stage=stage, seed=seed) for stage in ("4_10", "4_9") for seed in (0, 1)]
    for run in runs:
        run.config["study"] = STUDY | {"by": ["stage.name"], "baseline": None, "x": "stage.name", "lines": None}
    figure = study_figure(compare(runs))
    assert figure["ticks"] == [[0, "4_9"], [1, "4_10"]] and figure["log"] is False
    assert [series["joined"] for series in figure["panels"][0]["series"]] == [False]


def test_panels_and_the_floor(study_runs):
    by = {"x": "model.num_layers", "lines": None, "panels": "model.position"}
    figure = study_figure(compare(study_runs(STUDY | by, floor=1.5)))
    assert [panel["title"] for panel in figure["panels"]] == ["position learned", "position none"]
    assert figure["panels"][0]["series"][1]["label"] == "best possible"
    assert figure["panels"][0]["series"][1]["points"] == [[1, 1.5, None], [8, 1.5, None]]


@pytest.mark.parametrize("changed", [{"x": None}, {"lines": None}, {"lines": "model.norm"}, {"x": "nowhere"}])
def test_no_figure_where_the_groups_are_not_the_studys(study_runs, changed):
    assert study_figure(compare(study_runs(STUDY | changed))) is None


def test_png_of_a_study_is_its_figure_alone(study_runs):
    data = to_png(compare(study_runs()))
    # One panel, 6 inches by 3.6 at 110 dots an inch.
    assert (int.from_bytes(data[16:20]), int.from_bytes(data[20:24])) == (660, 396)


@pytest.mark.parametrize(
    "changed",
    [{"by": "stage"}, {"by": [{}]}, {"name": 3.5}, {"extra": 1}, {"question": ["a"]}],
    ids=["by as text", "by of a group", "name", "unknown key", "question"],
)
def test_a_damaged_study_counts_as_none(study_runs, changed):
    runs = study_runs(STUDY | changed)
    assert study_of(runs) is None and compare(runs).study is None


def test_a_strangers_words_stay_text(study_runs):
    evil = STUDY | {"question": "<script>alert(1)</script>", "claim": "\x1b[31m<img src=x>", "by": ["nowhere"]}
    found = compare(study_runs(evil))
    page = to_html(found)
    assert "<script>alert" not in page and "<img src=x" not in page
    assert "\x1b" not in "".join(terminal_lines(found))


def test_a_job_of_a_study_is_run_again_by_a_sweep_of_one_job(make_run):
    run = make_run(overrides=["study=heads", "stage='4_10'", "seed=1"])
    assert command_line(run) == "gptcli train -m study=heads stage=4_10 seed=1"
