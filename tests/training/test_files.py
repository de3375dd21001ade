"""Atomic writes and appends under injected failures; careful reads."""

import errno
import json
import os
import subprocess
import sys

import pytest

from gptcli.errors import RunError
from gptcli.training import files


class FailingCalls:
    """Lets os.write, os.fsync, os.replace and os.open pass until call number `fail_at`, which raises."""

    NAMES = ("write", "fsync", "replace", "open", "mkdir")

    def __init__(self, monkeypatch, fail_at, error, names=NAMES):
        self.calls, self.fail_at, self.error, self.failed = 0, fail_at, error, None
        for name in names:
            monkeypatch.setattr(os, name, self._wrapped(name, getattr(os, name)))

    def _wrapped(self, name, original):
        def call(*arguments, **keywords):
            self.calls += 1
            if self.calls == self.fail_at:
                self.failed = name
                raise OSError(self.error, os.strerror(self.error))
            return original(*arguments, **keywords)

        return call


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EACCES, errno.EIO])
def test_atomic_write_keeps_the_old_content_whatever_call_fails(tmp_path, error):
    path = tmp_path / "run.json"
    for fail_at in range(1, 100):
        path.write_bytes(b"old")
        with pytest.MonkeyPatch.context() as monkeypatch:
            calls = FailingCalls(monkeypatch, fail_at, error)
            try:
                files.atomic_write_bytes(path, b"new")
                raised = False
            except OSError as failure:
                raised = failure.errno == error
        assert raised == (calls.failed is not None)
        assert os.listdir(tmp_path) == ["run.json"]
        # Only the flush of the folder comes after the rename.
        assert path.read_bytes() == (b"old" if raised and fail_at <= 4 else b"new")
        if not raised:
            assert fail_at > 5
            return
    pytest.fail("the write never succeeded")


def test_atomic_write_writes_what_os_write_leaves_over(tmp_path, monkeypatch):
    original = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: original(descriptor, bytes(data)[:3]))
    files.atomic_write_bytes(tmp_path / "a", b"0123456789")
    assert (tmp_path / "a").read_bytes() == b"0123456789"


def test_atomic_write_of_a_name_as_long_as_a_name_can_be(tmp_path):
    path = tmp_path / ("x" * 255)
    files.atomic_write_text(path, "é\r\n")
    assert path.read_bytes() == b"\xc3\xa9\r\n"


def test_atomic_json_refuses_what_json_cannot_say_and_keeps_the_old(tmp_path):
    path = tmp_path / "a.json"
    files.atomic_write_json(path, {"a": "ü", "b": 0.1})
    with pytest.raises(ValueError):
        files.atomic_write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text("utf-8")) == {"a": "ü", "b": 0.1}
    assert os.listdir(tmp_path) == ["a.json"]


def test_leftovers_of_a_killed_write_are_removed_and_nothing_else(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / ".lock").write_text("")
    files.partial_path(tmp_path).write_text("half")
    files.partial_path(tmp_path, "step_00000001").mkdir()
    files.remove_leftovers(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".lock", "run.json"]


def test_free_space_of_a_path_that_does_not_exist_yet(tmp_path):
    assert files.free_space(tmp_path / "a" / "b").endswith(" free")


@pytest.mark.parametrize(("number", "words"), [(999, "999 bytes"), (1500, "1.5 KB"), (2.5e9, "2.5 GB")])
def test_size_in_words(number, words):
    assert files._size(number) == words


def test_append_is_whole_or_absent_on_a_full_disk_and_nothing_is_lost(tmp_path, monkeypatch):
    original, full, reports = os.write, [], []

    def write(descriptor, data):
        if full:
            if full.pop() == "half":
                original(descriptor, bytes(data)[: len(data) // 2])
                full.append("nothing")
                return len(data) // 2
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    file = files.AppendFile(tmp_path / "metrics.jsonl", reports.append)
    file.write(b"one\n")
    full.append("half")
    file.write(b"second\n")
    assert (tmp_path / "metrics.jsonl").read_bytes() == b"one\n"
    full.append("nothing")
    file.write(b"third\n")
    file.write(b"four\n")
    file.close()
    assert (tmp_path / "metrics.jsonl").read_bytes() == b"one\nsecond\nthird\nfour\n"
    assert len(reports) == 1
    assert "metrics.jsonl" in reports[0] and "No space left" in reports[0] and "free" in reports[0]


def test_append_does_not_grow_without_bound_while_the_disk_is_full(tmp_path, monkeypatch):
    file = files.AppendFile(tmp_path / "a", lambda text: None)
    with monkeypatch.context() as patched:
        FailingCalls(patched, 1, errno.ENOSPC, ["write"])
        patched.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        for _ in range(10):
            file.write(bytes(2**20))
    file.write(b"end")
    file.close()
    assert (tmp_path / "a").stat().st_size < 2**23


def test_append_refuses_links_and_pipes(tmp_path):
    (tmp_path / "outside").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(RunError, match=name):
            files.AppendFile(tmp_path / name, print)
    assert (tmp_path / "outside").read_text() == "mine"


def test_reads_refuse_links_pipes_folders_and_large_files(tmp_path):
    (tmp_path / "good").write_bytes(b"12345")
    (tmp_path / "link").symlink_to(tmp_path / "good")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    assert files.read_regular(tmp_path / "good", 5) == b"12345"
    for name, reason in [
        ("good", "too large"),
        ("link", "symbolic link"),
        ("pipe", "not a regular file"),
        ("folder", "cannot be read|not a regular file"),
        ("absent", "missing"),
    ]:
        with pytest.raises(files.UnreadableFile, match=reason) as error:
            files.read_regular(tmp_path / name, 4)
        assert name in str(error.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[1]", "does not hold a JSON object"),
        ('{"a":' + "[" * 100_000 + "]" * 100_000 + "}", "JSON|nested"),
        ('{"a":' * 65 + "1" + "}" * 65, "nested"),
        ('{"a": ' + "9" * 10_000 + "}", "not valid JSON"),
        ("\ud800", "not valid JSON"),
    ],
)
def test_hostile_json_is_refused(text, reason):
    with pytest.raises(files.UnreadableFile, match=reason):
        files.parse_json(text.encode("utf-8", "surrogatepass"), "x.json")


def test_json_of_the_deepest_allowed_level():
    assert files.parse_json(b'{"a":' * 64 + b"1" + b"}" * 64, "x.json")


_KILLED = """
import os, signal, sys
from gptcli.training import files
count = 0
def dying(original):
    def call(*arguments, **keywords):
        global count
        count += 1
        if count == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **keywords)
    return call
for name in ("open", "write", "fsync", "replace", "close"):
    setattr(os, name, dying(getattr(os, name)))
files.atomic_write_bytes(sys.argv[1], b"new" * 1000)
"""


def test_atomic_write_survives_kill_at_every_call(tmp_path):
    path = tmp_path / "run.json"
    seen = set()
    for moment in range(1, 10):
        path.write_bytes(b"old")
        killed = subprocess.run([sys.executable, "-c", _KILLED, path, str(moment)]).returncode == -9
        seen.add(path.read_bytes())
        assert path.read_bytes() in (b"old", b"new" * 1000)
        files.remove_leftovers(tmp_path)
        assert os.listdir(tmp_path) == ["run.json"]
        if not killed:
            break
    assert not killed and seen == {b"old", b"new" * 1000}
