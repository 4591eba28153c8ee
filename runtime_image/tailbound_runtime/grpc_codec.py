"""Reads the ModelInferRequests to one model and writes the answers: of known ones only the tensors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tailbound_runtime import binary, grpc_tensors
from tailbound_runtime.binary import COPIED_BYTES, Reserve
from tailbound_runtime.engine import TensorSpec
from tailbound_runtime.grpc_message import Asked
from tailbound_runtime.inference_pb2 import ModelInferResponse
from tailbound_runtime.protocol import from_tail
from tailbound_runtime.signature import InferRequest, Signature
from tailbound_runtime.tensors import Array, Datatype

_LONGEST: Final = 2**10  # bytes of what is kept
_MOST: Final = 64
_RAW: Final = ModelInferResponse.RAW_OUTPUT_CONTENTS_FIELD_NUMBER << 3 | 2

Part = bytes | memoryview


class _Input:
    """How the raw tensor of an input is read."""

    __slots__ = ("_dtype", "_shape", "_spec", "name", "size")

    def __init__(self, spec: TensorSpec, shape: tuple[int, ...], size: int) -> None:
        self.name = spec.name
        self.size = size
        self._spec = spec
        self._shape = shape
        self._dtype = np.dtype(spec.datatype.numpy)

    def array(self, raw: bytes | memoryview, reserve: Reserve) -> Array:
        """The tensor, which shares the memory of a long one."""
        if self._dtype == np.bool_ or self.size > COPIED_BYTES:  # not any bits are a BOOL
            return from_tail(self._spec, self._shape, memoryview(raw), reserve)
        return np.ndarray(self._shape, self._dtype, raw)


@dataclass(frozen=True)
class _Plan:
    """What a message without its raw tensors means; the request is as it was then, with other tensors."""

    request: InferRequest
    inputs: Sequence[_Input]


@dataclass(frozen=True)
class _Reply:
    """What is the same in all answers whose outputs have these shapes, and none of which are texts."""

    head: bytes
    raw: Sequence[tuple[Datatype, bytes]]


class RpcCodec:
    """Used on the event loop only; `parse_uncached` and `answer_uncached` may be called in any thread."""

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        self._plans: dict[bytes, _Plan] = {}
        self._replies: dict[object, _Reply] = {}
        self._texts = any(spec.datatype.is_text for spec in signature.inputs.values())

    def takes_long(self, asked: Asked) -> bool:
        """Whether it takes noticeable time to read it: tensors that are cut out take none."""
        if len(asked.rest) > _LONGEST:
            return len(asked.rest) > 64 * 2**10
        return self._texts and sum(map(len, asked.raw)) > 64 * 2**10

    def parse(self, asked: Asked, reserve: Reserve) -> InferRequest:
        """The request. Raises ApiError."""
        plan = self._plans.get(asked.rest)
        if plan is None or [len(each) for each in asked.raw] != [each.size for each in plan.inputs]:
            request = self.parse_uncached(asked, reserve)
            self._learn(asked, request)
            return request
        known = plan.request
        inputs = {
            each.name: each.array(raw, reserve) for each, raw in zip(plan.inputs, asked.raw, strict=True)
        }
        return InferRequest(
            known.id, inputs, known.outputs, known.rows, known.binary, known.priority, known.timeout_seconds
        )

    def parse_uncached(self, asked: Asked, reserve: Reserve) -> InferRequest:
        """Parse a request without what was learnt from earlier ones."""
        reserve(len(asked.rest))
        message = grpc_tensors.message_of(asked)
        return grpc_tensors.parse(message, asked.raw, self._signature, reserve)

    def answer(self, request: InferRequest, arrays: Sequence[Array]) -> Sequence[Part]:
        """The ModelInferResponse."""
        if request.id is not None or not request.binary:
            return self.answer_uncached(request, arrays)
        key = (request.outputs, *[array.shape for array in arrays])
        reply = self._replies.get(key)
        if reply is None:
            reply = self._reply(request, arrays)
            if reply is None:
                return self.answer_uncached(request, arrays)
            if len(self._replies) >= _MOST:
                self._replies.clear()
            self._replies[key] = reply
        parts: list[Part] = [reply.head]
        for (datatype, begins), array in zip(reply.raw, arrays, strict=True):
            parts += (begins, binary.to_bytes(datatype, array))
        return parts

    def answer_uncached(self, request: InferRequest, arrays: Sequence[Array]) -> Sequence[Part]:
        """Write an answer without what was learnt from earlier ones."""
        answer, raw = grpc_tensors.response(request, self._signature, arrays)
        parts: list[Part] = [answer.SerializeToString()]
        for content in raw:
            parts += (_begins(len(content)), content)
        return parts

    def _learn(self, asked: Asked, request: InferRequest) -> None:
        specs = self._signature.inputs
        if (
            len(asked.rest) > _LONGEST
            or not asked.raw
            or any(specs[name].datatype.is_text for name in request.inputs)
        ):
            return
        if len(self._plans) >= _MOST:
            self._plans.clear()
        inputs = [_Input(specs[name], array.shape, array.nbytes) for name, array in request.inputs.items()]
        self._plans[asked.rest] = _Plan(replace(request, inputs={}), inputs)

    def _reply(self, request: InferRequest, arrays: Sequence[Array]) -> _Reply | None:
        datatypes = [self._signature.outputs[name].datatype for name in request.outputs]
        if any(each.is_text for each in datatypes):  # the shape does not tell the size of texts
            return None
        head, _ = grpc_tensors.response(request, self._signature, arrays)
        sizes = [len(binary.to_bytes(*each)) for each in zip(datatypes, arrays, strict=True)]
        begins = [_begins(size) for size in sizes]
        return _Reply(head.SerializeToString(), list(zip(datatypes, begins, strict=True)))


def _begins(size: int) -> bytes:
    """What comes before a raw tensor of so many bytes."""
    parts = [_RAW]
    while size > 0x7F:
        parts.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((*parts, size))
