"""Event files as TensorBoard itself reads them."""

import html
import os
import re
import struct
import subprocess
import sys
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
from tensorboard.plugin_util import markdown_to_safe_html
from tensorboard.plugins.hparams import plugin_data_pb2

from gptcli.training.tensorboard import EventFile, crc32c, markdown_code, record


def _fail(text):
    raise AssertionError(text)


def _read(folder):
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    accumulator.Reload()
    return accumulator


def _curve(folder, tag):
    return [(event.step, event.value) for event in _read(folder).Scalars(tag)]


@pytest.mark.parametrize(
    ("data", "crc"),
    # RFC 3720, appendix B.4, and the check value of the CRC catalogues.
    [
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_crc_of_the_standard(data, crc):
    assert crc32c(data) == crc


@given(st.binary(max_size=300))
def test_record_is_framed_as_tensorboard_frames_it(data):
    length = struct.pack("<Q", len(data))
    framed = length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))
    assert record(data) == framed


def test_scalars_of_one_step(tmp_path):
    file = EventFile(tmp_path, _fail)
    file.scalars(0, {"loss/train": 4.5, "loss/validation": 4.25})
    file.scalars(10, {"loss/train": float("nan")})
    file.scalars(20, {})
    file.close()
    assert _curve(tmp_path, "loss/validation") == [(0, 4.25)]
    (first, second) = _curve(tmp_path, "loss/train")
    assert first == (0, 4.5) and second[0] == 10 and second[1] != second[1]


def test_resumed_run_has_one_curve_without_repeated_steps(tmp_path):
    file = EventFile(tmp_path, _fail)
    for step in range(0, 100, 10):
        file.scalars(step, {"loss": float(step)})
    # Killed: the file ends within a record, after steps that the checkpoint of step 50 does not know.
    with open(file.path, "r+b") as raw:
        raw.truncate(os.path.getsize(file.path) - 3)
    for attempt in range(2):
        file = EventFile(tmp_path, _fail, purge_step=51)
        for step in range(60, 130, 10):
            file.scalars(step, {"loss": step + 0.5 * (attempt + 1)})
        file.close()
    assert _curve(tmp_path, "loss") == [(step, float(step)) for step in range(0, 60, 10)] + [
        (step, step + 1.0) for step in range(60, 130, 10)
    ]


def test_files_of_one_second_and_of_a_clock_set_back_sort_in_order_of_writing(tmp_path, monkeypatch):
    names = []
    for now in (1_700_000_000, 1_700_000_000, 1_600_000_000):
        monkeypatch.setattr("time.time", lambda now=now: now)
        names.append(EventFile(tmp_path, _fail).path.name)
    assert names == sorted(names) and len(set(names)) == 3
    assert all(re.fullmatch(r"events\.out\.tfevents\.\d{10}\.[0-9a-f]{8}", name) for name in names)


def test_first_events_are_the_version_and_the_session_start(tmp_path):
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    file = EventFile(tmp_path, _fail, purge_step=7)
    file.close()
    version, start = LegacyEventFileLoader(str(file.path)).Load()
    assert version.file_version == "brain.Event:2"
    assert start.session_log.status == 1 and start.step == 7


def test_text_is_found_by_the_text_plugin(tmp_path):
    file = EventFile(tmp_path, _fail)
    file.text(3, "samples", "Ünïcode \ud800 text")
    file.close()
    accumulator = _read(tmp_path)
    assert accumulator.SummaryMetadata("samples").plugin_data.plugin_name == "text"
    (event,) = accumulator.Tensors("samples")
    assert event.step == 3 and event.tensor_proto.string_val[0].decode() == "Ünïcode ? text"


def _png(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\x00" + bytes(3 * width) for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + data + chunk(b"IEND", b"")


def test_image(tmp_path):
    file = EventFile(tmp_path, _fail)
    file.image(5, "attention", _png(4, 2), width=4, height=2)
    file.close()
    (image,) = _read(tmp_path).Images("attention")
    assert (image.step, image.width, image.height, image.encoded_image_string) == (5, 4, 2, _png(4, 2))


def _session(folder, tag):
    content = _read(folder).SummaryMetadata(tag).plugin_data.content
    return plugin_data_pb2.HParamsPluginData.FromString(content)


def test_hyperparameters_are_in_the_run_itself(tmp_path):
    values = {"lr": 1e-3, "heads": 4, "norm": "layer_norm", "residual": True, "path": None}
    values["bad"] = float("inf")
    file = EventFile(tmp_path, _fail)
    file.hyperparameters(values)
    file.session_end(succeeded=True)
    file.close()
    found = _session(tmp_path, "_hparams_/session_start_info").session_start_info.hparams
    assert found["lr"].number_value == 1e-3 and found["heads"].number_value == 4
    assert found["norm"].string_value == "layer_norm" and found["residual"].bool_value is True
    assert found["path"].string_value == "null" and found["bad"].string_value == "inf"
    assert _session(tmp_path, "_hparams_/session_end_info").session_end_info.status == 1
    assert os.listdir(tmp_path) == [file.path.name]


def test_trials_are_called_as_their_runs_and_two_of_one_name_stay_apart(tmp_path):
    folders = [tmp_path / place / "07-seed=1" for place in ("a", "b")]
    for folder in folders:
        folder.mkdir(parents=True)
        file = EventFile(folder, _fail)
        file.hyperparameters({"seed": 1})
        file.close()
    _, groups = _hparams_table(tmp_path)
    assert len({group.name for group in groups}) == 2
    assert all(group.name.startswith("07-seed=1 ") for group in groups)


def _hparams_table(logdir):
    """The experiment and the session groups as the hparams tab asks for them."""
    from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
    from tensorboard.context import RequestContext
    from tensorboard.plugins import base_plugin
    from tensorboard.plugins.hparams import api_pb2, backend_context, get_experiment, list_session_groups

    multiplexer = EventMultiplexer()
    multiplexer.AddRunsFromDirectory(str(logdir))
    multiplexer.Reload()
    provider = MultiplexerDataProvider(multiplexer, str(logdir))
    context = backend_context.Context(base_plugin.TBContext(data_provider=provider))
    experiment = get_experiment.Handler(RequestContext(), context, "", api_pb2.GetExperimentRequest()).run()
    request = api_pb2.ListSessionGroupsRequest(
        slice_size=100, allowed_statuses=[0, 1, 2, 3], include_metrics=True,
        col_params=[api_pb2.ColParams(hparam=info.name) for info in experiment.hparam_infos]
        + [api_pb2.ColParams(metric=info.name) for info in experiment.metric_infos],
    )  # fmt: skip
    groups = list_session_groups.Handler(RequestContext(), context, "", request).run().session_groups
    return experiment, groups


def test_hparams_tab_shows_all_runs_keys_and_the_metric_of_runs_with_different_keys(tmp_path):
    for number, values in enumerate([{"lr": 0.1, "heads": 4}, {"lr": 0.2, "norm": "none"}, {"depth": 3}]):
        (tmp_path / str(number)).mkdir()
        file = EventFile(tmp_path / str(number), _fail)
        file.hyperparameters(values)
        file.scalars(100, {"final/val_loss": 2.0 + number})
        file.session_end(succeeded=number != 2)
        file.close()
    experiment, groups = _hparams_table(tmp_path)
    assert {info.name for info in experiment.hparam_infos} == {"lr", "heads", "norm", "depth"}
    assert [info.name.tag for info in experiment.metric_infos] == ["final/val_loss"]
    found = {}
    for group in groups:
        (session,) = group.sessions
        (metric,) = session.metric_values
        found[session.name] = (set(group.hparams), metric.value, session.status)
    assert found == {"0": ({"lr", "heads"}, 2.0, 1), "1": ({"lr", "norm"}, 3.0, 1), "2": ({"depth"}, 4.0, 2)}


_HOSTILE = "</code></pre><script>alert(1)</script>\n\n# head\n```\n~~~\n<img src=x onerror=y>\n[a](b)"
_CHARACTERS = st.characters(exclude_categories=["Cc", "Cs", "Cf", "Zl", "Zp"], include_characters="\n")


@given(st.text(_CHARACTERS, max_size=80))
@example(_HOSTILE)
@example("<!-- ")
@example("<?php\n\n<![CDATA[\n\n<!DOCTYPE")
@example("    a\n\n- b\n| c | d |\n|---|---|\n&amp; &#60;b&#62;")
def test_sample_cannot_break_out_of_its_block(sample):
    shown = markdown_to_safe_html(f"{markdown_code(sample)}\n\n{markdown_code('next')}")
    head, tail = "<pre><code>", "</code></pre>"
    first, second = [part.split(tail)[0] for part in shown.split(head)[1:]]
    assert shown.count("<") == 8 and second == "next"
    # Markdown takes blanks at the end of a document's line and tabs for its own; nothing else may change.
    assert html.unescape(first).expandtabs(4) == sample.expandtabs(4)


def test_neither_torch_nor_a_thread_nor_the_host_is_needed(tmp_path):
    code = f"""
import socket, sys, threading
from gptcli.training.tensorboard import EventFile
assert "tensorboard" not in sys.modules
file = EventFile({str(tmp_path)!r}, print)
file.scalars(1, {{"a": 1.0}})
assert threading.active_count() == 1
assert not any(name in sys.modules for name in ("torch", "tensorflow", "numpy"))
data = open(file.path, "rb").read()
assert socket.gethostname().encode() not in data + file.path.name.encode()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
