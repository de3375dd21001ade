"""gptcli diff as a user types it: stages, runs, and one of each."""

import json

import pytest

from gptcli.cli import main


def facts(capsys, before, after):
    """Returns what gptcli diff --json prints."""
    assert main(["diff", before, after, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_two_stages(capsys):
    assert main(["diff", "4_9", "4_10"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4_9 -> 4_10   The final layer normalization"
    assert lines[1].split() == ["model.final_norm", "false", "->", "true"]
    assert " ".join(lines[2].split()) == (
        "parameters 42,305 -> 42,369 (+64: final_norm.weight +32, final_norm.bias +32)"
    )
    assert len(lines) == 3


@pytest.mark.parametrize(
    ("before", "after", "settings", "change"),
    [
        ("3_14", "3_18", {"optimizer.learning_rate": {"before": 0.001, "after": 0.0001}}, 0),
        ("4_8", "4_9", {"model.extra_projection": {"before": True, "after": False},
                        "model.norm": {"before": "none", "after": "layer_norm"}}, 42_305 - 48_257),
        ("4_1", "4_1", {}, 0), ("4_2", "4_3", {}, 0), ("5_11", "5_14", {}, 0),
        ("4_7", "4_6", {"model.residual": {"before": True, "after": False}}, 0),
    ],
)  # fmt: skip
def test_settings_and_parameters(capsys, before, after, settings, change):
    found = facts(capsys, before, after)
    assert found["settings"] == settings
    assert found["parameters"]["after"] - found["parameters"]["before"] == change
    assert sum(found["parameters"]["by_tensor"].values()) == change


def test_runs(capsys, quick, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "hydra.run.dir=a", "stage=4_10", *quick, "trainer.steps=1"]) == 0
    assert (
        main(["train", "hydra.run.dir=b", "stage=4_10", *quick, "trainer.steps=1", "seed=7", "model.num_heads=8"]) == 0
    )
    capsys.readouterr()
    found = facts(capsys, "a", "b")["settings"]
    assert found == {"seed": {"before": 42, "after": 7}, "model.num_heads": {"before": 4, "after": 8}}
    found = facts(capsys, "4_10", "b")["settings"]
    assert found["model.num_heads"] == {"before": 4, "after": 8} and "trainer.steps" in found and "seed" not in found


def test_wrong_use(capsys):
    assert main(["diff", "4_9", "nowhere"]) == 2
    assert "'nowhere' is neither a stage nor a run; the stages are 2_9" in capsys.readouterr().err
    assert main(["diff", "4_9"]) == 2
