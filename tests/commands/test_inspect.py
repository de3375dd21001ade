"""gptcli inspect as it is typed, on untrained runs of every stage."""

import json
import struct

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from gptcli.cli import main
from gptcli.composition import compose, hydra_session, prepare
from gptcli.config import to_dict
from gptcli.data.corpus import load_corpus
from gptcli.stages import stage_names
from gptcli.training.checkpoint import save_checkpoint
from gptcli.training.lock import RunLock
from gptcli.training.recorder import Recorder
from gptcli.training.run_directory import create_run_directory
from gptcli.training.workplace import build_model

SMALL = ["data=synthetic_play", "data.synthetic_characters=6000", "trainer.steps=7"]
SMALL_FINAL = ["model.embedding_dim=12", "model.num_heads=2", "model.num_layers=2", "model.block_size=16"]


def _save_run(folder, stage, *overrides):
    """Writes a run of a stage whose newest checkpoint, of step 7, is the initial model."""
    final = SMALL_FINAL if stage.split("_")[0] == "5" and int(stage.split("_")[1]) > 10 else []
    with hydra_session():
        config, _ = compose(prepare([f"stage={stage}", *SMALL, *final, *overrides]))
    corpus = load_corpus(config.data)
    model = build_model(config, corpus.tokenizer.vocabulary_size)
    directory = create_run_directory(folder)
    identity = {"name": corpus.name, "sha256": corpus.sha256}
    directory.write_info(
        {"status": "finished", "stage": stage, "config": to_dict(config), "corpus": identity}
    )
    state = {"config": to_dict(config), "vocabulary": list(corpus.tokenizer.symbols), "corpus": identity}
    weights = {name: tensor.detach() for name, tensor in model.named_parameters()}
    save_checkpoint(folder, 7, weights, {"step": torch.tensor(7)}, state, keep=0, best=True)
    directory.metrics.write_text('{"step": 7, "batch_loss": 4.0}\n', encoding="utf-8")
    return folder


@pytest.fixture
def run_of(tmp_path):
    return lambda stage="4_10", *overrides: _save_run(tmp_path / "run", stage, *overrides)


def _strict_json(text):
    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def _inspect(capsys, *arguments):
    """Runs gptcli inspect and returns (status, standard output, standard error)."""
    status = main(["inspect", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize("stage", stage_names())
def test_every_stage_is_inspected(run_of, capsys, stage):
    status, out, _ = _inspect(capsys, run_of(stage), "--json", "--windows", 6)
    assert status == 0
    facts = _strict_json(out)
    assert (facts["stage"], facts["step"], facts["windows"]) == (stage, 7, 6)
    # The checkpoint is the initial model, so both moments are the same.
    for name in ("gradient_norm", "residual_rms", "dead_relu_share"):
        assert facts[name]["initial"] == facts[name]["checkpoint"]
    has_blocks = stage not in ("2_9", "3_7", "3_8")
    assert bool(facts["attention"]) == bool(facts["ablation"]) == has_blocks
    assert any("no blocks" in note for note in facts["notes"]) != has_blocks


@pytest.mark.parametrize("stage", ["2_9", "3_14", "5_11"])
def test_what_applies_is_drawn(run_of, capsys, tmp_path, stage):
    status, _, err = _inspect(capsys, run_of(stage), "--windows", 4, "--png", tmp_path / "figures")
    always, with_blocks = {"gradients", "residual_stream", "depth"}, {"attention", "heads", "worth"}
    drawn = {path.name for path in (tmp_path / "figures").iterdir()}
    assert status == 0 and err.count("wrote") == len(drawn)
    assert drawn == {f"{name}.png" for name in always | (with_blocks if stage != "2_9" else set())}


def test_maps_are_lower_triangular_and_sum_to_one(run_of, capsys):
    _, out, _ = _inspect(capsys, run_of(), "--json", "--windows", 4, "--text", "ROMEO:\n")
    attention = _strict_json(out)["attention"]
    assert attention["text"] == {"characters": "ROMEO:\n", "source": "--text", "cropped": 0}
    assert (len(attention["maps"]), len(attention["maps"][0])) == (3, 4)
    for of_block in attention["maps"]:
        for head in of_block:
            for query, row in enumerate(head):
                assert len(row) == 7 and sum(row) == pytest.approx(1.0, abs=1e-5)
                assert all(weight == 0.0 for weight in row[query + 1 :])


def test_loss_of_an_untrained_model(run_of, capsys):
    run = run_of()
    _, out, _ = _inspect(capsys, run, "--json", "--windows", 10_000)
    facts = _strict_json(out)
    assert main(["eval", str(run), "--json"]) == 0
    measured = _strict_json(capsys.readouterr().out)
    # All windows of the split, as eval takes them.
    assert facts["loss"] == pytest.approx(measured["loss"], abs=1e-6)
    assert facts["standard_error"] == pytest.approx(measured["standard_error"], abs=1e-6)
    assert [one["loss"] for one in facts["loss_by_position"]] == pytest.approx(
        measured["loss_by_position"], abs=1e-5
    )
    assert facts["characters"] == measured["characters"]


@pytest.mark.parametrize("stage", ["2_9", "3_14", "4_6", "4_10"])
def test_the_terminal_names_what_was_measured(run_of, capsys, stage):
    status, out, _ = _inspect(capsys, run_of(stage), "--windows", 4)
    assert status == 0
    assert f"stage {stage}" in out and "loss by characters seen" in out
    assert ("heads (block.head)" in out) == (stage != "2_9")
    assert ("no residual connections" in out) == (stage in ("3_14", "4_6"))


def test_a_context_of_one_character(run_of, capsys, tmp_path):
    run = run_of("4_10", "model.block_size=1")
    status, out, _ = _inspect(capsys, run, "--json", "--windows", 3, "--png", tmp_path / "page.png")
    facts = _strict_json(out)
    assert status == 0 and facts["attention"]["maps"][0][0] == [[1.0]]
    assert facts["attention"]["heads"][0]["previous"] is None
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


def test_a_long_text_is_cropped_and_that_is_said(run_of, capsys):
    run = run_of()
    status, out, err = _inspect(capsys, run, "--json", "--windows", 2, "--text", "To be, or not to be")
    text = _strict_json(out)["attention"]["text"]
    assert status == 0 and text == {"characters": "ot to be", "source": "--text", "cropped": 11}
    assert "the context is 8 characters" in err and "11" in err


def test_wrong_use_is_said_in_one_line(run_of, capsys, tmp_path):
    run = run_of()
    (tmp_path / "notes.png").write_text("mine")
    for arguments, words in (
        (["--text", "ROMÉO"], "unknown character 'É'"),
        (["--text", ""], "--text is empty"),
        (["--windows", "0"], "--windows 0 must be at least 1"),
        (["--png", tmp_path / "notes.png"], "exists and is not an inspection"),
        (["--png", tmp_path / "nowhere" / "page.png"], "does not exist"),
    ):
        status, out, err = _inspect(capsys, run, *arguments)
        assert status == 2 and out == "" and words in err and err.count("\n") == 1
    assert (tmp_path / "notes.png").read_text() == "mine"


def test_an_earlier_inspection_may_be_replaced(run_of, capsys, tmp_path):
    run, page = run_of("2_9"), tmp_path / "page.png"
    for _ in range(2):
        status, _, err = _inspect(capsys, run, "--windows", 2, "--png", page)
        assert status == 0 and f"wrote {page}" in err


@pytest.mark.parametrize("option", [["--png", "page.png"], ["--tensorboard"]])
def test_a_missing_matplotlib_is_named(run_of, capsys, monkeypatch, option):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    status, _, err = _inspect(capsys, run_of(), *option)
    assert status == 2 and "pip install 'gptcli[plots]'" in err


def test_control_characters_do_not_reach_the_terminal(run_of, capsys):
    run = run_of("4_10", "stage.title='\x1b[31mred'")
    _, out, _ = _inspect(capsys, run, "--windows", 2)
    assert "\x1b" not in out and "\\x1b[31mred" in out


def test_tensorboard_shows_figures_and_numbers_beside_the_curves(run_of, capsys):
    run = run_of()
    recorder = Recorder(run, {"seed": 0})
    recorder.record(3, val_loss=2.5)
    recorder.record(9, val_loss=2.25)
    recorder.close()
    status, out, _ = _inspect(capsys, run, "--json", "--windows", 4, "--tensorboard")
    facts = _strict_json(out)
    assert status == 0
    events = EventAccumulator(str(run))
    events.Reload()
    # What the run itself recorded is still there, later steps than the checkpoint's included.
    assert [(event.step, event.value) for event in events.Scalars("loss/validation")] == [(3, 2.5), (9, 2.25)]
    names = ("attention", "heads", "worth", "gradients", "residual_stream", "depth")
    assert set(events.Tags()["images"]) == {f"inspect/{name}" for name in names}
    image = events.Images("inspect/attention")[0]
    assert image.step == 7
    assert (image.width, image.height) == struct.unpack(">II", image.encoded_image_string[16:24])
    worth = next(part for part in facts["ablation"] if (part["block"], part["head"]) == (2, 3))
    shown = events.Scalars("inspect/worth/block_2/head/3")[0].value
    assert shown == pytest.approx(worth["difference"], rel=1e-6)
    loss = events.Scalars("inspect/loss_by_depth/block_3")[0].value
    assert loss == pytest.approx(facts["loss"], rel=1e-6)


def test_a_run_in_training_keeps_its_event_files(run_of, capsys):
    run = run_of()
    with RunLock(run):
        status, _, err = _inspect(capsys, run, "--windows", 2, "--tensorboard")
    assert status == 2 and "in use" in err
    assert not list(run.glob("events.out.tfevents.*"))
