"""What is sent back: an inference, an error, and how it is packed."""

from collections.abc import Callable, Sequence
from typing import Final

import orjson

from tailbound_runtime import reception
from tailbound_runtime.errors import ApiError, Header
from tailbound_runtime.protocol import Answer
from tailbound_runtime.reception import Intake

JSON: Final[Header] = (b"content-type", b"application/json")
OCTETS: Final[Header] = (b"content-type", b"application/octet-stream")
_IN_JSON: Final = (JSON,)


class Response:
    """An answer; the connection adds Date, Content-Length and Connection.

    sent: takes in the seconds that sending it took, where those count and no intake is there for that
    """

    __slots__ = ("headers", "parts", "sent", "status")

    def __init__(self, status: int, headers: Sequence[Header], parts: Sequence[bytes | memoryview]) -> None:
        self.status = status
        self.headers = headers
        self.parts = parts
        self.sent: Callable[[float], None] | None = None


def refusal(error: ApiError) -> Response:
    """An error of the protocol."""
    return Response(error.status, [JSON, *error.headers], [orjson.dumps({"error": error.message})])


def success(answer: Answer) -> Response:
    """The answer to an inference."""
    if answer.json_length is None:
        return Response(200, _IN_JSON, answer.parts)
    length = (b"inference-header-content-length", b"%d" % answer.json_length)
    return Response(200, (OCTETS, length), answer.parts)


def packing(intake: Intake, response: Response) -> bytes | None:
    """What the client takes this answer packed with; None if it is better sent as it is."""
    if not intake.head.packs:
        return None
    if sum(map(len, response.parts)) < reception.LEAST_PACKED_BYTES:
        return None
    return reception.packing_for(intake.head.headers)
