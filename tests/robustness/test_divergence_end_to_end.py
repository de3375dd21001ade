"""Losses, gradients and weights that stop being finite, from the command line to the run directory."""

import json

import pytest
import torch

from gptcli.training import trainer as trainer_module
from gptcli.training.checkpoint import load_checkpoint, newest_good_checkpoint
from gptcli.training.engine import Engine

LONG = ["trainer.steps=40", "trainer.eval_every=10", "trainer.checkpoint_every=10", "trainer.log_every=5"]


def info_of(run):
    return json.loads((run / "run.json").read_text(encoding="utf-8"))


def records_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def poisoned(monkeypatch, where, at):
    """Puts a NaN into the weights of one tensor just before the step with this number is made."""
    step = Engine.step

    def bad_step(self, x, y, rates):
        bad_step.made += 1
        if bad_step.made == at + 1:
            with torch.no_grad():
                dict(self.models[0].named_parameters())[where].view(-1)[0] = torch.nan
        return step(self, x, y, rates)

    bad_step.made = 0
    monkeypatch.setattr(Engine, "step", bad_step)


@pytest.mark.parametrize("stage", ["2_9", "3_14", "4_10", "5_4"])
@pytest.mark.parametrize("at", [1, 23])
def test_a_nan_in_the_weights_stops_the_run(stage, at, copied, settings, call, monkeypatch):
    where = "token_embedding.weight" if stage == "2_9" else "lm_head.weight"
    poisoned(monkeypatch, where, at)
    result = call("train", *settings, *LONG, f"stage={stage}", "hydra.run.dir=bad")
    assert result.status == 1
    message = result.err.splitlines()[-1]
    assert message.startswith(f"error: not finite at step {at + 1}: ")
    assert f"the weights {where}" in message and "lower optimizer.learning_rate" in message
    assert "Traceback" not in result.err
    info = info_of(copied / "bad")
    assert info["status"] == "failed" and info["reason"] in message
    if at > 10:
        checkpoint, notes = newest_good_checkpoint(copied / "bad")
        assert checkpoint.step == 20 and not notes
        assert all(torch.isfinite(tensor).all() for tensor in checkpoint.model.values())
        best, _ = newest_good_checkpoint(copied / "bad", "best")
        assert best.step == info["best_step"] <= 20
        assert call("generate", "bad", "--tokens", 5).status == 0


def test_the_first_module_whose_values_are_bad_is_named(copied, settings, call, monkeypatch):
    """Weights of 10^38 are finite; their products are not."""
    step = Engine.step

    def bad_step(self, x, y, rates):
        with torch.no_grad():
            dict(self.models[0].named_parameters())["blocks.1.feed_forward.expand.weight"].fill_(3e38)
        return step(self, x, y, rates)

    monkeypatch.setattr(Engine, "step", bad_step)
    result = call("train", *settings, *LONG, "stage=4_10", "hydra.run.dir=bad")
    assert result.status == 1
    assert "not finite at step" in result.err and "the output of blocks.1.feed_forward.expand" in result.err


@pytest.mark.parametrize("rate", [100, 1000])
@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_a_learning_rate_that_is_far_too_high_stops(rate, optimizer, copied, settings, call):
    result = call(
        "train", *settings, *LONG, "trainer.steps=200", f"optimizer={optimizer}", f"optimizer.learning_rate={rate}",
        "stage=4_10", "hydra.run.dir=bad",
    )  # fmt: skip
    assert result.status == 1
    info = info_of(copied / "bad")
    assert info["status"] == "failed" and "learning_rate" in info["reason"] and "step" in info["reason"]
    assert info["best_val_loss"] < 10
    names = list((copied / "bad" / "checkpoints").glob("step_*"))
    assert all(info["best_val_loss"] <= load_checkpoint(one).state["progress"]["val_loss"] for one in names)


def test_weight_decay_that_blows_the_weights_up(copied, settings, call):
    """AdamW's factor 1 - rate x decay is -999 here."""
    more = ["optimizer=adamw", "optimizer.learning_rate=1", "optimizer.weight_decay=1000", "trainer.steps=60"]
    result = call("train", *settings, *LONG, *more, "stage=4_10", "hydra.run.dir=bad")
    assert result.status == 1 and info_of(copied / "bad")["status"] == "failed"


def test_skip_leaves_the_step_out_and_goes_on(copied, settings, call, monkeypatch):
    """A loss that is not finite at three steps: the others are those of a run with these batches left out."""
    gradient_of = trainer_module.Trainer._step
    bad = {7, 8, 25}

    def step(self, x, y):
        engine_step = self.engine.step
        if self.done in bad:
            weights = self.engine.models[0].lm_head.weight
            kept = weights.detach().clone()

            def poisoned_step(*arguments):
                with torch.no_grad():
                    weights.fill_(torch.inf)
                result = engine_step(*arguments)
                with torch.no_grad():
                    weights.copy_(kept)
                return result

            self.engine.step = poisoned_step
        gradient_of(self, x, y)
        self.engine.__dict__.pop("step", None)

    monkeypatch.setattr(trainer_module.Trainer, "_step", step)
    more = ["trainer.on_nonfinite=skip", "stage=4_10", "hydra.run.dir=skipped"]
    result = call("train", *settings, *LONG, *more)
    assert result.status == 0, result.err
    info = info_of(copied / "skipped")
    assert info["status"] == "finished" and info["skipped_steps"] == 3 and info["step"] == 40
    assert info["val_loss"] < 5
    assert [record["step"] for record in records_of(copied / "skipped")] == [0, 5, 10, 15, 20, 25, 30, 35, 40]
    checkpoint, _ = newest_good_checkpoint(copied / "skipped")
    assert int(checkpoint.optimizer["step"]) == 37


def test_a_failed_run_goes_on_from_its_last_good_checkpoint(copied, settings, call, monkeypatch):
    assert call("train", *settings, *LONG, "stage=4_10", "hydra.run.dir=straight").status == 0
    with monkeypatch.context() as patch:
        poisoned(patch, "lm_head.weight", 23)
        assert call("train", *settings, *LONG, "stage=4_10", "hydra.run.dir=bad").status == 1
    result = call("resume", "bad")
    assert result.status == 0, result.err
    weights = [newest_good_checkpoint(copied / name)[0].model for name in ("straight", "bad")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_sweep_says_which_job_diverged(copied, settings, call):
    rates = "optimizer.learning_rate=0.001,1000"
    more = ["sweep.workers=1", "hydra.sweep.dir=sweep", "trainer.steps=200", "stage=4_10"]
    result = call("train", "-m", *settings, *LONG, *more, rates)
    assert result.status == 1
    jobs = json.loads((copied / "sweep" / "sweep.json").read_text())["jobs"]
    assert [job["status"] for job in jobs] == ["finished", "failed"]
    assert "step" in jobs[1]["reason"] and "1 of 2 jobs finished" in result.out
