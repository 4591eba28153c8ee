"""The `data` of a tensor in JSON, strictly: nothing is rounded, wrapped or guessed.

| datatype | JSON element | refused |
|---|---|---|
| BOOL | true, false | numbers |
| INT8 … UINT64 | integer within range | 1.0, true, null, "1", anything beyond the range |
| FP32, FP64 | number, or "NaN", "Infinity", "-Infinity" | true, null, "1", numbers that become infinite |
| FP16, BF16 | none: the protocol defines no JSON form | everything |
| BYTES | string | the rest |

JSON itself has no NaN and no infinities. The three strings are those of protobuf's JSON mapping; they are
read and written alike.

Long data stays text (`LongData`) until it is decoded in pieces, so that neither a lock nor memory is held for
as long, or as much, as one piece of all of it would need.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import orjson

from tailbound_runtime.errors import ApiError
from tailbound_runtime.tensors import Array, Datatype, as_written, reshaped

PIECE: Final = 64 * 2**10
"""Bytes of JSON that are parsed, or elements that are written, in one step: about a millisecond."""

_NOT_FINITE: Final[Mapping[object, float]] = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
}


@dataclass(frozen=True)
class LongData:
    """The inside of a JSON list in a request's body, not parsed yet."""

    body: memoryview
    start: int
    end: int


def decode(where: str, datatype: Datatype, shape: tuple[int, ...], data: object) -> Array:
    """A request's `data` as an array of `shape`. Raises ApiError 400 naming the first wrong element.

    data: flat in row-major order, or nested exactly as `shape` says
    """
    if not datatype.elements:
        raise ApiError(
            400,
            f"{where}: {datatype.name} tensors have no JSON form in this protocol: send a binary tensor",
        )
    if isinstance(data, LongData):
        return _decode_long(where, datatype, shape, data)
    if not isinstance(data, list):
        raise ApiError(400, f"{where}: 'data' must be a list, not {as_written(data)}")
    flat = _flatten(where, shape, data)
    wanted = math.prod(shape)
    if len(flat) != wanted:
        raise ApiError(
            400, f"{where}: 'data' has {len(flat)} elements, but shape {list(shape)} means {wanted}"
        )
    return reshaped(where, _array(where, datatype, flat, 0), shape)


def encode(datatype: Datatype, array: Array) -> list[Any] | Array:
    """An output's `data`: flat, row-major, for orjson. The datatype has a JSON form."""
    flat = array.ravel()
    if datatype.is_float and not is_finite(flat):
        return [_written(value) for value in flat.tolist()]
    if datatype.is_text:
        return [value if isinstance(value, str) else value.decode() for value in flat.tolist()]
    return np.ascontiguousarray(flat)


def is_finite(flat: Array) -> bool:
    """Whether no element is NaN or infinite. The product is finite only then, and is there in a moment."""
    return math.isfinite(np.vdot(flat, flat)) or bool(np.isfinite(flat).all())


def encode_long(datatype: Datatype, array: Array) -> bytes:
    """The JSON text of an output's `data`, written in pieces."""
    flat = array.ravel()
    pieces = (encode(datatype, flat[start : start + PIECE]) for start in range(0, len(flat), PIECE))
    texts = (orjson.dumps(piece, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1] for piece in pieces)
    return b"[" + b",".join(texts) + b"]"


def _written(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _array(where: str, datatype: Datatype, flat: Sequence[Any], offset: int) -> Array:
    """These elements, the first of which has index `offset` in the tensor, as an array."""
    types = set(map(type, flat))
    if datatype.is_float and str in types:
        flat = [_NOT_FINITE.get(element, element) if type(element) is str else element for element in flat]
        types = set(map(type, flat))
        infinite = {index for index, element in enumerate(flat) if element in (math.inf, -math.inf)}
    else:
        infinite = set()
    if not datatype.elements.issuperset(types):
        index = next(i for i, element in enumerate(flat) if type(element) not in datatype.elements)
        raise _wrong_element(where, datatype, flat[index], offset + index)
    try:
        with np.errstate(over="ignore"):
            array = np.array(flat, dtype=datatype.numpy)
    except OverflowError:
        bounds = np.iinfo(np.dtype(datatype.numpy))
        low, high = int(bounds.min), int(bounds.max)
        index = next(i for i, element in enumerate(flat) if not low <= element <= high)
        raise _wrong_element(where, datatype, flat[index], offset + index) from None
    if datatype.is_float and not is_finite(array):
        for index in map(int, np.flatnonzero(np.isinf(array))):
            if index not in infinite:
                raise _wrong_element(where, datatype, flat[index], offset + index)
    return array


def _wrong_element(where: str, datatype: Datatype, element: object, index: int) -> ApiError:
    return ApiError(
        400,
        f"{where}: element {index} of 'data' (row-major) is {as_written(element)}, "
        f"but {datatype.name} means {datatype.described}",
    )


def _flatten(where: str, shape: Sequence[int], data: list[object]) -> list[object]:
    if not (data and isinstance(data[0], list)):
        return data
    level: list[Any] = data
    for axis, length in enumerate(shape):
        if axis > 0:
            level = _descend(where, shape, axis, level)
        elif len(level) != length:
            raise ApiError(
                400, f"{where}: 'data' has {len(level)} rows, but shape {list(shape)} means {length}"
            )
    return level


def _descend(where: str, shape: Sequence[int], axis: int, level: Iterable[Any]) -> list[object]:
    rows = list(level)
    for index, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != shape[axis]:
            found = f"a list of {len(row)}" if isinstance(row, list) else as_written(row)
            place = "".join(f"[{i}]" for i in np.unravel_index(index, shape[:axis]))
            raise ApiError(
                400,
                f"{where}: 'data'{place} is {found}, but shape {list(shape)} means a list of {shape[axis]}",
            )
    return list(chain.from_iterable(rows))


# --- long data

_COMMA, _QUOTE, _BACKSLASH, _SPACE = b',"\\ '
_OPENS, _CLOSES = b"[]"


def _decode_long(where: str, datatype: Datatype, shape: tuple[int, ...], data: LongData) -> Array:
    wanted = math.prod(shape)
    if 2 * wanted > data.end - data.start + 1:  # an element takes a byte, and a comma between two
        raise ApiError(400, f"{where}: 'data' has less than the {wanted} elements that its 'shape' means")
    array = np.empty(wanted, datatype.numpy)
    brackets: list[bytes] = []
    filled = 0
    for text, structure in _pieces(where, data):
        try:
            flat = orjson.loads(b"[" + text + b"]")
        except orjson.JSONDecodeError as error:
            raise ApiError(
                400, f"{where}: 'data' is not JSON, or not nested evenly, after element {filled}: {error}"
            ) from None
        if not flat:
            raise ApiError(400, f"{where}: 'data' is not JSON: an element is missing after element {filled}")
        if filled + len(flat) > wanted:
            raise ApiError(400, f"{where}: 'data' has more than the {wanted} elements that its 'shape' means")
        array[filled : filled + len(flat)] = _array(where, datatype, flat, filled)
        filled += len(flat)
        brackets.append(structure)
    if filled != wanted:
        raise ApiError(400, f"{where}: 'data' has {filled} elements, but shape {list(shape)} means {wanted}")
    if any(b"[" in structure for structure in brackets) and b"".join(brackets) != _nesting(shape):
        raise ApiError(400, f"{where}: 'data' is not nested as shape {list(shape)} means")
    return reshaped(where, array, shape)


def _nesting(shape: Sequence[int]) -> bytes:
    """The brackets and commas of data nested as this shape, without those of the outermost list."""
    inner = b""
    for length in reversed(shape[1:]):
        inner = b"[" + b",".join([inner] * length) + b"]"
    return b",".join([inner] * shape[0])


def _pieces(where: str, data: LongData) -> Iterator[tuple[bytes, bytes]]:
    """The text in parts that end between two elements, brackets blanked out; and each one's structure.

    The structure of a part is its brackets and commas, the comma after it too.
    """
    at, size = data.start, PIECE
    while at < data.end:
        end = min(at + size, data.end)
        raw = np.frombuffer(data.body[at:end], np.uint8)
        plain = ~in_strings(raw)
        commas = np.flatnonzero((raw == _COMMA) & plain)
        if end < data.end and not len(commas):
            size *= 2  # one element that is longer than this
            continue
        length = len(raw) if end == data.end else int(commas[-1])
        part, plain = raw[:length].copy(), plain[:length]
        bracket = ((part == _OPENS) | (part == _CLOSES)) & plain
        structure = raw[: length + 1][np.append((bracket | (part == _COMMA)) & plain, True)[: len(raw)]]
        part[bracket] = _SPACE
        yield part.tobytes(), structure.tobytes()
        if end == data.end:
            return
        at, size = at + length + 1, PIECE
    raise ApiError(400, f"{where}: 'data' is not JSON: nothing follows its last comma")


def in_strings(raw: Array, inside: bool = False) -> Array:
    """Which bytes of a JSON text are in strings: from the opening quote to before the closing one.

    inside: whether the text begins in a string
    """
    quotes = raw == _QUOTE
    backslashes = np.flatnonzero(raw == _BACKSLASH)
    if len(backslashes):
        # Of a row of backslashes every other one escapes what follows it.
        begins = np.diff(backslashes, prepend=-2) != 1
        first = np.maximum.accumulate(np.where(begins, backslashes, 0))
        escaped = backslashes[(backslashes - first) % 2 == 0] + 1
        quotes[escaped[escaped < len(raw)]] = False
    elif not inside and not quotes.any():
        return np.zeros(len(raw), np.bool_)
    return np.logical_xor.accumulate(quotes) ^ inside if len(raw) else quotes
