"""Run directories: who gets one, what is refused, and what run.json says and does not say."""

import errno
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gptcli.errors import UserError
from gptcli.training.files import UnreadableFile
from gptcli.training.run_directory import (
    RunDirectory,
    create_run_directory,
    environment_info,
    git_revision,
    portable_path,
    step_name,
)


def test_new_and_empty_folders_become_runs(tmp_path):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "a" / "b c" / "ünï", tmp_path / "empty"):
        run = create_run_directory(path)
        assert run.path == path and run.checkpoints.is_dir()


def test_folder_with_other_files_is_no_run(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    create_run_directory(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    "name",
    ["run.json", "checkpoints", "metrics.jsonl", "samples.txt", ".hydra", "events.out.tfevents.1700000000"],
)
def test_folder_that_holds_a_run_is_refused_and_resume_named(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(UserError, match=r"already holds a run.*gptcli resume"):
        create_run_directory(tmp_path)
    assert os.listdir(tmp_path) == [name]


def test_files_in_the_way_are_named(tmp_path):
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(UserError, match="is a file"):
            create_run_directory(path)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("error", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_parent_that_cannot_be_written_is_named(tmp_path, monkeypatch, error):
    def refuse(*_, **__):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(UserError, match=os.strerror(error)) as caught:
        create_run_directory(tmp_path / "run")
    assert str(tmp_path / "run") in str(caught.value) and "\n" not in str(caught.value)


def test_name_that_is_too_long_is_named(tmp_path):
    with pytest.raises(UserError, match="too long"):
        create_run_directory(tmp_path / ("x" * 300))


def test_of_several_processes_one_gets_the_folder(tmp_path):
    code = f"""
import sys
from gptcli.errors import UserError
from gptcli.training.run_directory import create_run_directory
sys.stdin.readline()
try:
    create_run_directory({str(tmp_path / "run")!r})
    print("mine")
except UserError:
    print("refused")
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen([sys.executable, "-c", code], **pipes) for _ in range(6)]
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    assert sorted(process.communicate()[0] for process in processes) == ["mine\n"] + ["refused\n"] * 5


def test_info_is_written_and_updated(tmp_path):
    run = create_run_directory(tmp_path / "run")
    run.write_info({"status": "running", "stage": "4_10", "step": 0})
    first = json.loads(run.run_json.read_text())
    assert first["format"] == 1 and first["created"] == first["updated"]
    run.update_info(status="finished", step=10, train_loss=float("nan"), nested={"a": [float("inf"), 1.5]})
    second = json.loads(run.run_json.read_text())
    assert second["created"] == first["created"] and second["updated"] >= first["updated"]
    assert (second["status"], second["stage"], second["step"]) == ("finished", "4_10", 10)
    assert second["train_loss"] is None and second["nested"] == {"a": [None, 1.5]}


def test_failed_update_keeps_the_old_info(tmp_path, monkeypatch):
    run = create_run_directory(tmp_path / "run")
    run.write_info({"status": "running"})
    before = run.run_json.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patched, pytest.raises(OSError):
        patched.setattr(os, "write", full)
        run.update_info(status="finished")
    assert run.run_json.read_bytes() == before
    assert sorted(os.listdir(run.path)) == ["checkpoints", "run.json"]


def test_hydra_folder_reads_back(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = create_run_directory("run")
    overrides = ["stage='4_10'", "data.path='it\\'s # here: ü'", "a=b\nc\t\x1b\u2028\U0001f600", "- x", ""]
    hydra = f"runtime:\n  cwd: {tmp_path}\n  home: {Path.home()}/x\n"
    run.write_hydra("seed: 1\n", hydra, overrides)
    assert yaml.safe_load((run.hydra / "overrides.yaml").read_text("utf-8")) == overrides
    assert yaml.safe_load((run.hydra / "config.yaml").read_text()) == {"seed": 1}
    assert yaml.safe_load((run.hydra / "hydra.yaml").read_text())["runtime"]["cwd"] == "."
    assert str(Path.home()) + "/" not in (run.hydra / "hydra.yaml").read_text()
    run.write_hydra("{}\n", "{}\n", [])
    assert yaml.safe_load((run.hydra / "overrides.yaml").read_text()) == []


def test_checkpoints_are_listed_by_step_and_links_left_out(tmp_path):
    run = create_run_directory(tmp_path / "run")
    for step in (100_000_000, 5, 99_999_999):
        (run.checkpoints / step_name(step)).mkdir()
    (run.checkpoints / "step_00000007").symlink_to(tmp_path)
    (run.checkpoints / "step_00000008").write_text("")
    (run.checkpoints / "step_9").mkdir()
    assert run.checkpoint_names() == ["step_00000005", "step_99999999", "step_100000000"]
    assert RunDirectory(tmp_path / "absent").checkpoint_names() == []


def test_pointers(tmp_path):
    run = create_run_directory(tmp_path / "run")
    assert run.pointer("latest") is None
    (run.checkpoints / "latest").write_text("step_00000005\n")
    assert run.pointer("latest") == "step_00000005"
    for content in ("", "x" * 300, "..", "step_00000005/..", "/step_00000005"):
        (run.checkpoints / "latest").write_text(content)
        with pytest.raises(UnreadableFile, match="latest"):
            run.pointer("latest")
    (run.checkpoints / "best").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UnreadableFile, match="link"):
        run.pointer("best")


def test_paths_tell_no_home_folder(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert portable_path("data/a.txt") == "data/a.txt"
    assert portable_path(tmp_path / "here" / "data" / "a.txt") == "data/a.txt"
    assert portable_path(tmp_path / "elsewhere" / "a.txt") == "a.txt"
    assert portable_path("~/x/a.txt") == "~/x/a.txt"


def _git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def test_git_revision_of_a_clean_and_a_dirty_checkout(tmp_path):
    assert git_revision(tmp_path) is None
    _git(tmp_path, "init", "-q")
    assert git_revision(tmp_path) is None
    (tmp_path / "a.txt").write_text("one")
    _git(tmp_path, "add", "a.txt")
    _git(tmp_path, "commit", "-q", "-m", "first")
    _git(tmp_path, "tag", "-a", "v1", "-m", "a tag is not what is asked for")
    commit = _git(tmp_path, "rev-parse", "HEAD").strip()
    (tmp_path / "inside").mkdir()
    assert git_revision(tmp_path / "inside") == commit[:9]
    (tmp_path / "untracked").write_text("")
    assert git_revision(tmp_path) == commit[:9]
    (tmp_path / "a.txt").write_text("two")
    assert git_revision(tmp_path) == commit[:9] + "-dirty"


def test_git_revision_starts_no_program_of_the_checkout(tmp_path):
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    _git(tmp_path, "config", "core.fsmonitor", f"touch {tmp_path / 'ran'}; false")
    assert git_revision(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_git_revision_without_git(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    monkeypatch.setenv("PATH", "")
    assert git_revision(tmp_path) is None


def test_environment_names_versions_and_neither_host_nor_home():
    info = environment_info()
    assert info["versions"]["python"] == sys.version.split()[0]
    assert set(info["versions"]) == {"gptcli", "torch", "python"}
    text = json.dumps(info)
    assert socket.gethostname() not in text and str(Path.home()) not in text
