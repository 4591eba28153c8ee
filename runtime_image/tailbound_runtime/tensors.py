"""Tensors between JSON and numpy, strictly: nothing is rounded, wrapped or guessed.

| datatype | JSON element | refused |
|---|---|---|
| BOOL | true, false | numbers |
| INT8 … UINT64 | integer within range | 1.0, true, null, "1", anything beyond the range |
| FP32, FP64 | number | true, null, "1", numbers that become infinite; NaN and Infinity are not JSON |
| FP16 | none: the protocol defines no JSON form | everything |
| BYTES | string | the rest |
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tailbound_runtime.errors import ApiError

Array = npt.NDArray[Any]

MAX_DIMENSION: Final = 2**63 - 1


@dataclass(frozen=True)
class Datatype:
    """One datatype of the protocol.

    elements: the Python types that JSON numbers, booleans and strings of it arrive as; empty = no JSON form
    described: what an element must be, for messages
    """

    name: str
    numpy: npt.DTypeLike
    elements: frozenset[type]
    described: str


def _integer(name: str, dtype: npt.DTypeLike) -> Datatype:
    bounds = np.iinfo(np.dtype(dtype))
    return Datatype(name, dtype, frozenset({int}), f"an integer from {bounds.min} to {bounds.max}")


_NUMBER: Final = frozenset({int, float})

# By ONNX Runtime's name of the type. A model that uses any other type cannot be served.
BY_ONNX_TYPE: Final = {
    "tensor(bool)": Datatype("BOOL", np.bool_, frozenset({bool}), "true or false"),
    "tensor(int8)": _integer("INT8", np.int8),
    "tensor(int16)": _integer("INT16", np.int16),
    "tensor(int32)": _integer("INT32", np.int32),
    "tensor(int64)": _integer("INT64", np.int64),
    "tensor(uint8)": _integer("UINT8", np.uint8),
    "tensor(uint16)": _integer("UINT16", np.uint16),
    "tensor(uint32)": _integer("UINT32", np.uint32),
    "tensor(uint64)": _integer("UINT64", np.uint64),
    "tensor(float16)": Datatype("FP16", np.float16, frozenset(), "nothing"),
    "tensor(float)": Datatype("FP32", np.float32, _NUMBER, "a number that FP32 can hold"),
    "tensor(double)": Datatype("FP64", np.float64, _NUMBER, "a number"),
    "tensor(string)": Datatype("BYTES", np.object_, frozenset({str}), "a string"),
}


def parse_shape(where: str, value: object) -> tuple[int, ...]:
    """A request's `shape`. Raises ApiError 400 unless it is a list of integers from 0 to MAX_DIMENSION."""
    if not isinstance(value, list):
        raise ApiError(
            400, f"{where}: 'shape' must be a list of integers such as [1, 4], not {_brief(value)}"
        )
    for index, dimension in enumerate(value):
        if type(dimension) is not int or not 0 <= dimension <= MAX_DIMENSION:
            raise ApiError(
                400,
                f"{where}: 'shape'[{index}] is {_brief(dimension)}, which is no integer from 0 to 2^63-1",
            )
    return tuple(value)


def decode(where: str, datatype: Datatype, shape: tuple[int, ...], data: object) -> Array:
    """A request's `data` as an array of `shape`. Raises ApiError 400 naming the first wrong element.

    data: flat in row-major order, or nested exactly as `shape` says
    """
    if not datatype.elements:
        raise ApiError(
            400,
            f"{where}: {datatype.name} tensors have no JSON form in this protocol, "
            "and this server does not take binary tensors yet",
        )
    if not isinstance(data, list):
        raise ApiError(400, f"{where}: 'data' must be a list, not {_brief(data)}")
    flat = _flatten(where, shape, data)
    wanted = math.prod(shape)
    if len(flat) != wanted:
        raise ApiError(
            400, f"{where}: 'data' has {len(flat)} elements, but shape {list(shape)} means {wanted}"
        )
    if not datatype.elements.issuperset(map(type, flat)):
        raise _wrong_element(where, datatype, flat)
    try:
        with np.errstate(over="ignore"):
            array = np.array(flat, dtype=datatype.numpy)
    except OverflowError:
        raise _wrong_element(where, datatype, flat) from None
    if datatype.elements is _NUMBER and not np.isfinite(array).all():
        raise _wrong_element(where, datatype, flat)
    try:
        return array.reshape(shape)
    except ValueError:
        raise ApiError(400, f"{where}: shape {list(shape)} is larger than any tensor can be") from None


def encode(name: str, datatype: Datatype, array: Array) -> list[Any] | Array:
    """An output's `data`: flat, row-major, for orjson.

    Raises ApiError 500 for NaN and infinities: JSON has no such numbers, and null would hide them. It is a
    500 because the request was right and the model's answer is not usable.
    """
    if not datatype.elements:
        raise ApiError(
            400,
            f"output {name!r} has datatype {datatype.name}, which has no JSON form in this protocol, and "
            "this server does not send binary tensors yet: name the outputs that you need in 'outputs'",
        )
    flat = array.ravel()
    if datatype.elements is _NUMBER and not np.isfinite(flat).all():
        index = int(np.flatnonzero(~np.isfinite(flat))[0])
        raise ApiError(
            500, f"the model put {flat[index]} at index {index} of output {name!r}: JSON cannot carry it"
        )
    return flat.tolist() if datatype.numpy is np.object_ else np.ascontiguousarray(flat)


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
            found = f"a list of {len(row)}" if isinstance(row, list) else _brief(row)
            place = "".join(f"[{i}]" for i in np.unravel_index(index, shape[:axis]))
            raise ApiError(
                400,
                f"{where}: 'data'{place} is {found}, but shape {list(shape)} means a list of {shape[axis]}",
            )
    return list(chain.from_iterable(rows))


def _wrong_element(where: str, datatype: Datatype, flat: Sequence[object]) -> ApiError:
    index = next(i for i, element in enumerate(flat) if not _fits(datatype, element))
    return ApiError(
        400,
        f"{where}: element {index} of 'data' (row-major) is {_brief(flat[index])}, "
        f"but {datatype.name} means {datatype.described}",
    )


def _fits(datatype: Datatype, element: object) -> bool:
    if type(element) not in datatype.elements:
        return False
    try:
        with np.errstate(over="ignore"):
            value = np.array(element, dtype=datatype.numpy)
    except OverflowError:
        return False
    return datatype.elements is not _NUMBER or bool(np.isfinite(value))


def _brief(value: object) -> str:
    """A JSON value in a message, as the client wrote it, cut to a readable length."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 40 else text[:39] + "…"
