"""How a request's body comes in: within its limits of time and bytes, and unpacked."""

import gzip
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tailbound_runtime.budget import Share
from tailbound_runtime.contract import LATENCY_BOUND_HEADER
from tailbound_runtime.errors import ApiError, Header
from tailbound_runtime.model import Model
from tailbound_runtime.protocol import Body
from tailbound_runtime.signature import InferRequest
from tailbound_runtime.tensors import Array

if TYPE_CHECKING:
    from tailbound_runtime.wire import Wire

CLOSE: Final[Header] = (b"connection", b"close")
LEAST_PACKED_BYTES: Final = 16 * 2**10
"""Shorter answers are sent as they are."""

KEPT: Final = (b"accept-encoding", b"expect", b"traceparent", b"tracestate")
LONGEST_KEPT: Final = 2**10

LEAST_ROOM_BYTES: Final = 32 * 2**10

MOST_CALL_BYTES: Final = 128 * 2**10

MOST_KNOWN: Final = 256
LONGEST_KNOWN: Final = 2 * 2**10
"""Heads that are kept, and their bytes. Clients that send the same again are spared its parsing."""

_ALIGNED: Final = 64
_BOUND: Final = LATENCY_BOUND_HEADER.encode()
_LONGEST_NUMBER: Final = 18  # digits
_MOST_BOUND_DIGITS: Final = 9
_STEP: Final = 2**20
_WINDOW: Final = {b"gzip": zlib.MAX_WBITS | 16, b"deflate": zlib.MAX_WBITS}


@dataclass(frozen=True)
class Limits:
    """max_bytes: of one body, packed or not; seconds: from a head to its answer"""

    max_bytes: int
    seconds: float

    def of_calls(self) -> "Limits":
        """Those of a call that is no inference, whose body is read on the event loop."""
        return replace(self, max_bytes=min(self.max_bytes, MOST_CALL_BYTES))

    def too_long(self) -> ApiError:
        """The refusal of a longer body."""
        return ApiError(
            413, f"the request body is longer than {self.max_bytes} bytes, the limit of this server for it"
        )

    def too_slow(self) -> ApiError:
        """The refusal of a body that has not arrived in time."""
        return ApiError(408, f"the request body did not arrive within {self.seconds:g} s", [CLOSE])


class Head:
    """What the head of a request with a body says. Requests with the same head share it.

    path: what it asks for
    headers: those of KEPT: a head may be long, and there as long as its request
    encoding, json_length, bound_seconds: once they are found to be right
    length: of the body, in bytes; None if the head does not say
    packs: whether the client takes packed answers
    refusal: why no request with this head is served; None if one may be
    """

    __slots__ = ("bound_seconds", "encoding", "headers", "json_length", "length", "packs", "path", "refusal")

    def __init__(self, path: bytes, headers: Mapping[bytes, bytes], limits: Limits) -> None:
        self.path = path
        self.headers = {
            name: headers[name] for name in KEPT if name in headers and len(headers[name]) <= LONGEST_KEPT
        }
        self.encoding: bytes | None = None
        self.json_length: int | None = None
        self.bound_seconds: float | None = None
        self.length: int | None = None
        self.packs = b"accept-encoding" in headers
        self.refusal: ApiError | None = None
        try:
            self.encoding = encoding_of(headers)
            self.json_length = json_length_of(headers)
            self.bound_seconds = bound_seconds_of(headers)
            self.length = length_of(headers, limits)
        except ApiError as error:
            self.refusal = error


class Heads(dict[bytes, Head]):
    """Heads of inferences that were parsed, by their bytes.

    likely: the last one of a long body with binary tensors
    """

    likely: tuple[bytes, Head] | None = None

    def learn(self, text: bytes, head: Head) -> None:
        """These bytes always mean this head."""
        if len(text) <= LONGEST_KNOWN:
            if len(self) >= MOST_KNOWN:
                self.clear()
            self[text] = head


class Intake:
    """An inference request whose body is coming in.

    model: what it asks for, and has taken
    started: when its head was there, a time of `time.perf_counter`
    share: the memory that it uses
    body: as it was sent, so far
    received: when all of the body was there
    parsed: the request, and the outputs if its run is over, once these are known
    ended: whether the answer is known, or its client no longer waits for it
    trace: what an application that traces requests notes of it
    limits: of its body and time
    wire: the protocol that it came by
    """

    __slots__ = (
        "body",
        "ended",
        "head",
        "limits",
        "model",
        "parsed",
        "received",
        "share",
        "started",
        "trace",
        "wire",
    )

    def __init__(
        self, head: Head, started: float, limits: Limits, share: Share, model: Model, wire: "Wire"
    ) -> None:
        self.head = head
        self.model = model
        self.started = started
        self.received = started
        self.ended = False
        self.trace: Any = None
        self.share = share
        self.parsed: tuple[InferRequest, Sequence[Array] | None] | None = None
        self.body: Body = b""
        self.limits = limits
        self.wire = wire

    def add(self, chunk: bytes) -> None:
        """Take in a part of the body. Raises ApiError 413 and 503."""
        if len(self.body) + len(chunk) > self.limits.max_bytes:
            raise self.limits.too_long()
        self.share.need(len(chunk))
        if not self.body:
            self.body = chunk
            return
        if isinstance(self.body, bytes):
            self.body = bytearray(self.body)
        assert isinstance(self.body, bytearray), "what is received in its room is not added"
        self.body += chunk

    def room(self) -> memoryview | None:
        """Room for what misses of a long body with binary tensors, so that it is received where it stays.

        None for other bodies.
        """
        there = len(self.body)
        if self.head.length is None or self.head.length <= there:
            return None
        whole = space(self.head)
        if whole is None:
            return None
        whole[:there] = self.body
        self.body = whole
        return whole[there:]

    def end(self) -> None:
        """Give back what the body takes: the connection may go on for long."""
        self.ended = True
        self.parsed = None
        self.body = b""
        self.share.end()

    def left(self, now: float) -> float:
        """Seconds until the answer is due."""
        return self.started + self.limits.seconds - now


def space(head: Head, before: int = 0) -> memoryview | None:
    """Room for all of a long body with binary tensors, and for so many bytes before it; None for others.

    The first tensor begins where any type of element may.
    """
    length = head.length
    if head.json_length is None or head.encoding is not None or length is None or length < LEAST_ROOM_BYTES:
        return None
    # Not a bytearray: that is filled with zeros, and takes its memory before the bytes are there.
    begins = -(before + head.json_length) % _ALIGNED
    return np.empty(begins + before + length, np.uint8).data[begins:]


def encoding_of(headers: Mapping[bytes, bytes]) -> bytes | None:
    """What the body is packed with: gzip, deflate or None. Raises ApiError 415."""
    value = headers.get(b"content-encoding")
    if value is None:
        return None
    encoding = value.lower()
    if encoding not in _WINDOW and encoding != b"identity":
        raise ApiError(
            415,
            f"Content-Encoding {value.decode('latin-1')!r} is not supported: send gzip, deflate, or the body "
            "as it is",
            [(b"accept-encoding", b"gzip, deflate, identity")],
        )
    return encoding if encoding in _WINDOW else None


def json_length_of(headers: Mapping[bytes, bytes]) -> int | None:
    """Inference-Header-Content-Length; None if it is not there. Raises ApiError 400."""
    value = headers.get(b"inference-header-content-length")
    if value is None:
        return None
    if not (value.isdigit() and len(value) <= _LONGEST_NUMBER):
        raise ApiError(
            400,
            f"Inference-Header-Content-Length is {value.decode('latin-1')!r}, which is no number of bytes",
        )
    return int(value)


def length_of(headers: Mapping[bytes, bytes], limits: Limits) -> int | None:
    """Bytes of the body; None if they are not known before it ends. Raises ApiError 413."""
    declared = headers.get(b"content-length")
    if declared is None or not declared.isdigit():
        return None
    if len(declared) > _LONGEST_NUMBER or int(declared) > limits.max_bytes:
        raise limits.too_long()
    return None if b"transfer-encoding" in headers else int(declared)


def bound_seconds_of(headers: Mapping[bytes, bytes]) -> float | None:
    """What the gateway has written; None where late answers are wanted, too. Raises ApiError 400."""
    value = headers.get(_BOUND)
    if value is None:
        return None
    if not (value.isdigit() and len(value) <= _MOST_BOUND_DIGITS):
        raise ApiError(
            400,
            f"{LATENCY_BOUND_HEADER} is {value.decode('latin-1')!r}: write whole milliseconds, or leave it",
        )
    return int(value) / 1000


def unpack(encoding: bytes, packed: Body, limits: Limits, share: Share) -> bytearray:
    """The body. Raises ApiError 400, 413 and 503."""
    unpacker = zlib.decompressobj(_WINDOW[encoding])
    body = bytearray()
    rest: Body = packed
    try:
        while not unpacker.eof:
            part = unpacker.decompress(rest, _STEP)
            rest = unpacker.unconsumed_tail
            if not part and not rest:
                break
            if len(body) + len(part) > limits.max_bytes:
                raise limits.too_long()
            share.need(len(part))
            body += part
    except zlib.error as error:
        raise ApiError(400, f"the request body is no {encoding.decode()}: {error}") from None
    if not unpacker.eof or unpacker.unused_data:
        raise ApiError(400, f"the request body is no {encoding.decode()}: it does not end where that does")
    return body


def packing_for(headers: Mapping[bytes, bytes]) -> bytes | None:
    """What the client takes an answer packed with: gzip, deflate or None."""
    accepted = [part.strip().lower() for part in headers.get(b"accept-encoding", b"").split(b",")]
    names = [part.split(b";")[0].strip() for part in accepted if b"q=0" not in part or b"q=0." in part]
    return next((encoding for encoding in _WINDOW if encoding in names), None)


def pack(encoding: bytes, body: bytes) -> bytes:
    """The packed body, fast rather than small."""
    return gzip.compress(body, 1, mtime=0) if encoding == b"gzip" else zlib.compress(body, 1)
