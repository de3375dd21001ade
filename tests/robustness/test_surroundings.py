"""Terminals, pipes, signals, locales and missing folders: gptcli in a process of its own."""

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gptcli.training.checkpoint import newest_good_checkpoint

ENDLESS = ["trainer.steps=1000000", "trainer.eval_every=50", "trainer.checkpoint_every=50", "trainer.sample_every=0"]
PROGRAM = [sys.executable, "-m", "gptcli"]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def environment(tmp_path_factory):
    """A small environment that finds gptcli and no cache."""
    cache = tmp_path_factory.mktemp("cache")
    kept = {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV") if key in os.environ}
    return {**kept, "PYTHONPATH": str(ROOT), "HOME": str(cache), "XDG_CACHE_HOME": str(cache), "OMP_NUM_THREADS": "1"}


def status_of(run):
    return json.loads((run / "run.json").read_text(encoding="utf-8"))["status"]


def wait_for(condition, process, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def begun(folder, environment, settings, *more):
    """Starts an endless run and waits for its first checkpoint."""
    process = subprocess.Popen(
        [*PROGRAM, "train", *settings, *ENDLESS, "hydra.run.dir=out", *more],
        cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    wait_for((folder / "out" / "checkpoints" / "latest").exists, process)
    return process


@pytest.mark.parametrize(("name", "status"), [("SIGTERM", 143), ("SIGHUP", 129), ("SIGINT", 130)])
def test_a_signal_saves_and_stops(name, status, copied, environment, settings, call):
    process = begun(copied, environment, settings)
    process.send_signal(getattr(signal, name))
    out, err = process.communicate(timeout=60)
    assert process.returncode == status
    assert f"by {name}; saved" in out and "gptcli resume out" in out and "Traceback" not in err
    info = json.loads((copied / "out" / "run.json").read_text())
    assert info["status"] == "interrupted" and name in info["reason"]
    checkpoint, notes = newest_good_checkpoint(copied / "out")
    assert checkpoint.step == info["step"] and not notes
    assert call("resume", "out", "--steps", checkpoint.step + 3).status == 0
    assert status_of(copied / "out") == "finished"


def test_a_second_interrupt_stops_at_once_and_leaves_a_run_that_loads(copied, environment, settings, call):
    """The first one's saving is held up, as by a slow disk."""
    slow = copied / "slow"
    slow.mkdir()
    (slow / "sitecustomize.py").write_text(
        "import os, time, pathlib\n"
        "fsync = os.fsync\n"
        "def slow_fsync(descriptor):\n"
        "    while pathlib.Path('hold').exists():\n"
        "        pathlib.Path('held').touch()\n"
        "        time.sleep(0.01)\n"
        "    fsync(descriptor)\n"
        "os.fsync = slow_fsync\n"
    )
    process = begun(copied, {**environment, "PYTHONPATH": f"{slow}:{ROOT}"}, settings)
    (copied / "hold").touch()
    process.send_signal(signal.SIGINT)
    wait_for((copied / "held").exists, process)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    checkpoint, _ = newest_good_checkpoint(copied / "out")
    assert checkpoint.step >= 50
    assert call("runs", "out").out.count("dead") == 1
    assert call("resume", "out", "--steps", checkpoint.step + 3).status == 0


def run(folder, environment, *arguments, **more):
    return subprocess.run(
        [*PROGRAM, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, **more
    )  # fmt: skip


@pytest.mark.parametrize("stream", ["| head -1", "> /dev/full 2>&1", ">&- 2>&- <&-"])
def test_training_goes_on_when_nobody_can_read_it(stream, copied, environment, settings):
    words = " ".join(f"'{one}'" for one in [*PROGRAM, "train", *settings, "trainer.steps=60", "hydra.run.dir=out"])
    done = subprocess.run(
        ["bash", "-c", f"{words} {stream}; exit ${{PIPESTATUS[0]}}"],
        cwd=copied, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr
    assert status_of(copied / "out") == "finished"


@pytest.mark.parametrize("command", [["stages"], ["generate", "run", "--tokens", "20000", "--temperature", "0"]])
def test_other_commands_end_quietly_when_the_reader_has_gone(command, copied, environment):
    words = " ".join([*PROGRAM, *command])
    done = subprocess.run(
        ["bash", "-c", f"{words} | head -c 10; exit ${{PIPESTATUS[0]}}"],
        cwd=copied, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stderr == "" and done.returncode in (0, 141)


def test_output_that_cannot_be_written_is_a_failure(copied, environment):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*PROGRAM, "stages"], cwd=copied, env=environment, stdout=full, stderr=subprocess.PIPE, text=True
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "No space left on device" in done.stderr


def test_a_locale_without_utf8(copied, environment, settings):
    locale = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    text = (copied / "c.txt").read_text(encoding="utf-8").replace("a", "é🙂")
    (copied / "ü.txt").write_text(text, encoding="utf-8")
    named = [one.replace("c.txt", "ü.txt") for one in settings]
    done = run(copied, {**environment, **locale}, "train", *named, "hydra.run.dir=öut")
    assert done.returncode == 0, done.stderr
    assert status_of(copied / "öut") == "finished"
    done = run(copied, {**environment, **locale}, "generate", "öut", "--prompt", "é", "--tokens", "30")
    assert done.returncode == 0 and "Traceback" not in done.stderr


def on_terminal(folder, environment, arguments, columns):
    """Runs gptcli on a pseudo-terminal of its own; returns status and everything written."""
    import fcntl
    import struct
    import termios

    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [*PROGRAM, *arguments], cwd=folder, env=environment, stdin=follower, stdout=follower, stderr=follower
    )
    os.close(follower)
    written = b""
    while True:
        ready, _, _ = select.select([leader], [], [], 60)
        assert ready
        try:
            data = os.read(leader, 65536)
        except OSError:
            break
        if not data:
            break
        written += data
    os.close(leader)
    return process.wait(timeout=60), written.decode("utf-8", "replace")


def test_a_terminal_20_columns_wide(copied, environment, settings):
    more = ["trainer.steps=300", "trainer.sample_every=0", "hydra.run.dir=out"]
    status, text = on_terminal(copied, {**environment, "TERM": "xterm"}, ["train", *settings, *more], 20)
    assert status == 0, text
    assert status_of(copied / "out") == "finished"
    bars = [part for part in re.split(r"[\r\n]", re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)) if "%" in part]
    assert bars and all(len(part) <= 20 for part in bars), bars


@pytest.mark.parametrize("setting", [{"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}])
def test_no_colours_where_none_are_wanted(setting, copied, environment):
    for arguments in (["stages"], ["runs", "run"]):
        status, text = on_terminal(copied, {**environment, **setting}, arguments, 80)
        assert status == 0 and "\x1b" not in text, text


def test_missing_homes_caches_and_folders(copied, environment, settings):
    """No home, a cache that cannot be written, a data folder that is not there."""
    (copied / "afile").touch()
    homeless = {key: value for key, value in environment.items() if key not in ("HOME", "XDG_CACHE_HOME")}
    missing = {"XDG_CACHE_HOME": str(copied / "afile"), "HOME": "/nonexistent", "GPTCLI_DATA_DIR": "/nonexistent/x"}
    for number, changed in enumerate((homeless, {**environment, **missing})):
        done = run(copied, changed, "train", *settings, f"hydra.run.dir=out{number}")
        assert done.returncode == 0, done.stderr


def test_a_current_folder_that_is_gone(tmp_path, environment):
    gone = tmp_path / "gone"
    gone.mkdir()
    command = " ".join([*PROGRAM, "train"])
    done = subprocess.run(
        ["bash", "-c", f"rmdir {gone}; {command} data=text_file data.path=x.txt"],
        cwd=gone, env=environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode in (1, 2) and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: "), done.stderr


def test_no_socket_is_opened_and_nothing_private_is_written(trained, tmp_path, environment, settings):
    """With a corpus of one's own, in a home whose name says who one is."""
    home = tmp_path / "home" / "jane-doe-private"
    shutil.copytree(trained, home)
    traps = home / "traps"
    traps.mkdir()
    (traps / "sitecustomize.py").write_text(
        "import socket\n"
        "def refused(*arguments, **more):\n"
        "    open('touched', 'a').write(repr(arguments))\n"
        "    raise OSError('no network here')\n"
        "class Refused:\n"
        "    __init__ = refused\n"
        "socket.create_connection = socket.getaddrinfo = socket.gethostbyname = refused\n"
        "socket.socket.connect = refused\n"
    )
    own = {**environment, "HOME": str(home), "USER": "jane-doe-private", "PYTHONPATH": f"{traps}:{ROOT}"}
    done = run(home, own, "train", *settings, "hydra.run.dir=out")
    assert done.returncode == 0, done.stderr
    assert not (home / "touched").exists()
    host = re.compile(rf"(?<![a-z0-9]){re.escape(os.uname().nodename)}(?![a-z0-9])".encode(), re.IGNORECASE)
    for path in (home / "out").rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        assert b"jane-doe" not in content and str(ROOT).encode() not in content, path
        # Any two letters can stand in a file of numbers.
        assert path.suffix == ".safetensors" or not host.search(content + path.name.encode()), path


def test_a_path_that_is_not_utf8(copied, environment, settings, call):
    name = os.fsencode(str(copied)) + b"/caf\xe9.txt"
    os.rename(os.fsencode(str(copied / "c.txt")), name)
    named = [b"data.path=caf\xe9.txt" if one == "data.path=c.txt" else one for one in settings]
    done = run(copied, environment, "train", *named, "hydra.run.dir=out")
    assert done.returncode == 0, done.stderr
    assert call("resume", "out", "--steps", 7).status == 0
    assert status_of(copied / "out") == "finished"
