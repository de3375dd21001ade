"""Runs from start to end when something goes wrong, and several runs trained together."""

import dataclasses
import json
import shutil
import signal

import numpy as np
import pytest
from safetensors.numpy import load_file

from gptcli.cli import main
from gptcli.composition import compose, hydra_session, prepare
from gptcli.config import to_dict
from gptcli.training import run as run_module
from gptcli.training import trainer as trainer_module
from gptcli.training.checkpoint import CheckpointNotSaved
from gptcli.training.interruption import Interruption
from gptcli.training.lock import RunLock, holder
from gptcli.training.run_directory import RunDirectory
from gptcli.training.session import Provenance, _resumable, hyperparameters, resume, train_new


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Every test works in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def info(here, name="run"):
    """Returns what run.json holds."""
    return json.loads((here / name / "run.json").read_text())


def records(here, name):
    """Returns metrics.jsonl without what the clock says."""
    lines = (here / name / "metrics.jsonl").read_text().splitlines()
    return [{**json.loads(line), "seconds": 0, "tokens_per_second": 0} for line in lines]


def configs(*overrides, seeds=(1,)):
    """Returns one Config for each seed."""
    with hydra_session():
        config = compose(prepare(overrides))[0]
    return [dataclasses.replace(config, seed=seed) for seed in seeds]


def train_together(several, names):
    """Trains configurations in one session."""
    provenances = [Provenance([], "", "")] * len(several)
    return train_new(several, names, provenances, Interruption(), quiet=True)


def test_an_error_in_the_loop_ends_the_run_as_failed_and_lets_go_of_it(quick, here, monkeypatch, capsys):
    def broken(*_):
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(trainer_module, "learning_rate", broken)
    assert main(["train", "hydra.run.dir=run", *quick]) == 1
    assert "ZeroDivisionError: by nothing" in capsys.readouterr().err
    assert info(here)["status"] == "failed" and info(here)["reason"] == "ZeroDivisionError: by nothing"
    assert "failed: ZeroDivisionError: by nothing" in (here / "run" / "train.log").read_text()
    assert holder(here / "run") is None


def test_a_disk_that_takes_no_checkpoint_is_told_and_the_run_goes_on(quick, here, monkeypatch, capsys):
    """Each time a warning; the run fails at its end, since its last weights are lost."""

    def refuse(*_, **__):
        raise CheckpointNotSaved("no space left in run/checkpoints; 12 bytes are free")

    monkeypatch.setattr(run_module, "save_checkpoint", refuse)
    assert main(["train", "hydra.run.dir=run", *quick]) == 1
    error = capsys.readouterr().err
    assert error.count("warning: no space left") == 2 and "12 bytes are free" in error.splitlines()[-1]
    facts = info(here)
    assert facts["status"] == "failed" and facts["step"] == 20 and facts["full_val_loss"] > 0


def test_a_checkpoint_that_was_refused_once_does_no_harm_later(quick, here, monkeypatch, capsys):
    save, tries = run_module.save_checkpoint, []

    def refuse_first(*arguments, **more):
        tries.append(1)
        if len(tries) == 1:
            raise CheckpointNotSaved("no space left")
        return save(*arguments, **more)

    monkeypatch.setattr(run_module, "save_checkpoint", refuse_first)
    assert main(["train", "hydra.run.dir=run", *quick]) == 0
    assert capsys.readouterr().err.count("warning: no space left") == 1
    assert info(here)["status"] == "finished"


def test_runs_trained_together_are_the_runs_by_themselves(quick, here):
    several = configs(*quick, "stage=5_4", seeds=(1, 2, 3))
    runs = train_together(several, ["a", "b", "c"])
    assert [run.failure for run in runs] == [None] * 3
    for seed, name in ((1, "a"), (3, "c")):
        (alone,) = configs(*quick, "stage=5_4", seeds=(seed,))
        train_together([alone], [f"alone-{seed}"])
        first, second = (
            load_file(here / folder / "checkpoints" / "step_00000020" / "model.safetensors")
            for folder in (name, f"alone-{seed}")
        )
        for key in first:
            np.testing.assert_allclose(first[key], second[key], rtol=0, atol=1e-6, err_msg=key)
        assert info(here, name)["full_val_loss"] == pytest.approx(
            info(here, f"alone-{seed}")["full_val_loss"], abs=1e-5
        )


@pytest.mark.parametrize("recipe", ["default", "walkthrough"])
@pytest.mark.parametrize("update", [1, 5, 7, 10, 11, 19])
def test_a_stop_at_any_step_leaves_no_gap(recipe, update, quick, here, monkeypatch):
    """Also at one where something is due: records, evaluations and a checkpoint."""
    tokens = "null" if recipe == "walkthrough" else "256"
    several = configs(*quick, "stage=5_4", f"recipe={recipe}", f"trainer.eval_tokens={tokens}")
    train_together(several, ["straight"])
    interruption, rate = Interruption(), trainer_module.learning_rate

    def interrupting(step, *arguments):
        if step + 1 == update:
            interruption.request(signal.SIGINT)
        return rate(step, *arguments)

    monkeypatch.setattr(trainer_module, "learning_rate", interrupting)
    (stopped,) = train_new(several, ["stopped"], [Provenance([], "", "")], interruption, quiet=True)
    monkeypatch.undo()
    monkeypatch.chdir(here)
    assert stopped.interrupted and (info(here, "stopped")["status"], info(here, "stopped")["step"]) == (
        "interrupted", update,
    )  # fmt: skip
    assert info(here, "stopped")["tokens"] == update * 4 * 8
    resume("stopped", Interruption(), quiet=True)
    assert records(here, "stopped") == records(here, "straight")
    for key in ("train_loss", "val_loss", "best_val_loss", "best_step", "full_val_loss", "status", "step", "tokens"):
        assert info(here, "stopped")[key] == info(here, "straight")[key]


def test_one_run_that_diverges_does_not_stop_the_others(quick, here):
    """The members of a stack fail each for itself."""
    good, bad = configs(*quick, "stage=4_7", "trainer.steps=300", "trainer.log_every=100", seeds=(1, 2))
    bad = dataclasses.replace(bad, optimizer=dataclasses.replace(bad.optimizer, learning_rate=1000.0))
    runs = train_together([good, bad], ["good", "bad"])
    assert runs[0].failure is None and runs[1].failure
    assert info(here, "good")["status"] == "finished" and info(here, "good")["step"] == 300
    assert info(here, "bad")["status"] == "failed" and "learning_rate" in info(here, "bad")["reason"]
    assert f"failed: {info(here, 'bad')['reason']}" in (here / "bad" / "train.log").read_text()
    assert "failed" not in (here / "good" / "train.log").read_text()


def test_a_run_that_diverged_keeps_its_best_checkpoint(quick, here):
    """The rate grows step by step: first the loss falls, then it explodes."""
    growing = ["optimizer.learning_rate=1000", "schedule.warmup_steps=20000", "trainer.steps=20000"]
    often = ["trainer.eval_every=20", "trainer.checkpoint_every=20", "trainer.log_every=1000"]
    assert main(["train", "hydra.run.dir=run", *quick, "stage=2_9", *growing, *often]) == 1
    assert "diverged at step" in info(here)["reason"]
    best = (here / "run" / "checkpoints" / "best").read_text().strip()
    weights = load_file(here / "run" / "checkpoints" / best / "model.safetensors")
    assert all(np.isfinite(tensor).all() for tensor in weights.values())
    assert int(best.removeprefix("step_")) == info(here)["best_step"]
    losses = [json.loads(line).get("val_loss") for line in (here / "run" / "metrics.jsonl").read_text().splitlines()]
    assert info(here)["best_val_loss"] == min(loss for loss in losses if loss) < losses[0] - 0.01 < losses[-1]


def test_a_run_that_ended_before_its_first_checkpoint_starts_from_its_beginning(quick, here, capsys):
    for name in ("run", "straight"):
        assert main(["train", f"hydra.run.dir={name}", *quick, "stage=5_4"]) == 0
    shutil.rmtree(here / "run" / "checkpoints")
    capsys.readouterr()
    assert main(["resume", "run"]) == 1  # a finished run has had one, so that something is wrong
    assert "no checkpoint that loads" in capsys.readouterr().err
    RunDirectory(here / "run").update_info(status="interrupted")
    assert main(["resume", "run"]) == 0
    assert "the run starts from its beginning" in capsys.readouterr().out
    assert info(here)["full_val_loss"] == info(here, "straight")["full_val_loss"]
    steps = [json.loads(line)["step"] for line in (here / "run" / "metrics.jsonl").read_text().splitlines()]
    assert steps == [0, 5, 10, 15, 20]


def test_a_run_in_training_is_not_resumed(quick, here, capsys):
    assert main(["train", "hydra.run.dir=run", *quick, "stage=2_9"]) == 0
    capsys.readouterr()
    with RunLock(here / "run"):
        assert main(["resume", "run", "--steps", "30"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert info(here)["status"] == "finished"


def test_a_corpus_that_auto_chose_is_kept(here):
    """Whatever auto would choose at the time of the resume."""
    (config,) = configs("data=auto")
    (here / "run").mkdir()
    facts = {"config": to_dict(config), "corpus": {"name": "synthetic_play", "sha256": "x"}}
    resumed, checkpoint, notes = _resumable(RunDirectory(here / "run"), facts, None, None)
    assert resumed.data.name == "synthetic_play" and checkpoint is None
    assert notes == ["no checkpoint was saved yet; the run starts from its beginning"]


def test_hyperparameters_are_flat_and_of_types_that_tensorboard_takes():
    flat = hyperparameters(configs("stage=2_9", "optimizer.betas=[0.8,0.9]")[0])
    assert flat["seed"] == 1 and flat["stage"] == "2_9" and flat["optimizer.betas"] == "[0.8, 0.9]"
    assert flat["model.embedding_dim"] == "None" and flat["model.residual"] is False
    assert all(isinstance(value, (bool, int, float, str)) for value in flat.values())
