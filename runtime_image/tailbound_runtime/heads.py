"""The JSON heads of binary requests and of their answers, which most clients send again and again."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tailbound_runtime import binary, json_body
from tailbound_runtime.binary import Reserve
from tailbound_runtime.engine import TensorSpec
from tailbound_runtime.protocol import Answer, Body, from_tail, infer_response, parse_infer
from tailbound_runtime.signature import InferRequest, Signature
from tailbound_runtime.tensors import Array

_LONGEST_HEAD: Final = 2**10  # bytes of a head that is kept
_MOST_HEADS: Final = 64
_VIEWED_BYTES: Final = 2**20


@dataclass(frozen=True)
class _Plan:
    """What a head means that was seen before, and whose tensors all follow in binary.

    request: as it was then, with other tensors
    parts: of each input its shape, and from where to where its bytes are after the head
    """

    request: InferRequest
    parts: Sequence[tuple[TensorSpec, tuple[int, ...], int, int]]
    tail: int


class Heads:
    """The last heads of binary requests to one model, and of answers: most clients send the same ones again.

    Not safe for threads.
    """

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        self._plans: dict[bytes, _Plan] = {}
        self._answers: dict[object, bytes] = {}
        self._texts = any(spec.datatype.is_text for spec in signature.inputs.values())

    def takes_long(self, size: int, json_length: int | None) -> bool:
        """Whether it takes noticeable time to parse a body of so many bytes: views of tensors take none."""
        if size <= json_body.SHORT:
            return False
        return json_length is None or json_length > json_body.SHORT or size > _VIEWED_BYTES or self._texts

    def parse(self, body: Body, json_length: int | None, reserve: Reserve) -> InferRequest:
        """The same as `parse_infer`; raises what it raises."""
        if json_length is None or not 0 < json_length <= _LONGEST_HEAD or json_length > len(body):
            return parse_infer(body, json_length, self._signature, reserve)
        head = bytes(body[:json_length])
        plan = self._plans.get(head)
        if plan is None or plan.tail != len(body) - json_length:
            request = parse_infer(body, json_length, self._signature, reserve)
            self._learn(head, request, len(body) - json_length)
            return request
        tail = memoryview(body)[json_length:]
        known = plan.request
        inputs = {
            spec.name: from_tail(spec, shape, tail[begins:ends], reserve)
            for spec, shape, begins, ends in plan.parts
        }
        return InferRequest(known.id, inputs, known.outputs, known.rows, known.binary)

    def answer(self, request: InferRequest, arrays: Sequence[Array]) -> Answer:
        """The same as `infer_response`."""
        if request.id is not None or len(request.binary) < len(request.outputs):
            return infer_response(request, self._signature, arrays)
        datatypes = [self._signature.outputs[name].datatype for name in request.outputs]
        key = (request.outputs, *[array.shape for array in arrays])
        head = self._answers.get(key)
        if head is not None:
            tail = [binary.to_bytes(*each) for each in zip(datatypes, arrays, strict=True)]
            return Answer((head, *tail), len(head))
        answer = infer_response(request, self._signature, arrays)
        if not any(
            datatype.is_text for datatype in datatypes
        ):  # the size of texts is not known from the shape
            if len(self._answers) >= _MOST_HEADS:
                self._answers.clear()
            self._answers[key] = bytes(answer.parts[0])
        return answer

    def _learn(self, head: bytes, request: InferRequest, tail: int) -> None:
        specs = self._signature.inputs
        if any(specs[name].datatype.is_text for name in request.inputs):
            return  # where they end is not known from the head
        parts, at = [], 0
        for name, array in request.inputs.items():
            parts.append((specs[name], array.shape, at, at + array.nbytes))
            at += array.nbytes
        if at == tail:  # otherwise some of them are in the head
            if len(self._plans) >= _MOST_HEADS:
                self._plans.clear()
            self._plans[head] = _Plan(replace(request, inputs={}), parts, tail)
