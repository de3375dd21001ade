"""Gradient norms against finite differences and loops, and that measuring them changes nothing."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.nn import functional as F

from gptcli.cli import main
from gptcli.model.gpt import GPT
from gptcli.stages import stage_model
from gptcli.training.diagnostics import diagnose, diagnostic_batch


def _model(stage="4_8", **changes):
    config = stage_model(stage)
    if config.lm_head:
        config = dataclasses.replace(config, embedding_dim=8, num_layers=min(2, config.num_layers))
    config = dataclasses.replace(config, block_size=4, **changes)
    torch.manual_seed(1)
    return GPT(config, 7).double().eval()


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(2)
    return tuple(torch.randint(0, 7, (3, 4), generator=generator) for _ in range(2))


def _finite_difference(model, x, y, parameter, index, step=1e-5):
    """The derivative of the mean loss by one entry of a parameter."""
    losses = []
    with torch.no_grad():
        before = parameter[index].item()
        for value in (before + step, before - step):
            parameter[index] = value
            losses.append(float(F.cross_entropy(model(x).flatten(0, 1), y.flatten())))
        parameter[index] = before
    return (losses[0] - losses[1]) / (2 * step)


def _norm(model, batch, parameter, entries):
    return math.sqrt(sum(_finite_difference(model, *batch, parameter, index) ** 2 for index in entries))


def _entries(rows, columns):
    return [(row, column) for row in rows for column in range(columns)]


def test_norms_equal_finite_differences(batch):
    model = _model("4_8")
    norms = diagnose(model, *batch)["gradient_norm"]
    block = model.blocks[1]
    qkv = block.attention.qkv.weight
    for place, group in enumerate(("query", "key", "value")):
        rows = range(8 * place, 8 * place + 8)
        assert norms["block_2"][group] == pytest.approx(_norm(model, batch, qkv, _entries(rows, 8)), rel=1e-5)
    token = _norm(model, batch, model.token_embedding.weight, _entries(range(7), 8))
    assert norms["embeddings"]["token"] == pytest.approx(token, rel=1e-5)
    # Weights and biases, and both extra projections, count as one group.
    both = [
        _norm(model, batch, module.weight, _entries(range(8), 8))
        for module in (block.attention_extra, block.feed_forward_extra)
    ]
    both += [
        _norm(model, batch, module.bias, range(8))
        for module in (block.attention_extra, block.feed_forward_extra)
    ]
    assert norms["block_2"]["extra"] == pytest.approx(math.hypot(*both), rel=1e-5)


@pytest.mark.parametrize("stage", ["2_9", "3_7", "3_14", "4_6", "4_8", "4_10"])
def test_groups_hold_every_parameter_once(batch, stage):
    model = _model(stage)
    found = diagnose(model, *batch)
    F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten()).backward()
    whole = sum(float(parameter.grad.square().sum()) for parameter in model.parameters())
    norms = [norm for groups in found["gradient_norm"].values() for norm in groups.values()]
    assert math.hypot(*norms) == pytest.approx(math.sqrt(whole))


def test_layers_and_groups_are_named():
    x = torch.zeros(1, 4, dtype=torch.int64)
    norms = diagnose(_model("4_10"), x, x)["gradient_norm"]
    block = {"query", "key", "value", "projection", "expand", "contract", "norm"}
    assert {layer: set(groups) for layer, groups in norms.items()} == {
        "embeddings": {"token", "position"},
        "block_1": block,
        "block_2": block,
        "output": {"norm", "lm_head"},
    }


def test_scales_of_the_stream(batch):
    model = _model("4_10")
    scales = diagnose(model, *batch)["residual_rms"]
    stream, expected = model.embed(batch[0]), {}
    for place, block in zip(("embeddings", "block_1", "block_2"), (*model.blocks, None), strict=True):
        values = stream.flatten().tolist()
        expected[place] = math.sqrt(sum(value**2 for value in values) / len(values))
        stream = block(stream) if block is not None else None
    assert scales == pytest.approx(expected)


def test_the_model_and_its_random_numbers_stay_as_they_are(batch):
    model = _model("5_11", num_heads=2, dropout=0.5)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 3.0)
    before = torch.get_rng_state()
    with torch.no_grad():
        diagnose(model, *batch)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(p.grad, torch.full_like(p, 3.0)) for p in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_the_batch_covers_the_split_evenly():
    tokens = np.arange(60_000, dtype=np.uint16)
    x, y = diagnostic_batch(tokens, 8)
    assert x.shape == y.shape == (128, 8)
    assert torch.equal(y, x + 1)
    steps = x[1:, 0] - x[:-1, 0]
    assert int(steps.min()) >= 468 - 1 and int(steps.max()) <= 468 + 1
    assert diagnostic_batch(tokens, 4096)[0].shape == (1, 4096)


def _train(folder, stage, *overrides):
    """Trains a little; returns the records without what depends on the clock, and the weights' file."""
    small = [
        "data=synthetic_play",
        "data.synthetic_characters=9000",
        "trainer.threads=1",
        "trainer.compile=false",
    ]
    timetable = ["trainer.steps=6", "trainer.eval_every=3", "trainer.log_every=2", "trainer.batch_size=4"]
    assert main(["train", f"stage={stage}", f"hydra.run.dir={folder}", *small, *timetable, *overrides]) == 0
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for record in records:
        record.pop("seconds")
        record.pop("tokens_per_second", None)
    return records, next(folder.glob("checkpoints/step_00000006/model.safetensors")).read_bytes()


@pytest.mark.parametrize("recipe", ["default", "walkthrough"])
def test_a_run_learns_the_same_with_and_without(tmp_path, recipe):
    # Dropout draws from a generator at every step, so a single number drawn elsewhere would show.
    plain, weights = _train(tmp_path / "plain", "5_5", f"recipe={recipe}")
    watched, same_weights = _train(
        tmp_path / "watched", "5_5", f"recipe={recipe}", "trainer.diagnostics=true"
    )
    found = [record.pop("diagnostics", None) for record in watched]
    assert watched == plain and weights == same_weights
    logged = [record["step"] for record, one in zip(watched, found, strict=True) if one]
    assert logged == [record["step"] for record in plain if "grad_norm" in record] and len(logged) >= 3
    events = EventAccumulator(str(tmp_path / "watched"))
    events.Reload()
    shown = events.Scalars("training_diagnostics/gradient_norm/block_3/value")
    values = [one["gradient_norm"]["block_3"]["value"] for one in found if one]
    assert [event.step for event in shown] == logged
    assert [event.value for event in shown] == pytest.approx(values, rel=1e-6)
    assert "training_diagnostics/residual_rms/embeddings" in events.Tags()["scalars"]
