"""The run's lock across processes: refused, released by death, kept over forks."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from gptcli.errors import RunError, UserError
from gptcli.training.lock import RunLock, holder

_HOLD = """
import sys, time
from gptcli.training.lock import RunLock
from gptcli.errors import UserError
try:
    with RunLock(sys.argv[1]):
        print("held", flush=True)
        time.sleep(float(sys.argv[2]))
except UserError as error:
    print("refused", error, flush=True)
"""


def _start(path, seconds=60):
    command = [sys.executable, "-c", _HOLD, str(path), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_second_process_is_refused_and_told_of_the_first(tmp_path):
    first = _start(tmp_path)
    try:
        assert first.stdout.readline() == "held\n"
        wanted = rf"in use by process {first.pid}, started 20\d\d-"
        with pytest.raises(UserError, match=wanted) as error, RunLock(tmp_path):
            pass
        assert "\n" not in str(error.value)
        assert holder(tmp_path)["pid"] == first.pid
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    # The kernel released it; what the dead process wrote means nothing.
    assert holder(tmp_path) is None
    with RunLock(tmp_path):
        assert holder(tmp_path)["pid"] == os.getpid()
    assert holder(tmp_path) is None


def test_of_several_started_at_once_exactly_one_holds_it(tmp_path):
    processes = [_start(tmp_path, 3) for _ in range(4)]
    lines = [process.stdout.readline().split()[0] for process in processes]
    for process in processes:
        process.wait()
    assert sorted(lines) == ["held", "refused", "refused", "refused"]


def test_two_locks_in_one_process(tmp_path):
    with RunLock(tmp_path), pytest.raises(UserError, match=str(os.getpid())), RunLock(tmp_path):
        pass
    with RunLock(tmp_path):
        pass


def test_forked_child_does_not_release_the_lock(tmp_path):
    with RunLock(tmp_path) as lock:
        child = os.fork()
        if child == 0:
            lock.__exit__(None, None, None)
            os._exit(0)
        os.waitpid(child, 0)
        assert holder(tmp_path)["pid"] == os.getpid()
    assert holder(tmp_path) is None


def test_child_that_outlives_a_killed_parent_does_not_keep_the_lock(tmp_path):
    code = f"""
import os, time
from gptcli.training.lock import RunLock
RunLock({str(tmp_path)!r}).__enter__()
child = os.fork()
if child == 0:
    print(os.getpid(), flush=True)
time.sleep(60)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    orphan = int(parent.stdout.readline())
    try:
        assert holder(tmp_path)["pid"] == parent.pid
        parent.kill()
        parent.wait()
        os.kill(orphan, 0)
        assert holder(tmp_path) is None
    finally:
        os.kill(orphan, signal.SIGKILL)


def test_lock_file_tells_a_process_and_a_time_only(tmp_path):
    with RunLock(tmp_path):
        found = json.loads((tmp_path / ".lock").read_text())
    assert set(found) == {"pid", "started"}
    assert (tmp_path / ".lock").read_text() == ""


def test_listing_while_another_process_starts_does_not_refuse_it(tmp_path):
    import fcntl

    with RunLock(tmp_path):
        pass
    with open(tmp_path / ".lock") as probe:
        fcntl.flock(probe, fcntl.LOCK_SH)
        started = _start(tmp_path, 0)
        time.sleep(0.2)
    assert started.communicate()[0] == "held\n"


def test_link_in_place_of_the_lock_is_refused(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(outside)
    with pytest.raises(RunError, match="symbolic link"), RunLock(tmp_path / "run"):
        pass
    assert outside.read_text() == "mine"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x", "started": 3}', "\x00"])
def test_damaged_lock_file_still_locks(tmp_path, content):
    (tmp_path / ".lock").write_text(content)
    assert holder(tmp_path) is None
    with RunLock(tmp_path), pytest.raises(UserError), RunLock(tmp_path):
        pass
