"""gptcli eval as a user types it, against losses computed window by window."""

import json
import math
import statistics

import pytest
import torch
from torch.nn import functional as F

from gptcli.cli import main
from gptcli.runs import RunReference
from gptcli.training.loading import load_model


@pytest.fixture
def run(tmp_path, monkeypatch, quick, capsys):
    """A trained run in the folder `run`."""
    monkeypatch.chdir(tmp_path)
    assert main(["train", "hydra.run.dir=run", "stage=4_10", *quick]) == 0
    capsys.readouterr()
    return tmp_path / "run"


def facts(capsys, *arguments):
    """Returns what gptcli eval --json prints."""
    assert main(["eval", "run", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def naive(run, text):
    """Returns the losses of every window of 8 symbols, one window at a time: list of lists."""
    loaded = load_model(RunReference(run, None))
    ids = torch.from_numpy(loaded.tokenizer.encode(text)).long()
    losses = []
    with torch.no_grad():
        for start in range(0, len(ids) - 8, 8):
            logits = loaded.model(ids[None, start : start + 8])[0]
            losses.append(F.cross_entropy(logits, ids[start + 1 : start + 9], reduction="none").tolist())
    return losses


@pytest.mark.parametrize("split", ["validation", "train"])
def test_the_loss_of_a_whole_split(run, capsys, text_path, split):
    text = text_path.read_text()
    cut = int(0.9 * len(text))
    losses = naive(run, text[cut:] if split == "validation" else text[:cut])
    means = [statistics.fmean(window) for window in losses]
    found = facts(capsys, "--split", split)
    assert found["loss"] == pytest.approx(statistics.fmean(means), abs=1e-5)
    assert found["standard_error"] == pytest.approx(statistics.stdev(means) / math.sqrt(len(means)), rel=1e-4)
    by_position = [statistics.fmean(place) for place in zip(*losses, strict=True)]
    assert found["loss_by_position"] == pytest.approx(by_position, abs=1e-5)
    assert found["bits_per_character"] == pytest.approx(found["loss"] / math.log(2))
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))
    assert (found["split"], found["characters"], found["step"]) == (split, 8 * len(losses), 20)


def test_the_default_is_what_the_run_measured_at_its_end(run, capsys):
    recorded = json.loads((run / "run.json").read_text())
    found = facts(capsys)
    assert found["loss"] == pytest.approx(recorded["full_val_loss"], abs=1e-5)
    assert found["standard_error"] == pytest.approx(recorded["full_val_loss_standard_error"], rel=1e-3)
    assert main(["eval", "run"]) == 0
    text = capsys.readouterr().out
    assert f"{found['loss']:.4f}" in text and "perplexity" in text and "by characters seen" in text


def test_another_text_is_measured_as_a_whole(run, capsys, tmp_path):
    (tmp_path / "other.txt").write_text("the cat sat on a mat and two dogs ran by; " * 3)
    losses = naive(run, (tmp_path / "other.txt").read_text())
    found = facts(capsys, "--data-path", "other.txt")
    assert found["loss"] == pytest.approx(statistics.fmean(map(statistics.fmean, losses)), abs=1e-5)
    assert found["split"] is None


def test_best_and_named_checkpoints(run, capsys):
    best = (run / "checkpoints" / "best").read_text().strip()
    assert facts(capsys, "--best")["step"] == int(best.removeprefix("step_"))
    assert main(["eval", "run/checkpoints/step_00000010", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step"] == 10


def test_texts_that_do_not_fit_are_named(run, capsys, tmp_path, text_path):
    (tmp_path / "strange.txt").write_text("the cät sat on a mat")
    assert main(["eval", "run", "--data-path", "strange.txt"]) == 2
    assert "ä" in capsys.readouterr().err
    (tmp_path / "short.txt").write_text("the cat")
    assert main(["eval", "run", "--data-path", "short.txt"]) == 2
    error = capsys.readouterr().err
    assert "7 characters" in error and "9" in error
    assert main(["eval", "run", "--data-path", "nowhere.txt"]) == 2
    assert "nowhere.txt" in capsys.readouterr().err
    assert main(["eval", "nowhere"]) == 2
    assert "no run at nowhere" in capsys.readouterr().err


def test_a_corpus_that_has_changed_since_is_refused_with_the_difference(tmp_path, monkeypatch, quick, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.txt").write_text("the cat sat on a mat. " * 30)
    assert main(["train", "hydra.run.dir=run", "stage=2_9", *quick, "data.path=mine.txt"]) == 0
    (tmp_path / "mine.txt").write_text("the cat sat on a map! " * 30)
    capsys.readouterr()
    assert main(["eval", "run"]) == 2
    error = capsys.readouterr().err
    assert "is not the corpus that the run was trained on" in error and "'!'" in error and "'.'" in error
