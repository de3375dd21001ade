"""gptcli params as a user types it, against counts made by hand."""

import json

import pytest

from gptcli.cli import main


def facts(capsys, *arguments):
    """Returns what gptcli params --json prints."""
    assert main(["params", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_tensors_and_total(capsys):
    found = facts(capsys, "stage=4_10")
    assert found["stage"] == "4_10" and found["parameters"] == 42_369
    assert found["tensors"]["blocks.1.attention.qkv.weight"] == {"shape": [96, 32], "parameters": 3072}
    assert sum(one["parameters"] for one in found["tensors"].values()) == 42_369
    assert main(["params", "stage=4_10"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert next(line for line in lines if line.startswith("lm_head.weight")).split() == [
        "lm_head.weight",
        "65x32",
        "2,080",
    ]
    assert next(line for line in lines if line.startswith("total")).split() == ["total", "42,369"]


@pytest.mark.parametrize(
    ("overrides", "parameters"),
    [
        (["stage=2_9"], 65 * 65), (["stage=2_9", "--vocabulary", "10"], 100), (["stage=5_11"], 10_788_929),
        (["stage=4_10", "model.num_layers=0", "model.attention=none", "model.feed_forward=none", "model.residual=false",
          "model.norm=none", "model.num_heads=1"], 65 * 32 + 8 * 32 + 64 + 32 * 65 + 65),
        (["stage=4_10", "model.position=sinusoidal"], 42_369 - 8 * 32), (["stage=4_10", "model.num_heads=32"], 42_369),
    ],
)  # fmt: skip
def test_counts(capsys, overrides, parameters):
    found = facts(capsys, *overrides)
    assert found["parameters"] == parameters
    assert found["memory_bytes"]["state"] == 16 * parameters


def test_cost_grows_with_the_batch(capsys):
    one, two = (facts(capsys, f"trainer.batch_size={size}") for size in (32, 64))
    assert one["flops_per_step"] == one["flops_per_token"] * 32 * 8
    assert two["flops_per_step"] == 2 * one["flops_per_step"]
    assert two["memory_bytes"]["activations"] == 2 * one["memory_bytes"]["activations"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--vocabulary", "0"], "--vocabulary 0 must be at least 1"), (["model.num_heads=5"], "does not divide"),
        (["stage=4_11"], "unknown stage"), (["stage=4_9,4_10"], "names several values"),
    ],
)  # fmt: skip
def test_wrong_use(capsys, arguments, message):
    assert main(["params", *arguments]) == 2
    assert message in capsys.readouterr().err
