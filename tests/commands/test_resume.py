"""gptcli resume: a run that was stopped or made longer ends as one that was neither."""

import contextlib
import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

from gptcli.cli import main


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Every test types its command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(name, *overrides):
    """Trains in the folder called name."""
    assert main(["train", f"hydra.run.dir={name}", *overrides]) == 0


def records(here, name):
    """Returns metrics.jsonl without what the clock says."""
    lines = (here / name / "metrics.jsonl").read_text().splitlines()
    timed = ("seconds", "tokens_per_second")
    return [{key: value for key, value in json.loads(line).items() if key not in timed} for line in lines]


def tensors(here, name, file="model"):
    """Returns the tensors of the newest checkpoint."""
    checkpoints = here / name / "checkpoints"
    return load_file(checkpoints / (checkpoints / "latest").read_text().strip() / f"{file}.safetensors")


def info(here, name):
    """Returns what run.json holds."""
    return json.loads((here / name / "run.json").read_text())


def assert_same(here, one, other):
    """Compares weights, optimizer states, records and results of two runs, to the last bit."""
    for file in ("model", "optimizer"):
        first, second = tensors(here, one, file), tensors(here, other, file)
        assert first.keys() == second.keys()
        for name in first:
            np.testing.assert_array_equal(first[name], second[name], err_msg=name)
    assert records(here, one) == records(here, other)
    for key in (
        "step",
        "tokens",
        "train_loss",
        "val_loss",
        "best_val_loss",
        "best_step",
        "full_val_loss",
        "status",
    ):
        assert info(here, one)[key] == info(here, other)[key], key


@pytest.mark.parametrize("recipe", ["default", "walkthrough"])
@pytest.mark.parametrize(("optimizer", "placement"), [("adam", "sublayer"), ("adamw", "everywhere")])
def test_ten_steps_and_ten_more_equal_twenty(recipe, optimizer, placement, quick, here, capsys):
    settings = [
        *quick,
        "stage=5_4",
        "model.dropout=0.3",
        f"model.dropout_placement={placement}",
        f"recipe={recipe}",
        f"optimizer={optimizer}",
        "optimizer.weight_decay=0.1",
        "trainer.eval_every=4",
        "trainer.log_every=3",
        "trainer.eval_tokens=" + ("null" if recipe == "walkthrough" else "256"),
        "trainer.grad_clip=1",
    ]
    train("straight", *settings)
    train("parts", *settings, "trainer.steps=10")
    assert main(["resume", "parts", "--steps", "20"]) == 0
    assert "depends on the number of steps" not in capsys.readouterr().out
    assert_same(here, "straight", "parts")
    assert info(here, "parts")["steps"] == 20 and info(here, "parts")["config"]["trainer"]["steps"] == 20


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_longer_run_under_a_schedule_follows_the_longer_runs_rates(schedule, quick, here, capsys):
    settings = [
        *quick,
        "stage=4_10",
        f"schedule={schedule}",
        "schedule.warmup_steps=4",
        "trainer.log_every=1",
    ]
    train("straight", *settings)
    train("parts", *settings, "trainer.steps=10")
    capsys.readouterr()
    assert main(["resume", "parts", "--steps", "20"]) == 0
    assert f"schedule={schedule} depends on the number of steps" in capsys.readouterr().out
    rates = {name: [one["learning_rate"] for one in records(here, name)[1:]] for name in ("straight", "parts")}
    assert len(rates["parts"]) == 20
    assert rates["parts"][10:] == rates["straight"][10:] and rates["parts"][5:10] != rates["straight"][5:10]
    assert rates["parts"][9] < rates["parts"][10]


@contextlib.contextmanager
def started(here, name, *settings, records):
    """Starts a run in a process of its own, and waits until it has written some records."""
    command = [sys.executable, "-m", "gptcli", "train", f"hydra.run.dir={name}", *settings]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    path, deadline = here / name / "metrics.jsonl", time.monotonic() + 180
    while not (path.exists() and len(path.read_text().splitlines()) >= records):
        assert time.monotonic() < deadline and process.poll() is None, process.communicate()
        time.sleep(0.01)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def newest(here, name):
    """Returns the step of the checkpoint that `latest` names."""
    return int((here / name / "checkpoints" / "latest").read_text().strip().removeprefix("step_"))


@pytest.mark.parametrize("recipe", ["default", "walkthrough"])
def test_a_run_that_ctrl_c_stopped_ends_as_one_that_was_not(recipe, quick, here):
    settings = [
        *quick, "stage=5_4", "model.num_layers=1", f"recipe={recipe}", "trainer.eval_every=30", "trainer.log_every=20",
        "trainer.checkpoint_every=1000", f"trainer.eval_tokens={'null' if recipe == 'walkthrough' else 256}",
    ]  # fmt: skip
    with started(here, "stopped", *settings, "trainer.steps=1000000", records=3) as process:
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=180)
    assert process.returncode == 130, error
    assert "saved" in out and "gptcli resume stopped" in out and "Traceback" not in error
    stopped = info(here, "stopped")
    assert stopped["status"] == "interrupted" and "SIGINT" in stopped["reason"]
    assert stopped["step"] == newest(here, "stopped") > 0
    total = stopped["step"] + 50
    assert main(["resume", "stopped", "--steps", str(total)]) == 0
    train("straight", *settings, f"trainer.steps={total}")
    assert_same(here, "straight", "stopped")


def test_a_scheduled_run_that_was_stopped_keeps_its_rates(quick, here):
    settings = [*quick, "stage=4_2", "schedule=cosine", "trainer.steps=1000", "trainer.log_every=100"]
    settings += ["trainer.eval_every=500", "trainer.checkpoint_every=500"]
    with started(here, "stopped", *settings, records=2) as process:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=180)
    assert process.returncode == 143 and info(here, "stopped")["step"] < 1000
    assert main(["resume", "stopped"]) == 0
    train("straight", *settings)
    assert_same(here, "straight", "stopped")


def test_a_run_that_was_killed_goes_on_from_its_last_checkpoint(quick, here):
    settings = [*quick, "stage=5_4", "model.num_layers=1", "trainer.log_every=20", "trainer.checkpoint_every=20"]
    with started(here, "killed", *settings, "trainer.steps=1000000", records=4):
        pass
    assert info(here, "killed")["status"] == "running"
    total = str(newest(here, "killed") + 30)
    assert main(["resume", "killed", "--steps", total]) == 0
    train("straight", *settings, f"trainer.steps={total}")
    assert_same(here, "straight", "killed")


def test_latest_is_resumed(quick, here):
    assert main(["train", *quick, "stage=2_9"]) == 0
    assert main(["resume", "latest", "--steps", "25"]) == 0
    (run,) = (here / "outputs").glob("*/*")
    assert info(here, run)["step"] == 25


def test_what_cannot_be_resumed_says_why(quick, here, capsys, text_path):
    train("done", *quick, "stage=2_9")

    def refused(*arguments):
        assert main(["resume", *arguments]) == 2
        return capsys.readouterr().err

    assert "has made its 20 steps" in refused("done") and "--steps 40" in refused("done")
    assert "--steps 20 is not more than the 20 steps" in refused("done", "--steps", "20")
    assert "--steps 0 must be at least 1" in refused("done", "--steps", "0")
    assert "is a checkpoint; resume takes the run directory" in refused("done/checkpoints/latest")
    assert "no run at nowhere" in refused("nowhere")
    other = here / "other.txt"
    other.write_text(text_path.read_text() + "!")
    assert "the corpus has changed since the run began" in refused("done", "--steps", "30", "--data-path", str(other))
    assert info(here, "done")["status"] == "finished" and info(here, "done")["step"] == 20


def test_the_corpus_may_have_moved(quick, here, text_path):
    moved = here / "moved.txt"
    moved.write_bytes(text_path.read_bytes())
    train("run", *quick, "stage=2_9")
    assert main(["resume", "run", "--steps", "25", "--data-path", str(moved)]) == 0
    assert info(here, "run")["step"] == 25


def test_settings_that_were_edited_are_refused(quick, here, capsys):
    train("run", *quick, "stage=4_10")
    edited = info(here, "run")
    edited["config"]["model"]["num_heads"] = 8
    (here / "run" / "run.json").write_text(json.dumps(edited))
    assert main(["resume", "run", "--steps", "30"]) == 2
    assert "model.num_heads: 4 -> 8" in capsys.readouterr().err
