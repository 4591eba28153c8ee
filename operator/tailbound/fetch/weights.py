"""The memory of a model's weights, read from the headers of its files: safetensors, GGUF and ONNX.

Headers only: nothing is loaded, and no more is read and no more memory taken than the bounds below allow. A
file that cannot be read as what its name says is not counted, and a model of which nothing could be counted
is of unknown size.

| the model's file | what is counted |
|---|---|
| ends in .onnx | its initializers, those in external files as well |
| ends in .gguf, one of several parts | the tensors of all parts beside it |
| any other | the tensors of all .safetensors files in the model's folder |
"""

import json
import math
import mmap
import os
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from tailbound.fetch.memory import MOST_MEMORY_BYTES, bounded_memory

_LARGEST_HEADER: Final = 100 * 1024 * 1024
"""The most that the header of a safetensors file may have, by its format."""
_MOST_FILES: Final = 10_000
_MOST_TENSORS: Final = 1_000_000
_MOST_DIMENSIONS: Final = 64
_LONGEST_STRING: Final = 64 * 1024 * 1024
_PART: Final = re.compile(r"(?P<name>.+)-[0-9]{5}-of-(?P<parts>[0-9]{5})\.gguf")

_ONNX_BITS: Final = {
    **{1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64, 14: 64, 15: 128},
    **{16: 16, 17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4},
}
"""Bits of a value by TensorProto.DataType."""
_GGUF_SCALARS: Final = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_GGUF_STRING, _GGUF_ARRAY = 8, 9
_GRAPH, _INITIALIZER = 7, 5
"""Fields of ModelProto and of GraphProto."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


_LONGEST_DIMENSIONS: Final = 10 * _MOST_DIMENSIONS
"""The most bytes of them: none of these numbers takes more than ten."""


class _UnreadableError(Exception):
    """The file is not what its name says."""


_UNREADABLE: Final = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    struct.error,
    OverflowError,
    RecursionError,
    MemoryError,
    _UnreadableError,
)


def weight_bytes(model: Path, root: Path) -> int | None:
    """Bytes of the weights of the model whose file is `model`, in the folder `root`; None if unknown."""
    if model.suffix == ".onnx":
        return _counted([(model, _onnx)])
    if model.suffix == ".gguf":
        return _counted([(each, _gguf) for each in _parts(model)])
    found = sorted(_safetensors_below(root))[:_MOST_FILES]
    if model.suffix == ".safetensors" and model not in found:
        found.append(model)
    return _counted([(each, _safetensors) for each in found])


def _safetensors_below(root: Path) -> Iterator[Path]:
    """Also behind links to folders: those of a volume are linked as a whole."""
    for parent, _, names in os.walk(root, followlinks=True):
        yield from (Path(parent, name) for name in names if name.endswith(".safetensors"))


def _counted(files: list[tuple[Path, Callable[[Path], int]]]) -> int | None:
    """The sum over all files; None if there is none, or one cannot be read: a part would mislead."""
    try:
        found = [reader(path) for path, reader in files]
    except _UNREADABLE:
        return None
    return sum(found) or None


def _parts(model: Path) -> list[Path]:
    match = _PART.fullmatch(model.name)
    if match is None:
        return [model]
    names = (f"{match['name']}-{n:05}-of-{match['parts']}.gguf" for n in range(1, int(match["parts"]) + 1))
    return [model.with_name(name) for name in names]


def _safetensors(path: Path) -> int:
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > _LARGEST_HEADER:
            raise _UnreadableError
        with bounded_memory(MOST_MEMORY_BYTES):
            header = json.loads(file.read(length))
            offsets = (each["data_offsets"] for name, each in header.items() if name != "__metadata__")
            size = sum(int(end) - int(begin) for begin, end in offsets)
    if not 0 <= size <= path.stat().st_size:
        raise _UnreadableError
    return size


def _gguf(path: Path) -> int:
    """Bytes of the tensors: all behind the header, which is read to its end."""
    with path.open("rb") as file:
        magic, version, tensors, pairs = struct.unpack("<4sIQQ", file.read(24))
        if magic != b"GGUF" or version < 2 or max(tensors, pairs) > _MOST_TENSORS:
            raise _UnreadableError
        for _ in range(pairs):
            _skip_string(file)
            _skip_value(file, _unsigned(file, "<I"))
        for _ in range(tensors):
            _skip_string(file)
            dimensions = _unsigned(file, "<I")
            if dimensions > _MOST_DIMENSIONS:
                raise _UnreadableError
            file.seek(8 * dimensions + 4 + 8, 1)
        size = path.stat().st_size - file.tell()
    if size < 0:
        raise _UnreadableError
    return size if tensors else 0


def _skip_value(file: BinaryIO, kind: int) -> None:
    if kind == _GGUF_STRING:
        _skip_string(file)
    elif kind == _GGUF_ARRAY:
        inner, count = _unsigned(file, "<I"), _unsigned(file, "<Q")
        if inner != _GGUF_STRING:
            file.seek(_GGUF_SCALARS[inner] * min(count, 1 << 40), 1)
            return
        if count > _MOST_TENSORS * 10:
            raise _UnreadableError
        for _ in range(count):
            _skip_string(file)
    else:
        file.seek(_GGUF_SCALARS[kind], 1)


def _skip_string(file: BinaryIO) -> None:
    length = _unsigned(file, "<Q")
    if length > _LONGEST_STRING:
        raise _UnreadableError
    file.seek(length, 1)


def _unsigned(file: BinaryIO, form: str) -> int:
    (value,) = struct.unpack(form, file.read(struct.calcsize(form)))
    return int(value)


def _onnx(path: Path) -> int:
    """Bytes of the initializers of the main graph, wherever their values are."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        graphs = [each for each in _fields(data, 0, len(data)) if each[0] == _GRAPH]
        tensors = (
            span
            for _, begin, end in graphs
            for number, *span in _fields(data, begin, end)
            if number == _INITIALIZER
        )
        return sum(_tensor_bytes(data, begin, end) for begin, end in tensors)


def _tensor_bytes(data: mmap.mmap, begin: int, end: int) -> int:
    dimensions, kind = list[int](), 0
    for number, start, stop in _fields(data, begin, end):
        if number == 1:
            dimensions += _varints(data, start, stop)
            if len(dimensions) > _MOST_DIMENSIONS:
                raise _UnreadableError
        elif number == 2:
            (kind,) = _varints(data, start, stop)
    return math.ceil(math.prod(dimensions) * _ONNX_BITS.get(kind, 0) / 8)


def _fields(data: mmap.mmap, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Number, begin and end of the content of each field of a protobuf message."""
    at = begin
    while at < end:
        key, at = _varint(data, at, end)
        number, wire = key >> 3, key & 7
        start = at
        if wire == _VARINT:
            _, at = _varint(data, at, end)
        elif wire == _BYTES:
            length, start = _varint(data, at, end)
            at = start + length
        elif wire in (_FIXED32, _FIXED64):
            at += 4 if wire == _FIXED32 else 8
        else:
            raise _UnreadableError
        if at > end:
            raise _UnreadableError
        yield number, start, at


def _varints(data: mmap.mmap, begin: int, end: int) -> list[int]:
    if end - begin > _LONGEST_DIMENSIONS:
        raise _UnreadableError
    found, at = list[int](), begin
    while at < end:
        value, at = _varint(data, at, end)
        found.append(value)
    return found


def _varint(data: mmap.mmap, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise _UnreadableError
