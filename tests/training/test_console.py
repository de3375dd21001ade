"""What a person sees: plain lines in pipes and logs, a bar on a terminal, and no harm from a broken output."""

import errno
import fcntl
import io
import os
import re
import struct
import subprocess
import sys
import termios
from types import SimpleNamespace

import pytest

from gptcli.training import console as module
from gptcli.training.console import Console, duration, in_thousands, print_safely, sample_prompt


def run_at(done, train_loss=2.5, val_loss=2.75):
    """Returns what the console looks at of a run."""
    return SimpleNamespace(progress=SimpleNamespace(done=done, train_loss=train_loss, val_loss=val_loss))


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        """Says so."""
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves; .now is in seconds."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(module.time, "perf_counter", lambda: clock.now)
    return clock


def test_lines_come_every_few_seconds_and_at_evaluations(clock, capsys, tmp_path):
    console = Console(steps=1000, tokens_per_step=256, log=tmp_path / "train.log")
    console.start(0)
    for step in range(1, 301):
        clock.now += 0.1
        console.advance(step)
    console.evaluated([run_at(300)])
    console.close()
    lines = capsys.readouterr().err.splitlines()
    seconds = [int(line.split()[1].partition("/")[0]) / 10 for line in lines]
    assert seconds == pytest.approx([10, 20, 30], abs=0.3)
    assert lines[-1] == "step 300/1000  train 2.5000  val 2.7500  2.56k tok/s  0:01:10 left"
    log = (tmp_path / "train.log").read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in log] == lines


def test_slow_steps_get_a_line_each(clock, capsys):
    console = Console(steps=10, tokens_per_step=1)
    console.start(0)
    for step in (1, 2, 3):
        clock.now += 60
        console.advance(step)
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_after_a_resume_the_rate_counts_from_there(clock, capsys):
    console = Console(steps=1000, tokens_per_step=10)
    console.start(900)
    clock.now += 10
    console.evaluated([run_at(950)])
    assert "50 tok/s  0:00:10 left" in capsys.readouterr().err


def test_quiet_writes_the_log_alone(capsys, tmp_path):
    console = Console(10, 1, tmp_path / "train.log", quiet=True)
    console.start(0)
    console.say("hello")
    console.warn("beware\x1b[2J")
    console.evaluated([run_at(5)])
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
    log = (tmp_path / "train.log").read_text()
    assert "hello" in log and "warning: beware\\x1b[2J" in log and "step 5/10" in log


def test_a_terminal_gets_a_bar_and_the_log_plain_lines(monkeypatch, tmp_path):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    console = Console(10, 1, tmp_path / "train.log")
    console.start(0)
    for step in range(1, 6):
        console.advance(step)
    console.evaluated([run_at(5)])
    console.warn("careful")
    console.advance(10)
    console.close()
    shown = terminal.getvalue()
    assert "\r" in shown and "5/10" in shown and "train 2.5000  val 2.7500" in shown and "warning: careful" in shown
    log = (tmp_path / "train.log").read_text()
    assert "\r" not in log and "step 5/10  train 2.5000  val 2.7500" in log


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(errno.ENOSPC, "full"), ValueError("closed file")])
def test_a_broken_output_stops_nothing(error):
    class Broken(io.StringIO):
        def write(self, _text):
            raise error

    print_safely("hello", Broken())


def test_a_log_that_cannot_be_written_is_given_up(tmp_path, capsys):
    console = Console(10, 1, tmp_path / "missing" / "train.log")
    console.say("one")
    console.say("two")
    assert capsys.readouterr().out == "one\ntwo\n"


def test_a_real_terminal_shows_a_bar(quick, tmp_path):
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))  # rows, columns
    command = [sys.executable, "-m", "gptcli", "train", "hydra.run.dir=run", *quick, "trainer.steps=100"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    assert process.wait(timeout=180) == 0
    assert re.search(r"\r100%\|█+\| 100/100  train \d\.\d{4}  val \d\.\d{4}  .* tok/s  00:00 left", shown.decode())
    assert "\r" not in (tmp_path / "run" / "train.log").read_text()


def test_numbers_in_words():
    assert [duration(seconds) for seconds in (0, 59.6, 3661, 360000)] == ["0:00:00", "0:01:00", "1:01:01", "100:00:00"]
    numbers = (0, 0.5, 940, 1500, 412_345, 999_499, 1_234_567, 2.5e9)
    assert [in_thousands(number) for number in numbers] == [
        "0", "0.5", "940", "1.5k", "412k", "999k", "1.23M", "2.5G",
    ]  # fmt: skip


def test_a_prompt_that_the_vocabulary_can_spell():
    assert sample_prompt(SimpleNamespace(symbols=tuple("EMOR:x"))) == "ROMEO:"
    assert sample_prompt(SimpleNamespace(symbols=tuple("abc"))) == "c"
