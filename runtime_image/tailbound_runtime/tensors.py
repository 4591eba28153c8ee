"""Tensors: the protocol's datatypes, what numpy and JSON call them, and shapes."""

import sys
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tailbound_runtime.errors import ApiError

Array = npt.NDArray[Any]

MAX_DIMENSION: Final = 2**63 - 1


@dataclass(frozen=True)
class Datatype:
    """One datatype of the protocol.

    numpy: the type of its arrays; strings are Python objects
    elements: the Python types that its JSON elements arrive as; empty if it has no JSON form
    described: what a JSON element must be, for messages
    """

    name: str
    numpy: npt.DTypeLike
    elements: frozenset[type]
    described: str

    @cached_property
    def is_float(self) -> bool:
        """Whether NaN and infinities are among its values, and JSON numbers may stand for it."""
        return float in self.elements

    @cached_property
    def is_text(self) -> bool:
        """Whether its elements have lengths of their own."""
        return self.numpy is np.object_

    @cached_property
    def item_bytes(self) -> int:
        """Bytes of one element in an array; of a text, those of the reference to it."""
        return np.dtype(self.numpy).itemsize


def _integer(name: str, dtype: npt.DTypeLike) -> Datatype:
    bounds = np.iinfo(np.dtype(dtype))
    return Datatype(name, dtype, frozenset({int}), f"an integer from {bounds.min} to {bounds.max}")


_NUMBER: Final = frozenset({int, float})
_FLOAT: Final = '"NaN", "Infinity", "-Infinity" or a number'

# numpy has no such type: its arrays hold the bits.
BF16: Final = Datatype("BF16", np.uint16, frozenset(), "nothing")

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
    "tensor(bfloat16)": BF16,
    "tensor(float)": Datatype("FP32", np.float32, _NUMBER, f"{_FLOAT} that FP32 can hold"),
    "tensor(double)": Datatype("FP64", np.float64, _NUMBER, _FLOAT),
    "tensor(string)": Datatype("BYTES", np.object_, frozenset({str}), "a string"),
}

BY_NAME: Final = {datatype.name: datatype for datatype in BY_ONNX_TYPE.values()}
BY_DTYPE: Final = {
    np.dtype(datatype.numpy): datatype
    for datatype in BY_NAME.values()
    if datatype is not BF16 and not datatype.is_text
}
"""Those that numpy has a number for."""


def bits_of(values: Array) -> Array:
    """FP32 values as the bits of BF16, cut off."""
    return np.asarray(np.array(values, np.float32).view(np.uint32) >> 16, np.uint16)


def values_of(bits: Array) -> Array:
    """The bits of BF16 as FP32 values, which hold all of them."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def size_of(array: Array) -> int:
    """Bytes in memory, with those of its texts. It takes a time for each text."""
    if array.dtype.hasobject:
        return array.nbytes + sum(sys.getsizeof(each) for each in array.ravel())
    return array.nbytes


def exceed(arrays: Collection[Array], most: int) -> bool:
    """Whether these have more bytes together; many texts are not even counted."""
    return sum(array.nbytes for array in arrays) > most or sum(map(size_of, arrays)) > most


def content_of(array: Array) -> bytes:
    """All elements, in order and with their borders."""
    return repr(array.ravel().tolist()).encode() if array.dtype.hasobject else array.tobytes()


def parse_shape(where: str, value: object) -> tuple[int, ...]:
    """A request's `shape`. Raises ApiError 400 unless it is a list of integers from 0 to MAX_DIMENSION."""
    if not isinstance(value, list):
        raise ApiError(
            400, f"{where}: 'shape' must be a list of integers such as [1, 4], not {as_written(value)}"
        )
    for index, dimension in enumerate(value):
        if type(dimension) is not int or not 0 <= dimension <= MAX_DIMENSION:
            raise ApiError(
                400,
                f"{where}: 'shape'[{index}] is {as_written(dimension)}, which is no integer from 0 to 2^63-1",
            )
    return tuple(value)


def reshaped(where: str, array: Array, shape: tuple[int, ...]) -> Array:
    """The flat array in this shape, whose product is its length. Raises ApiError 400 for absurd shapes."""
    try:
        return array.reshape(shape)
    except ValueError:
        raise ApiError(400, f"{where}: shape {list(shape)} is larger than any tensor can be") from None


def as_written(value: object) -> str:
    """A JSON value in a message, as the client wrote it, cut to a readable length."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 40 else text[:39] + "…"
