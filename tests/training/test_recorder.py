"""The records of a run: strict JSON, one curve over a kill and a resume, samples that stay samples."""

import errno
import json
import os
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from gptcli.errors import RunError
from gptcli.training.recorder import Recorder

_SETTINGS = {"seed": 1, "model": {"num_heads": 4, "norm": "none"}, "optimizer": {"betas": [0.9, 0.99]}}


def _lines(run):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line, parse_constant=pytest.fail) for line in lines]


def _curve(run, tag):
    accumulator = EventAccumulator(str(run), size_guidance={"scalars": 0})
    accumulator.Reload()
    return [(event.step, event.value) for event in accumulator.Scalars(tag)]


def _record(recorder, step):
    recorder.record(step, batch_loss=4.0 - step / 64, learning_rate=0.5)
    recorder.samples(step, [("A", f"A sample of {step}\n\nstep 1, prompt \"x\"\n")])


def test_record_goes_to_json_and_to_grouped_tags(tmp_path):
    recorder = Recorder(tmp_path, _SETTINGS)
    values = {
        "batch_loss": 1.5, "train_loss": 2.5, "val_loss": 3.5, "learning_rate": 0.25,
        "grad_norm": 0.5, "tokens_per_second": 1024.0,
    }  # fmt: skip
    recorder.record(10, **values, seconds=1.25)
    recorder.finish({"val_loss": 3.5, "note": None})
    recorder.close()
    recorder.close()
    assert _lines(tmp_path) == [{"step": 10, **values, "seconds": 1.25}]
    for tag, value in [
        ("loss/batch", 1.5), ("loss/train", 2.5), ("loss/validation", 3.5), ("optimizer/learning_rate", 0.25),
        ("optimizer/grad_norm", 0.5), ("speed/tokens_per_second", 1024.0), ("final/val_loss", 3.5),
    ]:  # fmt: skip
        assert _curve(tmp_path, tag) == [(10, value)]


def test_numbers_that_are_not_finite_are_null_in_json(tmp_path):
    recorder = Recorder(tmp_path, {})
    recorder.record(1, batch_loss=float("nan"), grad_norm=float("inf"), val_loss=0.1)
    recorder.close()
    assert _lines(tmp_path) == [{"step": 1, "batch_loss": None, "grad_norm": None, "val_loss": 0.1}]


def test_record_is_in_the_file_at_once(tmp_path):
    pid = os.fork()
    if pid == 0:
        recorder = Recorder(tmp_path, {})
        _record(recorder, 1)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert [line["step"] for line in _lines(tmp_path)] == [1]
    assert _curve(tmp_path, "loss/batch") == [(1, 4.0 - 1 / 64)]


@pytest.mark.parametrize("cut", [0, 1, 5])
def test_killed_and_resumed_records_equal_uninterrupted_ones(tmp_path, cut):
    straight, resumed = tmp_path / "straight", tmp_path / "resumed"
    for run, last in ((straight, 6), (resumed, 5)):
        run.mkdir()
        recorder = Recorder(run, _SETTINGS)
        for step in range(1, last + 1):
            _record(recorder, step)
    for name in ("metrics.jsonl", "samples.txt"):
        os.truncate(resumed / name, os.path.getsize(resumed / name) - cut)
    (resumed / ".partial-0123").write_text("left by a kill")
    recorder = Recorder(resumed, _SETTINGS, purge_step=4)
    for step in range(4, 7):
        _record(recorder, step)
    recorder.close()
    for name in ("metrics.jsonl", "samples.txt"):
        assert (resumed / name).read_bytes() == (straight / name).read_bytes()
    assert _curve(resumed, "loss/batch") == _curve(straight, "loss/batch") == [
        (step, 4.0 - step / 64) for step in range(1, 7)
    ]
    assert not (resumed / ".partial-0123").exists()


def test_half_written_last_record_is_dropped_though_its_step_is_kept(tmp_path):
    recorder = Recorder(tmp_path, {})
    _record(recorder, 1)
    _record(recorder, 2)
    recorder.close()
    for name in ("metrics.jsonl", "samples.txt"):
        os.truncate(tmp_path / name, os.path.getsize(tmp_path / name) - 1)
    Recorder(tmp_path, {}, purge_step=3).close()
    assert [line["step"] for line in _lines(tmp_path)] == [1]
    assert (tmp_path / "samples.txt").read_text().startswith('step 1, prompt "A"\n    A sample of 1\n')
    assert "A sample of 2" not in (tmp_path / "samples.txt").read_text()


def test_extended_run_no_longer_carries_what_was_measured_at_its_end(tmp_path):
    recorder = Recorder(tmp_path, {})
    recorder.record(1, val_loss=2.0)
    recorder.record(2, val_loss=1.5, full_val_loss=1.25, full_val_loss_standard_error=0.5)
    recorder.close()
    Recorder(tmp_path, {}, purge_step=3).close()
    assert _lines(tmp_path) == [{"step": 1, "val_loss": 2.0}, {"step": 2, "val_loss": 1.5}]


@pytest.mark.parametrize(
    "junk",
    [b"nonsense\n", b"[]\n", b'{"step": "x"}\n', b'{"a": 1}\n', b"\xff\xfe\n", b"[" * 10**5 + b"\n"],
)
def test_damaged_lines_are_dropped_on_resume(tmp_path, junk):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n' + junk + b'{"step": 2}\n')
    (tmp_path / "samples.txt").write_bytes(junk)
    Recorder(tmp_path, {}, purge_step=5).close()
    assert [line["step"] for line in _lines(tmp_path)] == [1, 2]
    assert (tmp_path / "samples.txt").read_bytes() == b""


def test_samples_are_safe_to_print_and_in_tensorboard(tmp_path):
    recorder = Recorder(tmp_path, {})
    recorder.samples(3, [("A\x1b[2J", "A\x1b]0;title\x07<b>\r\nB"), ("B", "")])
    recorder.close()
    text = (tmp_path / "samples.txt").read_text()
    assert text == (
        'step 3, prompt "A\\x1b[2J"\n    A\\x1b]0;title\\x07<b>\\r\n    B\n\nstep 3, prompt "B"\n    \n\n'
    )
    accumulator = EventAccumulator(str(tmp_path))
    accumulator.Reload()
    (event,) = accumulator.Tensors("samples")
    shown = event.tensor_proto.string_val[0].decode()
    assert event.step == 3 and "&lt;b&gt;" in shown and "<b>" not in shown and "\x1b" not in shown


@given(st.lists(st.tuples(st.integers(0, 9), st.text(max_size=30), st.text(max_size=60)), max_size=6))
def test_any_sample_survives_a_resume_or_goes_by_its_step_alone(tmp_path_factory, samples):
    run = tmp_path_factory.mktemp("run")
    kept = tmp_path_factory.mktemp("kept")
    for folder, chosen in ((run, samples), (kept, [one for one in samples if one[0] < 5])):
        recorder = Recorder(folder, {})
        for step, prompt, text in chosen:
            recorder.samples(step, [(prompt, text)])
        recorder.close()
    Recorder(run, {}, purge_step=5).close()
    assert (run / "samples.txt").read_bytes() == (kept / "samples.txt").read_bytes()


def test_full_disk_is_said_once_a_file_and_nothing_is_lost_when_it_ends(tmp_path, monkeypatch):
    reports = []
    recorder = Recorder(tmp_path, {}, report=reports.append)
    with monkeypatch.context() as patched:

        def full(*_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patched.setattr(os, "write", full)
        patched.setattr(os, "fsync", full)
        for step in range(1, 4):
            _record(recorder, step)
        recorder.sync()
    assert len(reports) == 3 and all("No space left" in text for text in reports)
    _record(recorder, 4)
    recorder.sync()
    recorder.close()
    assert [line["step"] for line in _lines(tmp_path)] == [1, 2, 3, 4]
    assert [step for step, _ in _curve(tmp_path, "loss/batch")] == [1, 2, 3, 4]


@pytest.mark.parametrize("name", ["metrics.jsonl", "samples.txt"])
@pytest.mark.parametrize("purge_step", [None, 3])
def test_records_that_are_links_are_not_followed(tmp_path, name, purge_step):
    outside = tmp_path / "outside"
    outside.write_text("mine\n")
    run = tmp_path / "run"
    run.mkdir()
    (run / name).symlink_to(outside)
    with pytest.raises(RunError, match=name):
        Recorder(run, {}, purge_step=purge_step)
    assert outside.read_text() == "mine\n"


def test_folder_that_is_not_there(tmp_path):
    with pytest.raises(RunError, match="absent"):
        Recorder(tmp_path / "absent", {})
