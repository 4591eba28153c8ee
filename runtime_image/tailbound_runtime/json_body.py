"""The JSON body of a request, parsed with bounds: long tensor data stays text, and the rest has to be short.

A body of up to `SHORT` bytes is parsed at once. Of a longer one the insides of long lists where tensor data
is, which is the fourth level of nesting, are cut out first; the decoder of tensors parses them in pieces.
"""

import secrets
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import orjson

from tailbound_runtime.errors import ApiError
from tailbound_runtime.json_data import PIECE, LongData, in_strings
from tailbound_runtime.tensors import Array

SHORT: Final = PIECE
MOST_ELSE_BYTES: Final = 256 * 2**10
"""The most bytes of a long body that are not tensor data."""

_BLOCK: Final = 256 * 2**10
_LONG_LIST: Final = 2**10
_DATA_LEVEL: Final = 4  # {"inputs": [{"data": [
_LIST: Final = ord("[")
# With this bit, "[" is as "{", and "]" as "}".
_LOWER, _OPENS, _CLOSES = 0x20, ord("{"), ord("}")

# Marks the position of a list that was cut out. It is random, so that no client can send it.
_MARK: Final = secrets.token_hex(16)


def parse(body: bytes | bytearray) -> dict[str, Any]:
    """The request, with `LongData` for long `data`. Raises ApiError 400 and 413."""
    if not body:
        raise ApiError(400, "the request body is empty: send a JSON object with 'inputs'")
    if len(body) <= SHORT:
        return _object(body, body)
    cuts = list(_cuts(body))
    view = memoryview(body)
    parts: list[bytes | memoryview] = []
    at = 0
    for number, (start, end) in enumerate(cuts):
        parts += [view[at:start], f'"{_MARK}{number}"'.encode()]
        at = end
    request = _object(b"".join([*parts, view[at:]]), body)
    if _restore(request, [LongData(view, *cut) for cut in cuts]) != len(cuts):
        raise ApiError(413, "a list that is no input's 'data' is too long: leave it out")
    return request


def _object(text: bytes | bytearray, body: bytes | bytearray) -> dict[str, Any]:
    try:
        request = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        near = body[: 2 * PIECE]
        hint = ""
        if b"NaN" in near or b"Infinity" in near:
            hint = ' (JSON has no NaN and Infinity: write the strings "NaN", "Infinity" and "-Infinity")'
        raise ApiError(400, f"the request body is not JSON: {error}{hint}") from None
    if not isinstance(request, dict):
        raise ApiError(400, "the request body must be a JSON object with 'inputs'")
    return request


def _restore(request: dict[str, Any], cut_out: list[LongData]) -> int:
    """Put the cut lists where they were in `data`; how many these are."""
    inputs = request.get("inputs")
    count = 0
    for entry in inputs if isinstance(inputs, list) else ():
        data = entry.get("data") if isinstance(entry, dict) else None
        if isinstance(data, list) and len(data) == 1 and str(data[0]).startswith(_MARK):
            entry["data"] = cut_out[int(data[0].removeprefix(_MARK))]
            count += 1
    return count


def _cuts(body: bytes | bytearray) -> Iterator[tuple[int, int]]:
    """The insides of long lists at the level of tensor data, from start to end. Raises ApiError 400, 413."""
    whole = np.frombuffer(body, np.uint8)
    depth, inside, opened = 0, False, -1
    cut = at = 0
    while at < len(whole):
        block = whole[at : at + _block_length(body, at)]
        strings = in_strings(block, inside)
        inside = bool(strings[-1])
        opens, closes, depth = _borders(block, ~strings, depth)
        starts = [*([opened] if opened >= 0 else []), *(at + opens).tolist()]
        ends = (at + closes).tolist()
        opened = starts.pop() if len(starts) > len(ends) else -1
        for start, end in zip(starts, ends, strict=True):
            if end - start > _LONG_LIST and whole[start] == _LIST:
                cut += end - start - 1
                yield start + 1, end
        at += len(block)
        if (opened if opened >= 0 else at) - cut > MOST_ELSE_BYTES:
            raise ApiError(
                413,
                f"what the request body says beside the inputs' 'data' is longer than {MOST_ELSE_BYTES} "
                "bytes, the limit of this server",
            )
    if opened >= 0:
        raise ApiError(400, f"the request body is not JSON: what opens at byte {opened} has no end")


def _block_length(body: bytes | bytearray, at: int) -> int:
    """A block must not end between a backslash and what it escapes."""
    block = body[at : at + _BLOCK]
    backslashes = len(block) - len(block.rstrip(b"\\"))
    return len(block) - backslashes % 2 if at + len(block) < len(body) else len(block)


def _borders(block: Array, plain: Array, depth: int) -> tuple[Array, Array, int]:
    """Where lists and objects of the level of tensor data begin and end, which alternate; the depth then."""
    kind = block | _LOWER
    opens, closes = (kind == _OPENS) & plain, (kind == _CLOSES) & plain
    levels = np.cumsum(opens.astype(np.int8) - closes.astype(np.int8), dtype=np.int64) + depth
    return (
        np.flatnonzero(opens & (levels == _DATA_LEVEL)),
        np.flatnonzero(closes & (levels == _DATA_LEVEL - 1)),
        int(levels[-1]),
    )
