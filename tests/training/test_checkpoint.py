"""Checkpoints are complete or absent: failing calls, kills inside a save, flipped bytes, retention, links."""

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
import torch

from gptcli.training import checkpoint as module
from gptcli.training.checkpoint import (
    CheckpointDamaged,
    CheckpointNotSaved,
    NoCheckpoint,
    load_checkpoint,
    newest_good_checkpoint,
    save_checkpoint,
)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    """Neither an error nor a kill loses what is in the system's cache; flushing has its own test."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def _save(run, step, value=None, *, keep=0, best=False):
    value = float(step) if value is None else value
    model = {"w": torch.full((2, 3), value), "b": torch.full((3,), -value)}
    optimizer = {"exp_avg.w": torch.full((2, 3), value / 2), "step": torch.tensor(step)}
    state = {"step": step, "value": value, "vocabulary": ["\n", " ", "é"], "best": float("inf")}
    extra = {"cpu": torch.arange(16, dtype=torch.uint8)}
    return save_checkpoint(run, step, model, optimizer, state, keep=keep, best=best, extra=extra)


def _steps(run):
    return sorted(int(name[5:]) for name in os.listdir(run / "checkpoints") if name.startswith("step_"))


def _pointer(run, which):
    return (run / "checkpoints" / which).read_text()


def _value(run, step):
    """The value that _save stored, after checking that every part of the checkpoint tells the same."""
    found = load_checkpoint(run / "checkpoints" / f"step_{step:08d}")
    value = found.state["value"]
    assert found.step == step == found.state["step"] == found.optimizer["step"].item()
    assert found.model["w"].tolist() == [[value] * 3] * 2 and found.model["b"].tolist() == [-value] * 3
    assert found.optimizer["exp_avg.w"].tolist() == [[value / 2] * 3] * 2
    assert found.extra["cpu"].tolist() == list(range(16))
    assert found.state["vocabulary"] == ["\n", " ", "é"] and found.state["best"] == float("inf")
    return value


def test_saved_checkpoint_loads_as_it_was(tmp_path):
    path = _save(tmp_path, 1000, 3.0, best=True)
    assert path == tmp_path / "checkpoints" / "step_00001000"
    assert sorted(os.listdir(path)) == [
        "manifest.json", "model.safetensors", "optimizer.safetensors", "random.safetensors", "state.json",
    ]  # fmt: skip
    assert _value(tmp_path, 1000) == 3.0
    assert _pointer(tmp_path, "latest") == _pointer(tmp_path, "best") == "step_00001000\n"
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["best", "latest", "step_00001000"]


def test_manifest_holds_the_sha256_and_size_of_each_file(tmp_path):
    path = _save(tmp_path, 1)
    files = json.loads((path / "manifest.json").read_text())["files"]
    for name in ("model.safetensors", "optimizer.safetensors", "random.safetensors", "state.json"):
        data = (path / name).read_bytes()
        assert files[name] == {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


def test_everything_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    events, replace = [], os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: events.append(os.fstat(descriptor).st_ino))
    monkeypatch.setattr(os, "replace", lambda old, new: (events.append(str(new)), replace(old, new)))
    path = _save(tmp_path, 1)
    named = events.index(str(path))
    assert {file.stat().st_ino for file in (path, *path.iterdir())} <= set(events[:named])
    checkpoints = path.parent
    pointer = events.index(str(checkpoints / "latest"))
    assert checkpoints.stat().st_ino in events[named:pointer]
    assert (checkpoints / "latest").stat().st_ino in events[named:pointer]
    assert checkpoints.stat().st_ino in events[pointer:]


def test_retention_keeps_the_newest_and_the_best(tmp_path):
    for step in range(1, 6):
        _save(tmp_path, step, keep=2, best=step == 2)
    assert _steps(tmp_path) == [2, 4, 5]
    for step in (2, 4, 5):
        assert _value(tmp_path, step) == step
    _save(tmp_path, 6, keep=0)
    assert _steps(tmp_path) == [2, 4, 5, 6]
    _save(tmp_path, 7, keep=1)
    assert _steps(tmp_path) == [2, 7]


def test_run_that_went_on_from_an_earlier_step_keeps_its_own_and_the_later_ones(tmp_path):
    for step in (10, 20, 30):
        _save(tmp_path, step)
    _save(tmp_path, 11, keep=1)
    assert _steps(tmp_path) == [11, 20, 30]
    assert newest_good_checkpoint(tmp_path)[0].step == 11


def _failing(monkeypatch, fail_at, error, half=False):
    """Call number fail_at of those that change the disk, and all writes after it, fail as on a full disk."""
    counter = {"calls": 0, "failed": None}

    def wrapped(name, original):
        def call(*arguments, **keywords):
            counter["calls"] += 1
            if counter["calls"] == fail_at:
                counter["failed"] = name
                if half and name == "write":
                    original(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                raise OSError(error, os.strerror(error))
            return original(*arguments, **keywords)

        return call

    for name in ("write", "fsync", "replace", "open", "mkdir"):
        monkeypatch.setattr(os, name, wrapped(name, getattr(os, name)))
    return counter


@pytest.mark.parametrize("again", [False, True], ids=["new step", "step saved before"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EACCES, errno.EIO])
def test_failure_of_each_call_in_turn_loses_nothing(tmp_path, error, again):
    for fail_at in range(1, 200):
        shutil.rmtree(tmp_path / "checkpoints", ignore_errors=True)
        _save(tmp_path, 1, best=True)
        _save(tmp_path, 2)
        step = 2 if again else 3
        with pytest.MonkeyPatch.context() as monkeypatch:
            counter = _failing(monkeypatch, fail_at, error, half=fail_at % 2 == 0)
            try:
                _save(tmp_path, step, 9.0, keep=0, best=True)
                failure = None
            except CheckpointNotSaved as caught:
                failure = caught
        if counter["failed"] is None:
            assert failure is None and fail_at > 30
            break
        assert _value(tmp_path, 1) == 1.0
        assert _value(tmp_path, 2) in ((2.0, 9.0) if again else (2.0,))
        assert set(_steps(tmp_path)) <= {1, 2, step}
        for which in ("latest", "best"):
            _value(tmp_path, int(_pointer(tmp_path, which)[5:]))
        if failure:
            assert f"step_{step:08d}" in str(failure) and os.strerror(error) in str(failure)
            assert "free" in str(failure) and "\n" not in str(failure)
            assert not [name for name in os.listdir(tmp_path / "checkpoints") if name.startswith(".partial")]
        # And the next save works, and clears what is left.
        _save(tmp_path, step, 5.0)
        assert _value(tmp_path, step) == 5.0
        assert all(not name.startswith(".") for name in os.listdir(tmp_path / "checkpoints"))
    else:
        pytest.fail("the save never went through")


def test_read_only_checkpoints_folder_is_said(tmp_path):
    _save(tmp_path, 1)
    (tmp_path / "checkpoints").chmod(0o500)
    try:
        if os.access(tmp_path / "checkpoints", os.W_OK):
            (tmp_path / "checkpoints").chmod(0o700)
            shutil.rmtree(tmp_path / "checkpoints")
            (tmp_path / "checkpoints").write_text("root may write everywhere, so a file stands in its place")
        with pytest.raises(CheckpointNotSaved, match="step_00000002"):
            _save(tmp_path, 2)
    finally:
        (tmp_path / "checkpoints").chmod(0o700)




def _kill_inside_save(run, step, value, moment):
    """Saves in a process of its own that is killed at its call number moment; returns whether it was."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    count = 0

    def dying(original):
        def call(*arguments, **keywords):
            nonlocal count
            count += 1
            if count == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **keywords)

        return call

    for name in ("open", "write", "fsync", "replace", "mkdir", "close", "unlink", "rmdir"):
        setattr(os, name, dying(getattr(os, name)))
    _save(run, step, value, keep=2, best=True)
    os._exit(0)


@pytest.mark.parametrize("step", [2, 3], ids=["step saved before", "new step"])
def test_kill_at_every_call_of_a_save_leaves_a_run_that_loads(tmp_path, step):
    moment = 0
    while True:
        moment += 1
        shutil.rmtree(tmp_path / "checkpoints", ignore_errors=True)
        _save(tmp_path, 1)
        _save(tmp_path, 2, best=True)
        killed = _kill_inside_save(tmp_path, step, 9.0, moment)
        for which in ("latest", "best"):
            found, notes = newest_good_checkpoint(tmp_path, which)
            assert notes == []
            assert found.state["value"] in (2.0, 9.0) and found.model["w"][0, 0] == found.state["value"]
        # Every folder with a checkpoint's name is whole, and the next save clears the leftovers.
        for name in _steps(tmp_path):
            _value(tmp_path, name)
        _save(tmp_path, 4)
        assert all(not name.startswith(".") for name in os.listdir(tmp_path / "checkpoints"))
        assert _value(tmp_path, 2) in (2.0, 9.0)
        if not killed:
            break
    assert moment > 60


def test_every_flipped_byte_of_a_checkpoint_is_detected(tmp_path):
    path = _save(tmp_path, 7)
    flipped = 0
    for name in sorted(os.listdir(path)):
        data = (path / name).read_bytes()
        for position in range(len(data)):
            changed = bytearray(data)
            changed[position] ^= 1 << (position % 8)
            (path / name).write_bytes(changed)
            with pytest.raises(CheckpointDamaged) as error:
                load_checkpoint(path)
            assert name in str(error.value) or name == "manifest.json", (name, position)
            flipped += 1
        (path / name).write_bytes(data)
    assert flipped > 1000
    assert _value(tmp_path, 7) == 7.0


@pytest.mark.parametrize(
    "name",
    ["model.safetensors", "optimizer.safetensors", "random.safetensors", "state.json", "manifest.json"],
)
def test_cut_missing_longer_or_linked_file_is_named(tmp_path, name):
    path = _save(tmp_path, 7)
    data = (path / name).read_bytes()
    for content in (data[:-1], data[: len(data) // 2], b"", data + b"\n", None, "link", "folder"):
        (path / name).unlink()
        if content == "link":
            (tmp_path / "copy").write_bytes(data)
            (path / name).symlink_to(tmp_path / "copy")
        elif content == "folder":
            (path / name).mkdir()
        elif content is not None:
            (path / name).write_bytes(content)
        with pytest.raises(CheckpointDamaged, match=rf"step_00000007 is damaged: .*{name}"):
            load_checkpoint(path)
        if content == "folder":
            (path / name).rmdir()
        (path / name).unlink(missing_ok=True)
        (path / name).write_bytes(data)
    _value(tmp_path, 7)


def _forge(path, **changes):
    """Rewrites a manifest with a matching checksum, as somebody with intent would."""
    body = json.loads((path / "manifest.json").read_text())
    body.pop("sha256")
    body.update(changes)
    (path / "manifest.json").write_bytes(module._manifest_bytes(body))


def test_forged_manifests_are_refused(tmp_path):
    path = _save(tmp_path, 7)
    files = json.loads((path / "manifest.json").read_text())["files"]
    (tmp_path / "secret").write_text("{}")
    entry = {"sha256": hashlib.sha256(b"{}").hexdigest(), "size": 2}
    for changes in (
        {"step": 8},
        {"step": "7"},
        {"step": True},
        {"files": []},
        {"files": {}},
        {"files": {**files, "../../secret": entry}},
        {"files": {**files, str(tmp_path / "secret"): entry}},
        {"files": {**files, "state.json": 3}},
        {"files": {**files, "state.json": {**files["state.json"], "size": 1.5}}},
        {"files": {**files, "state.json": {**files["state.json"], "size": 10**15}}},
        {"format": 0},
        {"format": "1"},
    ):
        shutil.rmtree(path)
        _save(tmp_path, 7)
        _forge(path, **changes)
        with pytest.raises(CheckpointDamaged):
            load_checkpoint(path)
    _forge(path, format=2, step=7, files=files)
    with pytest.raises(CheckpointDamaged, match="newer gptcli"):
        load_checkpoint(path)


def test_forged_state_that_is_too_deep_is_refused(tmp_path):
    path = _save(tmp_path, 7)
    deep = b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"
    (path / "state.json").write_bytes(deep)
    files = json.loads((path / "manifest.json").read_text())["files"]
    files["state.json"] = {"sha256": hashlib.sha256(deep).hexdigest(), "size": len(deep)}
    _forge(path, files=files)
    with pytest.raises(CheckpointDamaged, match=r"state\.json"):
        load_checkpoint(path)


def _damage(run, step):
    path = run / "checkpoints" / f"step_{step:08d}" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x55")


def test_damaged_newest_falls_back_and_says_so(tmp_path):
    for step in (1, 2, 3):
        _save(tmp_path, step, best=step == 2)
    _damage(tmp_path, 3)
    found, notes = newest_good_checkpoint(tmp_path)
    assert found.step == 2
    assert "step_00000003 is damaged: model.safetensors" in notes[0] and "step_00000002" in notes[-1]
    _damage(tmp_path, 2)
    assert newest_good_checkpoint(tmp_path, "best")[0].step == 1
    assert newest_good_checkpoint(tmp_path, 3)[0].step == 1
    _damage(tmp_path, 1)
    with pytest.raises(NoCheckpoint, match=r"no checkpoint that loads.*step_00000001 is damaged"):
        newest_good_checkpoint(tmp_path)


def test_deleted_newest_falls_back_and_says_so(tmp_path):
    for step in (1, 2):
        _save(tmp_path, step)
    shutil.rmtree(tmp_path / "checkpoints" / "step_00000002")
    found, notes = newest_good_checkpoint(tmp_path)
    assert found.step == 1 and "step_00000002 is missing" in notes[0]


def test_asking_for_one_checkpoint(tmp_path):
    for step in (1, 2, 3):
        _save(tmp_path, step, best=step == 1)
    assert newest_good_checkpoint(tmp_path, "latest")[0].step == 3
    assert newest_good_checkpoint(tmp_path, "best")[0].step == 1
    assert newest_good_checkpoint(tmp_path, 2)[0].step == 2
    assert newest_good_checkpoint(tmp_path, "step_00000002")[0].step == 2
    with pytest.raises(NoCheckpoint, match="no checkpoint step_00000004; it has step_00000001, "):
        newest_good_checkpoint(tmp_path, 4)
    with pytest.raises(NoCheckpoint):
        newest_good_checkpoint(tmp_path / "absent")


@pytest.mark.parametrize(
    "content",
    ["", "step_1", "../step_00000001", "/etc/passwd", "step_00000001/..", "step_00000001\\x", "a\n/x"],
)
def test_hostile_pointer_is_refused_and_the_newest_used(tmp_path, content):
    _save(tmp_path, 1)
    (tmp_path / "checkpoints" / "latest").write_text(content)
    found, notes = newest_good_checkpoint(tmp_path)
    assert found.step == 1 and "latest" in notes[0]


def test_links_are_refused_as_pointer_as_checkpoint_and_as_checkpoints_folder(tmp_path):
    other = tmp_path / "other"
    _save(other, 5)
    run = tmp_path / "run"
    _save(run, 1)
    (run / "checkpoints" / "latest").unlink()
    (run / "checkpoints" / "latest").symlink_to(other / "checkpoints" / "latest")
    assert newest_good_checkpoint(run)[0].step == 1
    (run / "checkpoints" / "step_00000005").symlink_to(other / "checkpoints" / "step_00000005")
    (run / "checkpoints" / "latest").unlink()
    (run / "checkpoints" / "latest").write_text("step_00000005\n")
    found, notes = newest_good_checkpoint(run)
    assert found.step == 1 and "step_00000005 is missing" in notes[0]
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "checkpoints").symlink_to(other / "checkpoints")
    with pytest.raises(NoCheckpoint):
        newest_good_checkpoint(linked)
    with pytest.raises(CheckpointNotSaved, match="symbolic link"):
        _save(linked, 6)
    assert _steps(other) == [5]


def test_nothing_is_unpickled_and_no_pickle_is_written(tmp_path):
    code = f"""
import sys
from gptcli.training.checkpoint import load_checkpoint
import pickle
def refuse(*_, **__):
    raise SystemExit("pickle was used")
pickle.load = pickle.loads = pickle.Unpickler = refuse
assert load_checkpoint({str(_save(tmp_path, 1))!r}).step == 1
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
