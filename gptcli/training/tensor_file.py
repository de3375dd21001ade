"""Tensors in the safetensors format: written as a stream, read only after every size was checked.

The format is that of https://github.com/huggingface/safetensors: the length of a JSON header, the header
(name -> dtype, shape, data_offsets), the tensors' bytes without gaps.
"""

import json
import math
import struct

import torch

from gptcli.training.files import UnreadableFile, parse_json

HEADER_BYTES = 16 * 2**20
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def tensor_chunks(tensors):
    """Yields the bytes of a safetensors file, one tensor at a time: a large model needs no second copy."""
    # Wide types first, as the format's own library does, keep every tensor aligned to its element size.
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header, offset = {}, 0
    for name in order:
        tensor = tensors[name]
        end = offset + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for name in order:
        flat = tensors[name].detach().to("cpu").contiguous().reshape(-1)
        if flat.numel():
            yield memoryview(flat.view(torch.uint8).numpy())


def parse_tensors(data, name):
    """Returns {tensor name: tensor} of a safetensors file's bytes; the tensors share its memory.

    Args:
        data: a bytearray.
        name: what errors call the file.

    Raises:
        UnreadableFile: the header is damaged, or declares a type or a size that the file does not hold.
    """
    if len(data) < 8:
        raise UnreadableFile(f"{name} is cut short ({len(data)} bytes)")
    (length,) = struct.unpack_from("<Q", data)
    if length > min(HEADER_BYTES, len(data) - 8):
        raise UnreadableFile(f"{name} declares a header of {length:,} bytes in a file of {len(data):,}")
    header = parse_json(bytes(data[8 : 8 + length]), f"{name}: its header")
    header.pop("__metadata__", None)
    entries = {key: _checked(entry, key, name) for key, entry in header.items()}
    position = 0
    for begin, end, _, _ in sorted(entries.values(), key=lambda entry: entry[:2]):
        if begin != position:
            raise UnreadableFile(f"{name}: its tensors overlap or leave gaps")
        position = end
    if 8 + length + position != len(data):
        raise UnreadableFile(f"{name} declares {8 + length + position:,} bytes and holds {len(data):,}")
    return {key: _tensor(data, 8 + length, *entry) for key, entry in entries.items()}


def _checked(entry, key, name):
    try:
        dtype, shape, (begin, end) = _DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
        if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
            raise ValueError("not a size")
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableFile(f"{name}: tensor {key!r} has no known type, shape and place") from error
    size = math.prod(shape) * torch.empty((), dtype=dtype).element_size()
    if end - begin != size or len(shape) > 16:
        raise UnreadableFile(f"{name}: tensor {key!r} does not fill {end - begin:,} bytes")
    return begin, end, dtype, shape


def _tensor(data, base, begin, end, dtype, shape):
    if begin == end:
        return torch.empty(shape, dtype=dtype)
    count = math.prod(shape)
    size = (end - begin) // count
    if (base + begin) % size:  # a foreign file may be unaligned
        return torch.frombuffer(bytearray(data[base + begin : base + end]), dtype=dtype).reshape(shape)
    return torch.frombuffer(data, dtype=dtype, count=count, offset=base + begin).reshape(shape)
