"""The safetensors files against the format's own library, and against hostile headers."""

import json
import struct

import pytest
import safetensors.torch
import torch

from gptcli.training.files import UnreadableFile
from gptcli.training.tensor_file import parse_tensors, tensor_chunks

TENSORS = {
    "bytes": torch.arange(7, dtype=torch.uint8),
    "flags": torch.tensor([True, False, True]),
    "scalar": torch.tensor(3.5, dtype=torch.float64),
    "empty": torch.zeros(0, 4),
    "half": torch.randn(3).to(torch.bfloat16),
    "weight": torch.randn(4, 6).T,
    "step": torch.tensor(12, dtype=torch.int64),
}


def _bytes(tensors):
    return bytearray(b"".join(tensor_chunks(tensors)))


def _same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor), name


def test_library_reads_what_we_write():
    _same(safetensors.torch.load(bytes(_bytes(TENSORS))), TENSORS)


def test_we_read_what_the_library_writes():
    tensors = {name: tensor.contiguous() for name, tensor in TENSORS.items()}
    _same(parse_tensors(bytearray(safetensors.torch.save(tensors, {"format": "pt"})), "x"), TENSORS)


def test_round_trip_keeps_bits_and_gives_writable_tensors():
    special = {"w": torch.tensor([float("nan"), float("-inf"), -0.0, 1e-45])}
    found = parse_tensors(_bytes(special), "x")["w"]
    assert found.view(torch.int32).tolist() == special["w"].view(torch.int32).tolist()
    found[0] = 1.0
    _same(parse_tensors(_bytes(TENSORS), "x"), TENSORS)
    assert parse_tensors(_bytes({}), "x") == {}


def test_unaligned_file_of_another_writer():
    header = {
        "a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
        "b": {"dtype": "F32", "shape": [1], "data_offsets": [1, 5]},
    }
    found = parse_tensors(_with_header(header, b"\x07" + struct.pack("<f", 2.5)), "x")
    assert found["a"].item() == 7 and found["b"].item() == 2.5


def _with_header(header, data):
    text = json.dumps(header).encode() if isinstance(header, dict) else header
    return bytearray(struct.pack("<Q", len(text)) + text + data)


def _entry(**changes):
    return {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}


@pytest.mark.parametrize(
    "file",
    [
        bytearray(b""),
        bytearray(b"\x01\x00"),
        bytearray(struct.pack("<Q", 2**63) + b"{}"),
        bytearray(struct.pack("<Q", 3) + b"{}"),
        _with_header(b"[]", b""),
        _with_header(b"{", b""),
        _with_header(_entry(), bytes(7)),
        _with_header(_entry(), bytes(9)),
        _with_header(_entry(dtype="F128"), bytes(8)),
        _with_header(_entry(dtype=["F32"]), bytes(8)),
        _with_header(_entry(shape=[2**50]), bytes(8)),
        _with_header(_entry(shape=[2**40, 0], data_offsets=[0, 8]), bytes(8)),
        _with_header(_entry(shape=[-1, -2]), bytes(8)),
        _with_header(_entry(shape=[True, 2]), bytes(8)),
        _with_header(_entry(shape=[1.0, 2]), bytes(8)),
        _with_header(_entry(shape=2), bytes(8)),
        _with_header(_entry(shape=[1] * 17 + [2]), bytes(8)),
        _with_header(_entry(data_offsets=[8, 0]), bytes(8)),
        _with_header(_entry(data_offsets=[0, 8, 8]), bytes(8)),
        _with_header(_entry(data_offsets=[8, 16]), bytes(16)),
        _with_header({**_entry(), "v": _entry()["w"]}, bytes(8)),
        _with_header({"w": 1}, b""),
        _with_header({"w": {}}, b""),
        _with_header(b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"w":{"dtype":"F32","shape":[1],'
                     b'"data_offsets":[0,4]}}', bytes(8)),
    ],
)
def test_hostile_header_is_refused_before_anything_is_allocated(file):
    with pytest.raises(UnreadableFile, match=r"m\.safetensors"):
        parse_tensors(file, "m.safetensors")
