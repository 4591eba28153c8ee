"""How the bytes of an inference and of its answer are to be read and written: of each protocol in its way."""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from tailbound_runtime import reception, responses
from tailbound_runtime.errors import ApiError
from tailbound_runtime.protocol import infer_response, parse_infer
from tailbound_runtime.reception import Intake
from tailbound_runtime.responses import Response
from tailbound_runtime.signature import InferRequest
from tailbound_runtime.tensors import Array


class Wire(Protocol):
    """One protocol. What is done `aside` is done in another thread than the loop's.

    name: of the protocol, for the log
    """

    name: str

    def takes_long(self, intake: Intake) -> bool:
        """Whether it takes noticeable time to read this body."""

    def parse(self, intake: Intake) -> InferRequest:
        """The request. Raises ApiError."""

    def parse_aside(self, intake: Intake) -> InferRequest:
        """Parse a body outside the event loop's thread."""

    def write(self, intake: Intake, request: InferRequest, arrays: Sequence[Array], aside: bool) -> Response:
        """The answer."""

    def packing(self, intake: Intake, response: Response) -> bytes | None:
        """What the client takes this answer packed with; None if it is better sent as it is."""

    def refusal(self, error: ApiError) -> Response:
        """The answer to a request that failed."""

    def attributes(self, code: int) -> Mapping[str, str | int]:
        """What a span says of an answer with this status of HTTP, by OpenTelemetry's names."""


class Rest:
    """The Open Inference Protocol over HTTP, with JSON and binary tensors."""

    name = "http"

    def takes_long(self, intake: Intake) -> bool:
        head = intake.head
        return head.encoding is not None or intake.model.codec.takes_long(len(intake.body), head.json_length)

    def parse(self, intake: Intake) -> InferRequest:
        return intake.model.codec.parse(intake.body, intake.head.json_length, intake.share.need)

    def parse_aside(self, intake: Intake) -> InferRequest:
        body, head = intake.body, intake.head
        if head.encoding is not None:
            body = reception.unpack(head.encoding, body, intake.limits, intake.share)
        return parse_infer(body, head.json_length, intake.model.loaded()[0], intake.share.need)

    def write(self, intake: Intake, request: InferRequest, arrays: Sequence[Array], aside: bool) -> Response:
        model = intake.model
        # What was remembered is the loop's own.
        answer = (
            infer_response(request, model.loaded()[0], arrays)
            if aside
            else model.codec.answer(request, arrays)
        )
        return responses.success(answer)

    def packing(self, intake: Intake, response: Response) -> bytes | None:
        return responses.packing(intake, response)

    def refusal(self, error: ApiError) -> Response:
        return responses.refusal(error)

    def attributes(self, code: int) -> Mapping[str, str | int]:
        return {"http.request.method": "POST", "http.response.status_code": code}


REST: Final = Rest()
