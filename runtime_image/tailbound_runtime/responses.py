"""What is sent back: an inference, an error, how it is packed, and the head before it."""

import time
from collections.abc import Callable, Sequence
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Final

import orjson

from tailbound_runtime import reception
from tailbound_runtime.errors import ApiError, Header
from tailbound_runtime.protocol import Answer
from tailbound_runtime.reception import Intake

JSON: Final[Header] = (b"content-type", b"application/json")
OCTETS: Final[Header] = (b"content-type", b"application/octet-stream")
_IN_JSON: Final = (JSON,)
_STATUS: Final = {
    status: b"HTTP/1.1 %d %s\r\ndate: " % (status, HTTPStatus(status).phrase.encode())
    for status in map(int, HTTPStatus)
}


class Response:
    """An answer; the connection adds Date, Content-Length and Connection.

    size: bytes of the body
    sent: takes in the seconds that sending it took, where those count and no intake is there for that
    """

    __slots__ = ("headers", "parts", "sent", "size", "status")

    def __init__(self, status: int, headers: Sequence[Header], parts: Sequence[bytes | memoryview]) -> None:
        self.status = status
        self.headers = headers
        self.parts = parts
        self.size = sum(map(len, parts))
        self.sent: Callable[[float], None] | None = None


def refusal(error: ApiError) -> Response:
    """An error of the protocol."""
    return Response(error.status, [JSON, *error.headers], [orjson.dumps({"error": error.message})])


def success(answer: Answer) -> Response:
    """The answer to an inference."""
    if answer.json_length is None:
        return Response(200, _IN_JSON, answer.parts)
    return Response(200, _with_tensors(answer.json_length), answer.parts)


@lru_cache(64)
def _with_tensors(json_length: int) -> Sequence[Header]:
    return OCTETS, (b"inference-header-content-length", b"%d" % json_length)


def packing(intake: Intake, response: Response) -> bytes | None:
    """What the client takes this answer packed with; None if it is better sent as it is."""
    if not intake.head.packs:
        return None
    if response.size < reception.LEAST_PACKED_BYTES:
        return None
    return reception.packing_for(intake.head.headers)


def head_of(status: int, headers: Sequence[Header], length: int) -> bytes:
    """The status line and the headers of an answer, with the length of its body."""
    return _head_at(int(time.time()), status, tuple(headers), length)


@lru_cache(64)
def _head_at(seconds: int, status: int, headers: tuple[Header, ...], length: int) -> bytes:
    lines = [b"\r\n%s: %s" % header for header in headers]
    return b"%s%s%s\r\ncontent-length: %d\r\n\r\n" % (
        _STATUS[status],
        _date(seconds),
        b"".join(lines),
        length,
    )


@lru_cache(1)
def _date(seconds: int) -> bytes:
    """The Unix time as the value of a Date header."""
    return formatdate(seconds, usegmt=True).encode()
