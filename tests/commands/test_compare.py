"""gptcli compare as it is typed: what it prints, what it writes, and how it refuses."""

import json
import subprocess
import sys

import pytest

from gptcli.cli import main

LOSSES = {"4_7": (2.20, 2.24, 2.21), "4_9": (2.11, 2.13, 2.12)}


def write_run(folder, stage, seed, loss, **info):
    """Writes a run with no more than compare needs; the configuration is cut short as well."""
    folder.mkdir(parents=True)
    record = {
        "format": 1,
        "status": "finished",
        "seed": seed,
        "val_loss": loss,
        "parameters": 42_000,
        "corpus": {"name": "tiny_shakespeare", "sha256": "ab", "vocabulary": ["a", "b"]},
        "config": {"seed": seed, "stage": {"name": stage}, "model": {"num_heads": 4}},
        **info,
    }
    (folder / "run.json").write_text(json.dumps(record))
    (folder / "metrics.jsonl").write_text(
        f'{{"step": 0, "val_loss": 4.2}}\n{{"step": 10, "val_loss": {loss}}}\n'
    )


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    for stage, losses in LOSSES.items():
        for seed, loss in enumerate(losses):
            write_run(tmp_path / "outputs" / "multirun" / f"{stage}-{seed}", stage, seed, loss)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def compare(*arguments):
    return main(["compare", *map(str, arguments)])


@pytest.mark.parametrize(
    "runs",
    [["outputs/multirun"], ["outputs/multirun/*"], ["outputs/multirun/4_7-*", "outputs/multirun/4_9-*"]],
    ids=["folder", "glob", "two globs"],
)
def test_table(sweep, capsys, runs):
    assert compare(*runs) == 0
    out = capsys.readouterr().out
    assert "metric val_loss (not all runs have full_val_loss)" in out
    # Gaps -0.09, -0.11, -0.09: mean -0.0967, half width 4.302653 * 0.011547 / sqrt(3) = 0.0287.
    assert "-0.0967 ± 0.0287  p 0.005  better" in out


def test_json_alone_on_standard_output(sweep, capsys):
    assert compare("outputs", "--json", "--baseline", "4_9", "--csv", "a.csv") == 0
    out, err = capsys.readouterr()
    data = json.loads(out)
    assert data["baseline"] == "4_9" and [group["reading"] for group in data["groups"]] == [
        "worse",
        "baseline",
    ]
    assert err == "wrote a.csv\n" and (sweep / "a.csv").read_text().startswith("group,metric,seeds,mean,")


def test_latest_is_a_run(sweep, capsys):
    assert compare("latest") == 0
    assert "1 seed each" in capsys.readouterr().out


def test_files_are_written_and_replaced(sweep, capsys):
    for _ in range(2):
        assert compare("outputs", "--png", "a.png", "--html", "a.html", "--csv", "a.csv") == 0
    assert sorted(path.name for path in sweep.iterdir()) == ["a.csv", "a.html", "a.png", "outputs"]
    assert (sweep / "a.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("option", ["--csv", "--png", "--html"])
def test_a_file_of_someone_else_is_kept(sweep, capsys, option):
    (sweep / "notes.txt").write_text("mine")
    assert compare("outputs", option, "notes.txt") == 2
    assert capsys.readouterr().err.startswith(f"error: {option} notes.txt exists and is not a comparison")
    assert (sweep / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "no run at nowhere"),
        (["outputs", "--by", "model.num_haeds"], "did you mean model.num_heads"),
        (["outputs", "--baseline", "5_11"], "is not one of the groups: 4_7, 4_9"),
        (["outputs", "--metric", "accuracy"], "full_val_loss"),
        (["outputs", "--html", "none/a.html"], "the folder none does not exist"),
        ([], "RUN"),
    ],
)
def test_wrong_use_is_one_line_and_status_2(sweep, capsys, arguments, words):
    assert compare(*arguments) == 2
    out, err = capsys.readouterr()
    assert words in err and err.count("\n") == 1 and out == ""


def test_a_folder_without_runs_is_an_error(tmp_path, capsys):
    assert compare(tmp_path) == 2
    assert "nothing to compare" in capsys.readouterr().err


def test_no_torch_is_imported(sweep):
    code = "import sys; from gptcli.cli import main; main(['compare', 'outputs', '--html', 'a.html']); "
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
