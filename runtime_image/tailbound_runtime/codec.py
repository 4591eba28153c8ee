"""Reads requests over HTTP to one model, and writes answers: as `protocol.py`, but each JSON only once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

import numpy as np

from tailbound_runtime import binary, json_body, json_frames
from tailbound_runtime.binary import COPIED_BYTES, Reserve
from tailbound_runtime.budget import SHORT_BYTES
from tailbound_runtime.engine import TensorSpec
from tailbound_runtime.protocol import Answer, Body, from_tail, infer_response, parse_infer
from tailbound_runtime.signature import InferRequest, Signature
from tailbound_runtime.tensors import Array, Datatype

_LONGEST_HEAD: Final = 2**10  # bytes of the JSON of a binary request that is kept
_MOST_HEADS: Final = 64
_VIEWED_BYTES: Final = 2**20
_SHAPE: Final = attrgetter("shape")


class _Part:
    """Where an input's tensor is after the JSON of a binary request, in bytes, and what it is."""

    __slots__ = ("begins", "checked", "dtype", "ends", "shape", "spec")

    def __init__(self, spec: TensorSpec, shape: tuple[int, ...], begins: int, ends: int) -> None:
        self.spec = spec
        self.shape = shape
        self.begins = begins
        self.ends = ends
        self.dtype = np.dtype(spec.datatype.numpy)
        self.checked = self.dtype == np.bool_  # not any bits are a value

    def array(self, body: Body, reserve: Reserve) -> Array:
        """The tensor, which shares the memory of a long body."""
        begins, ends = self.begins, self.ends
        if self.checked or ends - begins > COPIED_BYTES:
            return from_tail(self.spec, self.shape, memoryview(body)[begins:ends], reserve)
        return np.ndarray(self.shape, self.dtype, bytes(body[begins:ends]))  # a copy is aligned


@dataclass(frozen=True)
class _Plan:
    """What the JSON of a binary request means that was read before, and whose tensors all follow it.

    request: as it was then, with other tensors
    length: of such a body, in bytes
    """

    request: InferRequest
    parts: Sequence[tuple[str, _Part]]
    length: int


@dataclass(frozen=True)
class _Reply:
    """What is the same in all answers whose outputs have these shapes.

    head: their JSON
    datatypes: of the outputs
    """

    head: bytes
    datatypes: Sequence[Datatype]


class Codec:
    """Reads the requests to one model and writes the answers, for the event loop only.

    It remembers the JSON of the last ones, each kind up to a fixed number: most clients send the same again.

    short_bytes: of the longest body that is parsed in no time, and takes no memory that counts
    """

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        self._plans: dict[bytes, _Plan] = {}
        self._requests = json_frames.Requests(signature)
        self._answers = json_frames.Answers(signature)
        self._replies: dict[object, _Reply] = {}
        self._texts = any(spec.datatype.is_text for spec in signature.inputs.values())
        self.short_bytes = -1 if self._texts else SHORT_BYTES

    def takes_long(self, size: int, json_length: int | None) -> bool:
        """Whether it takes noticeable time to parse a body of `size` bytes: views of tensors take none."""
        if size <= json_body.SHORT:
            return False
        return json_length is None or json_length > json_body.SHORT or size > _VIEWED_BYTES or self._texts

    def parse(self, body: Body, json_length: int | None, reserve: Reserve) -> InferRequest:
        """Parse as `parse_infer` does, with the same errors, by what was learnt from earlier requests."""
        if json_length is None and len(body) <= json_frames.LONGEST and isinstance(body, bytes):
            return self._parse_json(body, reserve)
        if json_length is None or not 0 < json_length <= _LONGEST_HEAD or json_length > len(body):
            return parse_infer(body, json_length, self._signature, reserve)
        head = bytes(body[:json_length])
        plan = self._plans.get(head)
        if plan is None or plan.length != len(body):
            request = parse_infer(body, json_length, self._signature, reserve)
            self._learn(head, request, len(body))
            return request
        known = plan.request
        inputs = {}
        for name, part in plan.parts:
            inputs[name] = part.array(body, reserve)
        return InferRequest(
            known.id, inputs, known.outputs, known.rows, known.binary, known.priority, known.timeout_seconds
        )

    def answer(self, request: InferRequest, arrays: Sequence[Array]) -> Answer:
        """Write an answer as `infer_response` does, by what was learnt from earlier answers."""
        known = self.known_answer(request, arrays)
        if known is not None:
            return known
        answer = infer_response(request, self._signature, arrays)
        if request.id is None and not request.binary:
            self._answers.learn(request, arrays, bytes(answer.parts[0]))
        elif request.id is None and len(request.binary) == len(request.outputs):
            self._learn_reply(request, arrays, bytes(answer.parts[0]))
        return answer

    def known_answer(self, request: InferRequest, arrays: Sequence[Array]) -> Answer | None:
        """The answer, written as an earlier one with outputs of these shapes; None if there was none."""
        if request.id is not None:
            return None
        if not request.binary:
            parts = self._answers.write(request, arrays)
            return None if parts is None else Answer(parts, None)
        if len(request.binary) < len(request.outputs):
            return None
        reply = self._replies.get((request.outputs, *map(_SHAPE, arrays)))
        if reply is None:
            return None
        return Answer((reply.head, *map(binary.to_bytes, reply.datatypes, arrays)), len(reply.head))

    def _parse_json(self, body: bytes, reserve: Reserve) -> InferRequest:
        request = self._requests.parse(body)
        if request is None:
            request = parse_infer(body, None, self._signature, reserve)
            self._requests.learn(body, request)
        return request

    def _learn_reply(self, request: InferRequest, arrays: Sequence[Array], head: bytes) -> None:
        datatypes = [self._signature.outputs[name].datatype for name in request.outputs]
        if any(each.is_text for each in datatypes):
            return  # the shape does not tell the size of texts
        if len(self._replies) >= _MOST_HEADS:
            self._replies.clear()
        self._replies[request.outputs, *[array.shape for array in arrays]] = _Reply(head, datatypes)

    def _learn(self, head: bytes, request: InferRequest, length: int) -> None:
        specs = self._signature.inputs
        if any(specs[name].datatype.is_text for name in request.inputs):
            return  # where they end is not known from the head
        parts, at = [], len(head)
        for name, array in request.inputs.items():
            parts.append((name, _Part(specs[name], array.shape, at, at + array.nbytes)))
            at += array.nbytes
        if at == length:  # otherwise some of them are in the head
            if len(self._plans) >= _MOST_HEADS:
                self._plans.clear()
            self._plans[head] = _Plan(replace(request, inputs={}), parts, length)
