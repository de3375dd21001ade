"""Finding runs and understanding what a user means by RUN; hostile run directories."""

import json
import os
import subprocess
import sys

import pytest

from gptcli.errors import UserError
from gptcli.runs import Run, RunReference, find_runs, resolve_run
from gptcli.training.lock import RunLock
from gptcli.training.run_directory import RunDirectory, create_run_directory


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _make(path, created="2027-01-05T14:03:22+00:00", **info):
    run = create_run_directory(path)
    run.write_info({
        "status": "finished", "stage": "4_10", "created": created, "step": 10, "steps": 10, "val_loss": 2.0,
        "config": {"seed": 3, "model": {"num_heads": 4}}, **info,
    })  # fmt: skip
    for step in (5, 10):
        (run.checkpoints / f"step_{step:08d}").mkdir()
    (run.checkpoints / "latest").write_text("step_00000010\n")
    (run.checkpoints / "best").write_text("step_00000005\n")
    return run.path


def _names(runs):
    return [run.path.name for run in runs]


def test_runs_are_found_newest_first_whatever_their_time_zone():
    _make("outputs/2027-01-05/old", "2027-01-05T14:00:00+00:00")
    _make("outputs/2027-01-05/new", "2027-01-05T12:30:00-05:00")
    _make("outputs/multirun/2027-01-05/14-00-00/0-num_heads=4", "2027-01-05T16:00:00+01:00")
    assert _names(find_runs()) == ["new", "0-num_heads=4", "old"]
    assert resolve_run("latest") == RunReference(find_runs()[0].path, None)
    assert _names(find_runs(["latest"])) == ["new"]


def test_paths_sweeps_and_patterns():
    for name in ("a", "b", "c"):
        _make(f"outputs/multirun/day/time/{name}")
    _make("outputs/day/x")
    assert sorted(_names(find_runs(["outputs/multirun/day/time"]))) == ["a", "b", "c"]
    assert sorted(_names(find_runs(["outputs/multirun/day/time/[ab]", "outputs/day/x"]))) == ["a", "b", "x"]
    assert _names(find_runs(["outputs/day", "outputs/day/x", "./outputs/day/../day/x"])) == ["x"]
    with pytest.raises(UserError, match="no run at nowhere"):
        find_runs(["nowhere*"])


def test_no_outputs_folder_is_an_empty_list():
    assert find_runs() == []


def test_values_and_metrics_of_a_run():
    path = _make("outputs/a")
    lines = ['{"step": 1, "val_loss": 2.5}', "half", "[]", '{"step": "x"}', '{"step": 2, "val_loss": null}']
    (path / "metrics.jsonl").write_text("\n".join(lines) + '\n{"step": 3')
    run = Run(path)
    assert run.metrics() == [{"step": 1, "val_loss": 2.5}, {"step": 2, "val_loss": None}]
    assert run.config["model"] == {"num_heads": 4}
    keys = ("model.num_heads", "seed", "stage", "a.b")
    assert [run.value(key) for key in keys] == [4, 3, "4_10", None]
    assert run.checkpoints() == ["step_00000005", "step_00000010"]
    assert run.damage is None


def test_running_run_without_a_process_is_dead():
    path = _make("outputs/a", status="running")
    assert Run(path).status == "dead"
    with RunLock(path):
        assert Run(path).status == "running"


@pytest.mark.parametrize(
    ("content", "damage"),
    [
        ("", "not valid JSON"),
        ("[]", "JSON object"),
        ('{"format": 1, "stage": [1]}', "stage has the wrong type"),
        ('{"format": 1, "status": null}', "status has the wrong type"),
        ('{"format": 1, "step": true}', "step has the wrong type"),
        ('{"format": true}', "format has the wrong type"),
        ('{"format": 1, "val_loss": "\\u001b[2J"}', "val_loss has the wrong type"),
        ('{"format": 1, "config": [' + "[" * 5000, "JSON"),
        ('{"format": 2}', "format 2"),
        ('{"status": "finished"}', "format None"),
        ('{"a": "' + "x" * 2**25 + '"}', "too large"),
        (None, "missing"),
        ("link", "symbolic link"),
    ],
)
def test_damaged_runs_are_listed_and_refused(content, damage, tmp_path):
    good, bad = _make("outputs/good"), _make("outputs/bad")
    (bad / "run.json").unlink()
    if content == "link":
        (bad / "run.json").symlink_to(tmp_path / "outputs" / "good" / "run.json")
    elif content is not None:
        (bad / "run.json").write_text(content)
    runs = {run.path.name: run for run in find_runs()}
    assert runs["good"].damage is None and runs["bad"].status == "damaged"
    assert damage in runs["bad"].damage
    assert resolve_run("latest").run_path == good
    with pytest.raises(UserError) as error:
        resolve_run("outputs/bad")
    assert "bad" in str(error.value) and "\n" not in str(error.value) and "\x1b" not in str(error.value)


def test_what_a_user_may_mean_by_a_run(tmp_path):
    path = _make("outputs/day/a")
    step = "outputs/day/a/checkpoints/step_00000005"
    (path / "checkpoints" / "step_00000005" / "model.safetensors").write_text("")
    for text, checkpoint in [
        ("outputs/day/a", None),
        ("outputs/day/a/", None),
        (str(tmp_path / "outputs/day/a"), None),
        ("outputs/day/a/run.json", None),
        ("outputs/day/a/checkpoints", None),
        (step, "step_00000005"),
        (f"{step}/model.safetensors", "step_00000005"),
        ("outputs/day/a/checkpoints/best", "step_00000005"),
        ("outputs/day/a/checkpoints/latest", "step_00000010"),
    ]:
        found = resolve_run(text)
        assert found.run_path.resolve() == path.resolve() and found.checkpoint_name == checkpoint, text


def test_run_from_within_its_own_folder(monkeypatch):
    path = _make("outputs/a").absolute()
    monkeypatch.chdir(path / "checkpoints")
    assert resolve_run("step_00000005").checkpoint_name == "step_00000005"
    assert resolve_run("step_00000005").run_path.resolve() == path
    monkeypatch.chdir(path)
    assert resolve_run(".").run_path.resolve() == path
    assert resolve_run("checkpoints/step_00000005").checkpoint_name == "step_00000005"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("latest", "no run in outputs.*gptcli train"),
        ("nowhere", "no run at nowhere"),
        ("plain", "no run at plain: it holds no run.json"),
        ("plain/file", "no run at plain/file"),
        ("", "no run at"),
        ("a\x1b[2J", r"no run at a\\x1b"),
        ("x" * 5000, "no run at"),
    ],
)
def test_what_is_no_run(text, message, tmp_path):
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "file").write_text("")
    with pytest.raises(UserError, match=message):
        resolve_run(text)


def test_near_names_are_suggested():
    _make("outputs/2027-01-05/14-03-22-4_10-7c1e")
    for text in ("outputs/2027-01-05/14-03-22-4_10-7c1f", "7c1e", "14-03-22-4_10-7c1e"):
        with pytest.raises(UserError, match="did you mean outputs/2027-01-05/14-03-22-4_10-7c1e"):
            resolve_run(text)


def test_sweep_folder_says_how_to_name_a_run():
    for name in ("0-a", "1-b"):
        _make(f"outputs/multirun/day/time/{name}")
    with pytest.raises(UserError, match=r"a folder of 2 runs; name one of them, such as outputs/.*/0-a"):
        resolve_run("outputs/multirun/day/time")


def test_newer_run_format_asks_for_a_newer_version():
    path = _make("outputs/a")
    (path / "run.json").write_text(json.dumps({"format": 7, "status": {"new": "form"}}))
    with pytest.raises(UserError, match=r"newer gptcli \(run format 7"):
        resolve_run("outputs/a")


def test_links_that_leave_a_run_are_refused_and_links_to_a_run_are_not(tmp_path):
    path, other = _make("outputs/a"), _make("outputs/b")
    (tmp_path / "mine").symlink_to(path.absolute())
    assert resolve_run("mine/checkpoints/step_00000005").checkpoint_name == "step_00000005"
    (path / "checkpoints" / "step_00000099").symlink_to((other / "checkpoints" / "step_00000005").absolute())
    with pytest.raises(UserError, match="leaves the run"):
        resolve_run("outputs/a/checkpoints/step_00000099")
    (path / "checkpoints" / "best").write_text("../../b/checkpoints/step_00000005")
    with pytest.raises(UserError, match="best does not hold the name"):
        resolve_run("outputs/a/checkpoints/best")
    (tmp_path / "outputs" / "loop").symlink_to(tmp_path / "outputs")
    assert sorted(_names(find_runs())) == ["a", "b"]


def test_folder_that_cannot_be_read_is_passed_over(monkeypatch):
    _make("outputs/a")
    original = os.scandir

    def scandir(path):
        if str(path) == "outputs/locked":
            raise PermissionError
        return original(path)

    os.mkdir("outputs/locked")
    monkeypatch.setattr(os, "scandir", scandir)
    assert _names(find_runs()) == ["a"]


def test_no_torch_is_imported():
    code = "import sys, gptcli.runs, gptcli.commands.runs; assert not {'torch', 'numpy'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_update_of_a_run_being_listed_is_seen_whole():
    run = RunDirectory(_make("outputs/a"))
    run.update_info(status="interrupted", reason="SIGINT at step 7")
    (found,) = find_runs()
    assert (found.status, found.info["reason"]) == ("interrupted", "SIGINT at step 7")
