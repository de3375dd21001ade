"""gptcli train as a user types it: every stage, what it prints, what it leaves, and what it refuses."""

import json
import math
import re
import subprocess
import sys

import pytest
import yaml

from gptcli.cli import main
from gptcli.stages import stage_names
from gptcli.training.engine import Engine

METRICS = {
    "step",
    "learning_rate",
    "grad_norm",
    "batch_loss",
    "train_loss",
    "val_loss",
    "tokens_per_second",
    "seconds",
}
ENDING = {"full_val_loss", "full_val_loss_standard_error"}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Every test types its command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(*overrides):
    """Runs gptcli train in the folder `run`; returns the exit status."""
    return main(["train", "hydra.run.dir=run", *overrides])


def info(here, name="run"):
    """Returns what run.json holds."""
    return json.loads((here / name / "run.json").read_text(encoding="utf-8"))


def metrics(here, name="run"):
    """Returns the records of metrics.jsonl."""
    return [json.loads(line) for line in (here / name / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("stage", stage_names())
def test_every_stage_trains(stage, quick, here):
    small = ["model.embedding_dim=48", "model.block_size=16"] if stage in stage_names()[-4:] else []
    assert train(*quick, *small, f"stage={stage}", "trainer.steps=2") == 0
    assert (info(here)["status"], info(here)["stage"], info(here)["step"]) == ("finished", stage, 2)
    assert math.isfinite(info(here)["full_val_loss"])


@pytest.mark.parametrize(
    "overrides",
    [
        "model.norm_placement=post",
        "model.position=sinusoidal",
        "model.num_heads=8",
        "model.position=none",
        "stage=4_7 model.norm=layer_norm model.norm_placement=post",
        "model.feed_forward=none",
        "optimizer=adamw",
        "schedule=cosine schedule.warmup_steps=3",
        "schedule=linear schedule.warmup_steps=20",
        "trainer.grad_clip=0.1",
        "recipe=walkthrough trainer.eval_tokens=null",
        "stage=5_4 model.dropout_placement=everywhere",
        "trainer.steps=1",
        "trainer.eval_tokens=null",
        "trainer.keep_checkpoints=0",
        "trainer.sample_every=10",
        "trainer.sample_every=10 trainer.sample_prompts=[]",
        "trainer.log_every=1000 trainer.eval_every=1000",
    ],
)
def test_settings_of_every_kind_train(overrides, quick, here):
    assert train(*quick, *overrides.split()) == 0
    assert info(here)["status"] == "finished" and math.isfinite(info(here)["full_val_loss"])


def test_the_run_directory_holds_what_is_promised(quick, here):
    samples = ["trainer.sample_every=10", "trainer.sample_prompts=[the cat]"]
    assert train(*quick, "stage=4_10", *samples) == 0
    run = here / "run"
    saved = yaml.safe_load((run / ".hydra" / "config.yaml").read_text())
    assert saved["stage"]["name"] == "4_10" and saved["trainer"]["steps"] == 20
    assert yaml.safe_load((run / ".hydra" / "overrides.yaml").read_text()) == [
        "hydra.run.dir=run",
        *quick,
        "stage=4_10",
        *samples,
    ]
    assert len(list(run.glob("events.out.tfevents.*"))) == 1
    checkpoints = run / "checkpoints"
    assert (checkpoints / "latest").read_text().strip() == "step_00000020"
    assert (checkpoints / (checkpoints / "best").read_text().strip()).is_dir()
    for name in ("model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"):
        assert (checkpoints / "step_00000020" / name).stat().st_size > 0
    written = (run / "samples.txt").read_text()
    assert [step for step in (0, 10, 20) if f'step {step}, prompt "the cat"' in written] == [0, 10, 20]
    log = (run / "train.log").read_text()
    assert "done  validation loss" in log and "\r" not in log
    assert {path.name for path in run.iterdir() if not path.name.startswith(("events", "."))} >= {
        "checkpoints",
        "metrics.jsonl",
        "run.json",
        "samples.txt",
        "train.log",
    }


def test_records_and_facts(quick, here, text_path):
    assert train(*quick, "stage=4_10", "seed=3") == 0
    records = metrics(here)
    assert [one["step"] for one in records] == [0, 5, 10, 15, 20]
    assert [one["step"] for one in records if "val_loss" in one] == [0, 10, 20]
    assert set(records[-1]) == METRICS | ENDING
    assert set(records[1]) == METRICS - {"train_loss", "val_loss"}
    assert all(one["learning_rate"] == 1e-4 and one["grad_norm"] > 0 for one in records[1:])
    text = text_path.read_text()
    facts = info(here)
    assert facts["corpus"]["vocabulary"] == sorted(set(text)) and facts["corpus"]["characters"] == len(text)
    assert (facts["seed"], facts["step"], facts["tokens"]) == (3, 20, 20 * 4 * 8)
    for key in ("train_loss", "val_loss", "full_val_loss"):
        assert facts[key] == records[-1][key]
    assert facts["best_val_loss"] == min(one["val_loss"] for one in records if "val_loss" in one)
    assert facts["reason"] is None and set(facts["versions"]) >= {"gptcli", "torch", "python"}
    assert facts["config"]["model"]["num_heads"] == 4


def test_a_model_learns(quick, here):
    assert train(*quick, "stage=3_8", "trainer.steps=300", "optimizer.learning_rate=0.03") == 0
    losses = [one["val_loss"] for one in metrics(here) if "val_loss" in one]
    assert losses[-1] < losses[0] - 1


def test_the_same_command_gives_the_same_run(quick, here):
    for name in ("a", "b"):
        assert main(["train", f"hydra.run.dir={name}", *quick, "stage=5_4"]) == 0
    first, second = ([{**one, "seconds": 0, "tokens_per_second": 0} for one in metrics(here, name)] for name in "ab")
    assert first == second
    assert main(["train", "hydra.run.dir=c", *quick, "stage=5_4", "seed=1"]) == 0
    assert metrics(here, "c")[-1]["val_loss"] != second[-1]["val_loss"]


def test_sampling_does_not_move_the_training(quick, here):
    assert main(["train", "hydra.run.dir=a", *quick, "stage=5_4"]) == 0
    assert main(["train", "hydra.run.dir=b", *quick, "stage=5_4", "trainer.sample_every=10"]) == 0
    assert metrics(here, "a")[-1]["full_val_loss"] == metrics(here, "b")[-1]["full_val_loss"]


def test_what_a_person_sees(quick, here, capsys):
    assert train(*quick, "stage=4_10") == 0
    captured = capsys.readouterr()
    assert "\r" not in captured.out + captured.err and "\x1b" not in captured.out + captured.err
    assert re.search(
        r"stage 4_10  The final layer normalization +[\d,]+ parameters +text_file, \d+ symbols", captured.out
    )
    assert re.search(r"guessing costs ln\((\d+)\) = (\d\.\d{3})", captured.out)
    last = captured.out.splitlines()[-3:]
    assert re.match(r"done  validation loss \d\.\d{4} ± \d\.\d{4}.* bits per character", last[0])
    assert last[1].strip() == "tensorboard --logdir run"
    assert last[2].strip() == "gptcli generate run --prompt ROMEO:"
    assert "step 10/20  train " in captured.err


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("model.num_heads=5", "error: model.num_heads=5 does not divide model.embedding_dim=32"),
        ("modle.num_heads=4", "error: unknown key modle.num_heads; did you mean model.num_heads?"),
        ("++model.num_haeds=4", "error: unknown key model.num_haeds; did you mean model.num_heads?"),
        ("stage=4_11", "error: unknown stage 4_11"),
        ("trainer.steps=0", "error: trainer.steps=0 must be at least 1"),
        ("trainer.device=cuda:99", "error: trainer.device=cuda:99 is not there; this machine has"),
        ("trainer.device=gpu", "error: trainer.device=gpu is not a device; use auto, cpu"),
        ("data.path=nowhere.txt", "nowhere.txt"),
        ("model.block_size=100000", "block_size"),
        ("model.embedding_dim=4000000 model.num_heads=1", "GiB to train"),
        ("stage=4_9,4_10", "sweep over them with: gptcli train -m"),
        ("seed", "'seed' is not KEY=VALUE"),
    ],
)
def test_wrong_use_is_one_line_status_2_and_nothing_written(overrides, message, quick, here, capsys):
    assert train(*quick, *overrides.split()) == 2
    captured = capsys.readouterr()
    assert message in captured.err and len(captured.err.splitlines()) == 1
    assert captured.out == "" and not list(here.iterdir())


def test_a_folder_that_holds_a_run_is_refused_and_left_as_it_was(quick, here, capsys):
    assert train(*quick) == 0
    before = {path: path.stat().st_mtime_ns for path in (here / "run").rglob("*")}
    assert train(*quick, "seed=7") == 2
    assert "run" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in (here / "run").rglob("*")} == before


def test_a_rate_that_makes_the_loss_explode_stops_the_run(quick, here, capsys):
    assert train(*quick, "stage=4_7", "optimizer.learning_rate=1000", "trainer.steps=400") == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ") and re.search(r"at step \d+", error) and "optimizer.learning_rate" in error
    facts = info(here)
    assert facts["status"] == "failed" and re.search(r"at step \d+", facts["reason"])
    assert facts["reason"] in error and facts["reason"] in (here / "run" / "train.log").read_text()


@pytest.mark.parametrize("setting", ["stop", "skip"])
def test_a_step_that_is_not_finite_stops_the_run_or_is_left_out(setting, quick, here, monkeypatch):
    step, steps = Engine.step, []

    def broken_third(engine, x, y, learning_rates):
        steps.append(1)
        losses, norms = step(engine, x, y, [0.0] if len(steps) == 3 else learning_rates)
        return (losses * math.nan, norms) if len(steps) == 3 else (losses, norms)

    monkeypatch.setattr(Engine, "step", broken_third)
    assert train(*quick, "stage=4_7", f"trainer.on_nonfinite={setting}") == (1 if setting == "stop" else 0)
    facts = info(here)
    if setting == "skip":
        assert (facts["status"], facts["step"], facts["skipped_steps"]) == ("finished", 20, 1)
        assert all(math.isfinite(one["batch_loss"]) for one in metrics(here)[1:])
    else:
        assert facts["status"] == "failed" and "not finite at step 3: the loss is nan" in facts["reason"]


def test_cfg_prints_the_settings_and_trains_nothing(here, capsys):
    assert main(["train", "stage=4_9", "model.num_heads=8", "--cfg", "job"]) == 0
    settings = yaml.safe_load(capsys.readouterr().out)
    assert settings["stage"]["name"] == "4_9" and settings["model"]["num_heads"] == 8
    assert not list(here.iterdir())


def test_a_relative_path_is_meant_from_where_the_user_stands(quick, here, text_path):
    (here / "my text=1, #2 & 3%.txt").write_text(text_path.read_text())
    assert train(*quick, "data.path=my text=1, #2 & 3%.txt") == 0
    assert info(here)["config"]["data"]["path"] in (
        "my text=1, #2 & 3%.txt",
        str(here / "my text=1, #2 & 3%.txt"),
    )


def test_a_stage_of_the_users_own_trains(quick, here):
    (here / "mine" / "stage").mkdir(parents=True)
    (here / "mine" / "stage" / "deep.yaml").write_text(
        '# @package _global_\ndefaults: ["4_10", _self_]\n'
        "stage: {name: deep, title: Deeper, change: more blocks, section: none}\nmodel: {num_layers: 4}\n"
    )
    assert main(["train", "--config-dir", "mine", "hydra.run.dir=run", *quick, "stage=deep"]) == 0
    assert info(here)["stage"] == "deep" and info(here)["config"]["model"]["num_layers"] == 4


def test_four_starts_at_the_same_moment_have_four_directories(quick, here):
    command = [sys.executable, "-m", "gptcli", "train", "stage=2_9", *quick]
    started = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(4)]
    for process in started:
        _, error = process.communicate(timeout=240)
        assert process.returncode == 0, error
    runs = list((here / "outputs").glob("*/*/run.json"))
    assert len(runs) == 4
    assert all(json.loads(path.read_text())["status"] == "finished" for path in runs)
    assert all(re.fullmatch(r"\d\d-\d\d-\d\d-2_9-[0-9a-f]{4,}", path.parent.name) for path in runs)


def test_a_reader_that_goes_away_does_not_stop_the_run(quick, here):
    """gptcli train | head -1"""
    command = f"{sys.executable} -m gptcli train hydra.run.dir=run stage=2_9 {' '.join(map(repr, quick))} | head -1"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=240)
    assert len(ended.stdout.splitlines()) == 1 and "Traceback" not in ended.stderr and "Error" not in ended.stderr
    assert info(here)["status"] == "finished"
