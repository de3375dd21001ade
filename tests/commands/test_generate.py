"""gptcli generate as a user types it: prompts of every kind, seeds, JSON, and a terminal that is not driven."""

import io
import json
import sys

import pytest

from gptcli.cli import main


@pytest.fixture(scope="module")
def run(tmp_path_factory, text_path):
    """A trained run; its context is 8 symbols."""
    folder = tmp_path_factory.mktemp("generate") / "run"
    quick = [
        "data=text_file",
        f"data.path={text_path}",
        "trainer.steps=20",
        "trainer.threads=1",
        "trainer.sample_every=0",
    ]
    overrides = [f"hydra.run.dir={folder}", "stage=3_8", "optimizer.learning_rate=0.03", "trainer.compile=false"]
    assert main(["train", *quick, *overrides, "trainer.device=cpu"]) == 0
    return str(folder)


@pytest.fixture
def generate(run, capsys):
    """Runs gptcli generate on the run; returns (status, standard output, standard error)."""
    capsys.readouterr()

    def generate(*arguments, reference=run):
        status = main(["generate", reference, *arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return generate


def test_a_prompt_is_continued(generate, text_path):
    status, out, err = generate("--prompt", "ROMEO:", "--tokens", "30", "--seed", "1")
    assert (status, err) == (0, "")
    assert out.startswith("ROMEO:") and len(out) == len("ROMEO:") + 30 + 1
    assert set(out) <= set(text_path.read_text())


def test_a_seed_repeats_a_text_alone_and_among_others(generate):
    one = generate("--prompt", "the", "--tokens", "20", "--seed", "5")[1]
    assert generate("--prompt", "the", "--tokens", "20", "--seed", "5")[1] == one
    assert generate("--prompt", "the", "--tokens", "20", "--seed", "6")[1] != one
    status, out, _ = generate("--prompt", "the", "--tokens", "20", "--seed", "4", "--samples", "3", "--json")
    samples = json.loads(out)["samples"]
    assert status == 0 and [sample["seed"] for sample in samples] == [4, 5, 6]
    assert "the" + samples[1]["text"] + "\n" == one
    assert all(len(sample["text"]) == 20 and sample["prompt"] == "the" for sample in samples)


def test_without_a_seed_texts_differ(generate):
    texts = {generate("--prompt", "the", "--tokens", "40")[1] for _ in range(3)}
    assert len(texts) == 3


def test_several_samples_are_told_apart(generate):
    _, out, _ = generate("--prompt", "a", "--tokens", "5", "--samples", "2", "--seed", "8")
    assert "--- 1 of 2, seed 8" in out and "--- 2 of 2, seed 9" in out


@pytest.mark.parametrize("options", [["--temperature", "0"], ["--top-k", "1"]])
def test_greedy_needs_no_seed(generate, options):
    first, second = (generate("--prompt", "the", "--tokens", "20", *options)[1] for _ in range(2))
    assert first == second == generate("--prompt", "the", "--tokens", "20", "--temperature", "0")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--temperature", "-1"], "temperature -1.0"),
        (["--top-k", "-1"], "top-k -1"),
        (["--top-p", "0"], "top-p 0.0"),
        (["--tokens", "0"], "--tokens 0 must be at least 1"),
        (["--samples", "0"], "--samples 0 must be at least 1"),
        (["--seed", "-1"], "--seed -1"),
        (["--tokens", "many"], "--tokens"),
        (["--interactive", "--json"], "--json"),
        (["--prompt", "a", "--prompt-file", "b"], "not allowed with"),
        (["--prompt-file", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_wrong_use_is_one_line_and_status_2(generate, arguments, message):
    status, out, err = generate(*arguments)
    assert (status, out) == (2, "") and message in err and len(err.splitlines()) == 1


def test_top_k_beyond_the_vocabulary_is_off(generate):
    plain = generate("--prompt", "the", "--seed", "2")[1]
    for top_k in ("0", "65", "1000"):
        assert generate("--prompt", "the", "--seed", "2", "--top-k", top_k)[1] == plain


@pytest.mark.parametrize("prompt", [None, ""])
def test_an_empty_prompt_starts_from_a_newline(generate, prompt):
    arguments = [] if prompt is None else ["--prompt", prompt]
    status, out, _ = generate(*arguments, "--tokens", "10", "--seed", "3")
    assert status == 0 and len(out) == 11
    assert generate("--prompt", "\n", "--tokens", "10", "--seed", "3")[1] == "\n" + out


def test_blanks_alone_are_a_prompt(generate):
    status, out, _ = generate("--prompt", "   ", "--tokens", "10", "--seed", "3")
    assert status == 0 and out.startswith("   ") and len(out) == 14


def test_a_prompt_longer_than_the_context_is_cropped_and_said(generate):
    long = "the cat sat on a mat and two dogs ran by " * 2
    status, out, err = generate("--prompt", long, "--tokens", "10", "--seed", "3")
    assert status == 0 and out.startswith(long) and "the prompt's last 8 characters" in err
    assert out[len(long) :] == generate("--prompt", long[-8:], "--tokens", "10", "--seed", "3")[1][8:]


def test_unknown_characters_are_named_or_left_out(generate):
    status, out, err = generate("--prompt", "the Äü cat", "--tokens", "5")
    assert (status, out) == (2, "") and "Ä" in err and "ü" in err and "--skip-unknown" in err
    status, out, err = generate("--prompt", "the Äü cat", "--tokens", "5", "--skip-unknown")
    assert status == 0 and out.startswith("the  cat") and "2 characters" in err


def test_a_prompt_from_a_file_or_from_standard_input(generate, tmp_path, monkeypatch):
    (tmp_path / "prompt.txt").write_text("the cat", encoding="utf-8")
    expected = generate("--prompt", "the cat", "--tokens", "9", "--seed", "1")[1]
    assert generate("--prompt-file", str(tmp_path / "prompt.txt"), "--tokens", "9", "--seed", "1")[1] == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the cat")))
    assert generate("--prompt-file", "-", "--tokens", "9", "--seed", "1")[1] == expected


def test_interactive_goes_on_after_a_bad_prompt(generate, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("the\n#\nROMEO:\n"))
    status, out, err = generate("--interactive", "--tokens", "5", "--seed", "1")
    assert status == 0 and "the" in out and "ROMEO:" in out and "#" in err


def test_checkpoints_and_latest_are_taken(generate, run, tmp_path, monkeypatch):
    expected = generate("--prompt", "the", "--seed", "1")[1]
    for reference in (f"{run}/checkpoints/latest", f"{run}/checkpoints/step_00000020", f"{run}/checkpoints/best"):
        status, out, _ = generate("--prompt", "the", "--seed", "1", reference=reference)
        assert status == 0
        if "best" not in reference:
            assert out == expected
    monkeypatch.chdir(tmp_path)
    status, _, err = generate(reference="latest")
    assert status == 2 and "start one with: gptcli train" in err
    status, _, err = generate(reference="nowhere")
    assert status == 2 and "no run at nowhere" in err


def test_a_strangers_vocabulary_does_not_drive_the_terminal(tmp_path, generate, capsys):
    """The model's symbols come from a text of anyone's; escape sequences come out escaped."""
    text = tmp_path / "evil.txt"
    text.write_text("\x1b[2J\x07ab\u202e" * 300, encoding="utf-8")
    overrides = ["data=text_file", f"data.path={text}", "trainer.steps=2", "trainer.threads=1", "stage=2_9"]
    assert main(["train", f"hydra.run.dir={tmp_path}/run", *overrides, "trainer.device=cpu"]) == 0
    captured = capsys.readouterr()
    status, out, _ = generate("--tokens", "300", "--seed", "1", reference=str(tmp_path / "run"))
    assert status == 0 and "\\x1b" in out
    for character in "\x1b\x07\u202e":
        assert character not in out + captured.out + captured.err
