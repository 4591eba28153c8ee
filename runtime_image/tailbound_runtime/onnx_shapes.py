"""Which sizes an ONNX file leaves open, read from its bytes before it is loaded, as its weights are long.

The file is a protobuf message of the type ModelProto; numbers below are those of fields in onnx.proto.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

_GRAPH: Final = 7  # of ModelProto
_INITIALIZER: Final = 5  # of GraphProto
_INPUT: Final = 11
_NAME: Final = 1  # of ValueInfoProto
_INITIALIZER_NAME: Final = 8  # of TensorProto
_SHAPE: Final = (2, 1, 2)  # ValueInfoProto.type, TypeProto.tensor_type, Tensor.shape
_DIM: Final = 1  # of TensorShapeProto
_DIM_VALUE: Final = 1  # of Dimension
_VARINT: Final = 0
_LONG: Final = 2
_SIZES: Final = {1: 8, 5: 4}  # bytes of the other wire types

_Span = tuple[int, int]
"""Where a message, or another field of bytes, begins and ends in the file."""


def only_rows_are_free(path: Path) -> bool:
    """Whether all inputs are tensors with every size fixed but the first; False if that cannot be read."""
    try:
        with path.open("rb") as file:
            return _only_rows_are_free(file, (0, path.stat().st_size))
    except (OSError, ValueError):
        return False


def _only_rows_are_free(file: BinaryIO, model: _Span) -> bool:
    graphs = _all(file, model, _GRAPH)
    spans = [span for graph in graphs for span in _all(file, graph, _INPUT)]
    names = [_bytes(file, name) for span in spans for name in _all(file, span, _NAME)]
    weights = {
        _bytes(file, name)
        for graph in graphs
        for weight in _all(file, graph, _INITIALIZER)
        for name in _all(file, weight, _INITIALIZER_NAME)
    }
    inputs = [span for span, name in zip(spans, names, strict=True) if name not in weights]
    return bool(inputs) and all(_is_fixed_but_for_rows(file, span) for span in inputs)


def _is_fixed_but_for_rows(file: BinaryIO, value: _Span) -> bool:
    spans = [value]
    for field in _SHAPE:
        spans = [inner for span in spans for inner in _all(file, span, field)]
    dims = [dim for span in spans for dim in _all(file, span, _DIM)]
    return bool(dims) and all(_has_size(file, dim) for dim in dims[1:])


def _has_size(file: BinaryIO, dim: _Span) -> bool:
    return any(number == _DIM_VALUE and wire == _VARINT for number, wire, _ in _fields(file, dim))


def _all(file: BinaryIO, message: _Span, field: int) -> Sequence[_Span]:
    return [span for number, wire, span in _fields(file, message) if number == field and wire == _LONG]


def _bytes(file: BinaryIO, span: _Span) -> bytes:
    file.seek(span[0])
    return file.read(span[1] - span[0])


def _fields(file: BinaryIO, message: _Span) -> Iterator[tuple[int, int, _Span]]:
    """Number, wire type and place of each field. Raises ValueError if it is no message."""
    at, ends = message
    while at < ends:
        file.seek(at)
        tag = _varint(file)
        wire = tag & 7
        if wire == _VARINT:
            begins = file.tell()
            _varint(file)
            size = file.tell() - begins
        elif wire == _LONG:
            size = _varint(file)
            begins = file.tell()
        else:
            begins, size = file.tell(), _SIZES.get(wire, ends)
        at = begins + size
        if at > ends:
            raise ValueError("a field goes beyond the message")
        yield tag >> 3, wire, (begins, at)


def _varint(file: BinaryIO) -> int:
    value = 0
    for place in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            break
        value |= (byte[0] & 127) << place
        if byte[0] < 128:
            return value
    raise ValueError("a number does not end")
