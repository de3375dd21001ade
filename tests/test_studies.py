"""Every study file: its jobs, that each of them can be trained, and that compare reads what the study says."""

import json
import math
import re

import pytest
import yaml

from gptcli.analysis.compare import compare as compare_runs
from gptcli.analysis.study import study_figure
from gptcli.cli import main
from gptcli.commands.completion import completions
from gptcli.composition import hydra_session, prepare
from gptcli.config import setting_keys
from gptcli.errors import UserError
from gptcli.runs import find_runs
from gptcli.stages import config_directory, group_values
from gptcli.sweep.jobs import compose_jobs, expand

STUDIES = [name for name in group_values("study") if name != "none"]
TO_4_1 = ["2_9", "3_7", "3_8", "3_14", "3_18", "4_1"]
LADDER = [*TO_4_1, *(f"4_{number}" for number in range(2, 11)), "5_3", "5_4", "5_5"]
# Study -> what varies besides the five seeds, in the order of the sweep.
AXES = {
    "context": {"model.block_size": ["1", "2", "4", "8", "16", "32", "64"]},
    "depth_without_residuals": {"stage": ["4_6", "4_7", "4_9"], "model.num_layers": ["1", "2", "4", "8", "12"]},
    "extra_projection": {"stage": ["4_7", "4_8"], "optimizer.learning_rate": ["0.001", "0.003", "0.01"]},
    "heads": {"model.num_heads": ["1", "2", "4", "8", "16", "32"]},
    "ladder": {"stage": LADDER},
    "norm_placement": {
        "study/norm_placement": ["pre", "post", "none"],
        "model.num_layers": ["2", "8"],
        "optimizer.learning_rate": ["0.001", "0.01"],
    },
    "positions": {"model.position": ["none", "learned", "sinusoidal"], "model.block_size": ["8", "32"]},
}


def jobs_of(*overrides):
    with hydra_session():
        return compose_jobs(prepare(overrides, multirun=True))


def study_file(name):
    return yaml.safe_load((config_directory() / "study" / f"{name}.yaml").read_text(encoding="utf-8"))


def test_every_study_is_known_here():
    assert set(STUDIES) == set(AXES)


@pytest.mark.parametrize("name", STUDIES)
def test_axes(name):
    """The file's own sweep, expanded without composing each job."""
    parameters = study_file(name)["hydra"]["sweeper"]["params"]
    combinations, varying = expand(prepare([f"{key}={value}" for key, value in parameters.items()], multirun=True))
    assert varying == ["seed", *AXES[name]]
    assert len(combinations) == 5 * math.prod(map(len, AXES[name].values()))
    found = {key: {} for key in varying}
    for combination in combinations:
        for override in combination:
            key, _, value = override.partition("=")
            found[key][value.strip("'")] = True
    assert {key: list(values) for key, values in found.items()} == {"seed": list("01234"), **AXES[name]}


@pytest.mark.parametrize("name", STUDIES)
def test_every_job_of_one_seed_fits_together(name):
    jobs = jobs_of(f"study={name}", "seed=3")
    assert [job.reason for job in jobs if job.status == "failed"] == []
    assert len(jobs) == math.prod(map(len, AXES[name].values()))
    for job in jobs:
        assert (job.config.seed, job.config.study.name) == (3, name)
        assert job.config.study.question.endswith("?") and re.search(r"\(.*, .*\)", job.config.study.claim)


@pytest.mark.parametrize("name", STUDIES)
def test_grouping_and_figure_are_over_what_varies(name):
    study = study_file(name)["study"]
    assert study["name"] == name and set(study["by"]) <= set(setting_keys())
    assert {study["x"], study["lines"], study["panels"]} - {None} == set(study["by"])
    names = {"stage": "stage.name", "study/norm_placement": "stage.name"}
    assert study["by"] == [names.get(key, key) for key in AXES[name]]


def test_arms_of_norm_placement_differ_in_what_belongs_together():
    jobs = jobs_of("study=norm_placement", "seed=0", "model.num_layers=2", "optimizer.learning_rate=0.001")
    models = [(job.config.stage.name, job.config.model) for job in jobs]
    assert [(name, one.norm, one.norm_placement, one.final_norm) for name, one in models] == [
        ("pre_norm", "layer_norm", "pre", True),
        ("post_norm", "layer_norm", "post", False),
        ("no_norm", "none", "pre", False),
    ]
    assert all(one.residual and not one.extra_projection for _, one in models)


def test_the_command_line_wins_over_the_study():
    jobs = jobs_of("study=heads", "seed=range(7,9)", "model.num_heads=2", "trainer.steps=9", "stage=5_3")
    assert [(job.config.seed, job.config.model.num_heads) for job in jobs] == [(7, 2), (8, 2)]
    assert {(job.config.trainer.steps, job.config.stage.name) for job in jobs} == {(9, "5_3")}
    assert [job.name for job in jobs] == ["0-seed=7", "1-seed=8"]


def test_the_study_wins_over_the_stage_and_the_recipe_over_the_study():
    (job,) = jobs_of("study=heads", "seed=0", "model.num_heads=4", "recipe=walkthrough")
    assert (job.config.optimizer.learning_rate, job.config.trainer.eval_every) == (0.001, 100)


def test_a_study_without_m_is_told_of_it(capsys):
    assert main(["train", "study=heads"]) == 2
    assert capsys.readouterr().err == "error: study=heads is a sweep; it needs -m: gptcli train -m study=heads\n"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["study=heads,context"], "a study is a sweep of its own"),
        (["study=haeds"], "did you mean heads?"),
        (["study=heads", "study/norm_placement=pre"], "study/norm_placement"),
        (["study=norm_placement", "study/norm_placement=middle"], "is not one of none, post, pre"),
    ],
)
def test_wrong_use_is_one_line(overrides, message):
    with pytest.raises(UserError, match=re.escape(message)) as error:
        jobs_of(*overrides)
    assert "\n" not in str(error.value)


def test_the_jobs_of_a_study_can_be_seen_before_it_is_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "-m", "--cfg", "job", "study=heads", "seed=7", "model.num_heads=4,5"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.split() == ["0-num_heads=4", "seed=7", "model.num_heads=4", "study=heads"]
    assert second.startswith("1-num_heads=5") and "model.num_heads=5 does not divide" in second
    assert list(tmp_path.iterdir()) == []


def test_a_study_of_the_users_own(tmp_path):
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "mine.yaml").write_text(
        "# @package _global_\nstudy: {name: mine, question: 'Why?', claim: null, by: [stage.name], baseline: null,"
        " x: null, lines: null, panels: null}\nhydra: {sweeper: {params: {stage: '4_9,4_10'}}}\n"
    )
    with hydra_session():
        overrides = prepare(["study=mine"], multirun=True, config_directories=[str(tmp_path)])
        jobs = compose_jobs(overrides, [str(tmp_path)])
    assert [job.config.stage.name for job in jobs] == ["4_9", "4_10"]


def test_help_and_completion_name_the_studies(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    words = capsys.readouterr().out
    assert all(name in words for name in STUDIES)
    assert completions("gptcli train -m study=h") == ["study=heads"]
    assert set(completions("gptcli train -m study=")) == {f"study={name}" for name in [*STUDIES, "none"]}


@pytest.fixture(scope="module")
def one_step(text_path):
    """Settings of a run of one step on a small text."""
    steps = ["eval_every=1", "log_every=1", "steps=1", "batch_size=2", "eval_tokens=64", "sample_every=0", "threads=1"]
    trainer = [*steps, "device=cpu", "compile=false", "checkpoint_every=1"]
    return ["data=text_file", f"data.path={text_path}", *(f"trainer.{setting}" for setting in trainer)]


# Two values of each axis where it has more: all that decides grouping, baseline and figure is there.
SMALL = {
    "context": (["model.block_size=4,8"], "block_size=8"),
    "depth_without_residuals": (["stage=4_6,4_7", "model.num_layers=1,2"], "4_7 at the same num_layers"),
    "extra_projection": (["optimizer.learning_rate=0.001,0.01"], "4_7 at the same learning_rate"),
    "heads": (["model.num_heads=2,4"], "num_heads=4"),
    "ladder": (["stage=2_9,3_7"], "the one before"),
    "norm_placement": (
        ["study/norm_placement=pre,post", "model.num_layers=1,2", "optimizer.learning_rate=0.001"],
        "pre_norm at the same num_layers and learning_rate",
    ),
    "positions": (["model.position=learned,none", "model.block_size=4,8"], "learned at the same block_size"),
}


@pytest.mark.parametrize("name", STUDIES)
def test_trained_for_one_step_it_is_read_as_the_study_says(name, one_step, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    overrides, baseline = SMALL[name]
    command = ["train", "-m", f"study={name}", "seed=0,1", *overrides, *one_step, "hydra.sweep.dir=sweep"]
    assert main(command) == 0
    capsys.readouterr()
    assert main(["compare", "sweep", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    study = study_file(name)["study"]
    assert found["study"] == study | {"by": list(study["by"])}
    assert (found["keys"], found["baseline"]) == (study["by"], baseline)
    assert all(len(group["seeds"]) == 2 for group in found["groups"])
    # norm_placement with one learning rate lacks no key: the study says what to group by.
    figure = study_figure(compare_runs(find_runs(["sweep"])))
    assert figure and sum(len(one["points"]) for panel in figure["panels"] for one in panel["series"]) == len(
        found["groups"]
    )
    assert main(["compare", "sweep"]) == 0
    assert capsys.readouterr().out.startswith(f"study {name}: {study['question']}\nclaim: ")
