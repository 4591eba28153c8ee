"""Binary tensors: row-major, little-endian, without padding.

| datatype | an element |
|---|---|
| BOOL | one byte, 0 or 1 |
| BYTES | its length in 4 bytes, then UTF-8: ONNX Runtime takes texts only |
| the rest | as in memory; any bits are a value |
"""

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from tailbound_runtime.errors import ApiError
from tailbound_runtime.tensors import Array, Datatype, reshaped

LENGTH_BYTES: Final = 4
COPIED_BYTES: Final = 4 * 2**10  # a copy is faster than a view
TEXT_BYTES: Final = 64  # of a Python string, with the reference to it

Reserve = Callable[[int], None]
"""Asks for memory before it is used. Raises ApiError 503."""


def from_bytes(where: str, datatype: Datatype, shape: tuple[int, ...], raw: memoryview) -> Array:
    """The tensor. Raises ApiError 400. Shares memory with `raw` where it can."""
    if datatype.is_text:
        return reshaped(where, texts_from(where, math.prod(shape), raw), shape)
    wanted = math.prod(shape) * datatype.item_bytes
    if len(raw) != wanted:
        raise ApiError(
            400,
            f"{where}: the binary tensor has {len(raw)} bytes, but shape {list(shape)} of {datatype.name} "
            f"means {wanted}",
        )
    if datatype.numpy is np.bool_:
        wrong = np.flatnonzero(np.frombuffer(raw, np.uint8) > 1)
        if len(wrong):
            raise ApiError(
                400, f"{where}: element {wrong[0]} is the byte {raw[wrong[0]]}, but BOOL means 0 or 1"
            )
    array = np.frombuffer(raw, datatype.numpy)
    return reshaped(where, array if array.flags.aligned else array.copy(), shape)


def texts_from(where: str, wanted: int, raw: memoryview) -> Array:
    """Read `wanted` texts, each after its length. Raises ApiError 400."""
    if wanted * LENGTH_BYTES > len(raw):
        raise ApiError(
            400, f"{where}: the binary tensor of {len(raw)} bytes ends before its {wanted} elements do"
        )
    array = np.empty(wanted, np.object_)
    at = 0
    for index in range(wanted):
        begins = at + LENGTH_BYTES
        at = begins + int.from_bytes(raw[at:begins], "little")
        if begins > len(raw) or at > len(raw):
            raise ApiError(400, f"{where}: the binary tensor ends before its element {index} does")
        array[index] = text(where, index, bytes(raw[begins:at]))
    if at != len(raw):
        raise ApiError(
            400, f"{where}: {len(raw) - at} bytes follow the last of the {wanted} elements that 'shape' means"
        )
    return array


def text(where: str, index: int, element: bytes) -> str:
    """An element of BYTES as the text that ONNX Runtime takes. Raises ApiError 400."""
    try:
        return element.decode()
    except UnicodeDecodeError as error:
        raise ApiError(
            400, f"{where}: element {index} is no UTF-8, which texts of ONNX models are: {error.reason}"
        ) from None


def to_bytes(datatype: Datatype, array: Array) -> bytes | memoryview:
    """The tensor's bytes; those of the array itself where they are as they have to be."""
    if datatype.is_text:
        return b"".join(
            len(one).to_bytes(LENGTH_BYTES, "little") + one for one in map(_encoded, array.ravel().tolist())
        )
    if array.nbytes <= COPIED_BYTES:
        return array.tobytes()
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _encoded(element: str | bytes) -> bytes:
    return element.encode() if isinstance(element, str) else element
