"""gptcli runs as a user types it."""

import json

import pytest

from gptcli.cli import main
from gptcli.training.run_directory import create_run_directory


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, hour, loss, heads, status in [
        ("a", 10, 2.5, 4, "finished"),
        ("b", 12, 2.25, 8, "running"),
        ("c", 11, None, 8, "failed"),
    ]:
        run = create_run_directory(f"outputs/day/{name}")
        run.write_info({
            "created": f"2027-01-05T{hour}:00:00+00:00", "status": status, "stage": "4_10", "step": 500,
            "steps": 1000, "val_loss": loss, "best_val_loss": loss,
            "reason": "loss is nan\x1b[2J" if status == "failed" else None,
            "config": {"model": {"num_heads": heads, "residual": True}},
        })  # fmt: skip
    (tmp_path / "outputs" / "day" / "d" / "checkpoints").mkdir(parents=True)


def _json(capsys, *arguments):
    assert main(["runs", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_table_shows_every_run_with_its_status(capsys):
    assert main(["runs"]) == 0
    output = capsys.readouterr().out
    lines = {line.split()[0]: line for line in output.splitlines()}
    assert all(text in lines["outputs/day/b"] for text in ("dead", "2.2500", "500/1,000"))
    assert "failed" in lines["outputs/day/c"] and "loss is nan\\x1b[2J" in lines["outputs/day/c"]
    assert "damaged" in lines["outputs/day/d"] and "run.json is missing" in lines["outputs/day/d"]
    assert "\x1b" not in output


def test_json_newest_first_and_sorted(capsys):
    found = [run["path"][-1] for run in _json(capsys)]
    assert [name for name in found if name != "d"] == ["b", "c", "a"]
    assert [run["path"][-1] for run in _json(capsys, "--sort", "val_loss")][:2] == ["b", "a"]
    (one,) = _json(capsys, "outputs/day/a")
    assert (one["status"], one["step"], one["val_loss"], one["damage"]) == ("finished", 500, 2.5, None)


@pytest.mark.parametrize(
    ("conditions", "names"),
    [
        (["stage=4_10"], "bca"),
        (["model.num_heads=8"], "bc"),
        (["model.num_heads=8.0", "status=dead"], "b"),
        (["model.residual=True", "val_loss=null"], "c"),
        (["model.num_heads=x"], ""),
        (["status=damaged"], "d"),
    ],
)
def test_where(capsys, conditions, names):
    arguments = [part for condition in conditions for part in ("--where", condition)]
    assert "".join(run["path"][-1] for run in _json(capsys, *arguments)) == names


def test_wrong_use_is_one_line_and_status_2(capsys):
    for arguments, text in ((["--where", "stage"], "KEY=VALUE"), (["nowhere"], "no run at nowhere")):
        assert main(["runs", *arguments]) == 2
        output = capsys.readouterr()
        assert text in output.err and output.err.count("\n") <= 2 and output.out == ""


def test_no_runs_says_how_to_start_one(capsys, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert main(["runs"]) == 0
    assert capsys.readouterr().out == "no runs; start one with: gptcli train\n"
    assert _json(capsys) == []
