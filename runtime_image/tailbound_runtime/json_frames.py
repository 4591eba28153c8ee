"""What is around the numbers of JSON requests and answers, which is the same in most of them.

A request's frame is what comes before and after the list of its only tensor. Once a request with a frame was
parsed, others with the same frame are parsed by their list alone: JSON with another list in the same place
means the same with another list. An answer's frame depends on the shapes of its outputs only.
"""

import array
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import orjson

from tailbound_runtime import json_data
from tailbound_runtime.engine import TensorSpec
from tailbound_runtime.signature import InferRequest, Signature
from tailbound_runtime.tensors import Array

LONGEST: Final = 8 * 2**10  # bytes of a request whose frame is looked for
MOST_FRAMES: Final = 64
_DATA: Final = b'"data"'
_OPENS, _CLOSES = b"[", b"]"
_NUMBERS: Final = b"0123456789+-.eE, \t\r\n"
# Stands for a list. It is random, so that no client can send it.
_MARK: Final = secrets.token_hex(16)
_MARKED: Final = f'"{_MARK}"'.encode()
_NO_NUMBER: Final = b"null"  # what orjson writes for NaN and the infinities
_CODES: Final = {"FP32": "f", "FP64": "d"}


@dataclass(frozen=True)
class _Known:
    """A request that had this frame, without its tensor."""

    request: InferRequest
    spec: TensorSpec
    shape: tuple[int, ...]


class Requests:
    """Frames of requests to one model."""

    def __init__(self, signature: Signature) -> None:
        self._inputs = signature.inputs
        self._known: dict[tuple[bytes, bytes], _Known] = {}

    def parse(self, body: bytes) -> InferRequest | None:
        """The request; None if its frame is not known, or its list is not as it should be.

        Raises ApiError 400 for elements that do not agree with the model.
        """
        begins, ends = _list_in(body)
        known = self._known.get((body[:begins], body[ends:]))
        if known is None:
            return None
        text = body[begins:ends]
        try:
            flat = orjson.loads(text)
        except orjson.JSONDecodeError:
            return None
        tensor = _numbers(known, text, flat)
        if tensor is None:
            spec = known.spec
            tensor = json_data.decode(f"input {spec.name!r}", spec.datatype, known.shape, flat)
        request = known.request
        inputs = {known.spec.name: tensor}
        scheduling = request.priority, request.timeout_seconds
        return InferRequest(request.id, inputs, request.outputs, request.rows, request.binary, *scheduling)

    def learn(self, body: bytes, request: InferRequest) -> None:
        """Remember the frame of a request that was parsed."""
        if len(request.inputs) != 1:
            return
        begins, ends = _list_in(body)
        try:
            probe = orjson.loads(body[:begins] + _MARKED + body[ends:])
        except orjson.JSONDecodeError:
            return
        entries = probe.get("inputs")
        if not (
            isinstance(entries, list) and isinstance(entries[0], dict) and entries[0].get("data") == _MARK
        ):
            return
        if len(self._known) >= MOST_FRAMES:
            self._known.clear()
        ((name, tensor),) = request.inputs.items()
        known = _Known(replace(request, inputs={}), self._inputs[name], tensor.shape)
        self._known[body[:begins], body[ends:]] = known


def _list_in(body: bytes) -> tuple[int, int]:
    """From where to where the list of the tensor seems to go."""
    begins = body.find(_OPENS, body.find(_DATA))
    return begins, body.find(_CLOSES, begins) + 1


def _numbers(known: _Known, text: bytes, flat: Sequence[Any]) -> Array | None:
    """The tensor, if it has as many numbers as it should, and all of them are ones of its datatype."""
    code = _CODES.get(known.spec.datatype.name)
    if code is None or len(flat) != math.prod(known.shape) or text[1:-1].translate(None, _NUMBERS):
        return None
    try:
        tensor: Array = np.frombuffer(array.array(code, flat), known.spec.datatype.numpy)
    except OverflowError:
        return None
    return tensor.reshape(known.shape) if json_data.is_finite(tensor) else None


class Answers:
    """Frames of answers in JSON of one model."""

    def __init__(self, signature: Signature) -> None:
        self._outputs = signature.outputs
        self._known: dict[object, Sequence[bytes]] = {}

    def write(self, request: InferRequest, arrays: Sequence[Array]) -> list[bytes] | None:
        """The answer, in parts; None if its frame is not known, or a number has no form in JSON."""
        frame = self._known.get((request.outputs, *[each.shape for each in arrays]))
        if frame is None:
            return None
        parts = [frame[0]]
        for each, after in zip(arrays, frame[1:], strict=True):
            text = orjson.dumps(each.ravel(), option=orjson.OPT_SERIALIZE_NUMPY)
            if _NO_NUMBER in text:
                return None
            parts += [text, after]
        return parts

    def learn(self, request: InferRequest, arrays: Sequence[Array], text: bytes) -> None:
        """Remember the frame of this answer to a request that names no id and asks for JSON only."""
        texts = any(self._outputs[name].datatype.is_text for name in request.outputs)
        if texts or len(text) > LONGEST:
            return
        answer = orjson.loads(text)
        if len(self._known) >= MOST_FRAMES:
            self._known.clear()
        outputs = [{**output, "data": _MARK} for output in answer["outputs"]]
        frame = orjson.dumps({**answer, "outputs": outputs}).split(_MARKED)
        self._known[request.outputs, *[each.shape for each in arrays]] = frame
