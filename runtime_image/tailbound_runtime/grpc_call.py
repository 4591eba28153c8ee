"""One gRPC call over a stream of HTTP/2: its deadline, its answer and its status.

| answer over HTTP | status over gRPC |
|---|---|
| 400 | INVALID_ARGUMENT |
| 404 | NOT_FOUND |
| 408, 504 | DEADLINE_EXCEEDED |
| 413 | RESOURCE_EXHAUSTED |
| 501 | UNIMPLEMENTED |
| 503 | UNAVAILABLE |
| 499 | CANCELLED |
| else | INTERNAL |
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from math import inf
from typing import Any, Final
from urllib.parse import quote

import structlog
from google.protobuf.message import DecodeError, Message

from tailbound_runtime.app import App
from tailbound_runtime.budget import Budget, Share
from tailbound_runtime.errors import ApiError, Header
from tailbound_runtime.grpc_head import RpcHead
from tailbound_runtime.http2 import Http2Connection
from tailbound_runtime.http2_blocks import literal
from tailbound_runtime.http2_frames import Code
from tailbound_runtime.http2_outflow import Part, Stream
from tailbound_runtime.inferences import UNEXPECTED
from tailbound_runtime.pending import Pending
from tailbound_runtime.protocol import Body
from tailbound_runtime.reception import CLOSE, Limits

SERVICE: Final = "inference.GRPCInferenceService"
_CODES: Final = {200: 0, 400: 3, 404: 5, 408: 4, 413: 8, 499: 1, 501: 12, 503: 14, 504: 4}
_INTERNAL: Final = 13
PREFIX_BYTES: Final = 5  # of a message: whether it is packed, and its length in 4 bytes
_LONGEST_MESSAGE: Final = 2000  # bytes of a status, which clients take with all headers up to 8 KiB
_GRACE_SECONDS: Final = 5.0
_BEGIN: Final = b"\x88" + literal(b"content-type", b"application/grpc")  # \x88: ":status: 200"
_OK: Final = literal(b"grpc-status", b"0")
_PRINTED: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")

log = structlog.get_logger(__name__)


class Surface:
    """What all calls share.

    limits: of one call
    """

    def __init__(self, app: App, limits: Limits, budget: Budget) -> None:
        self.app = app
        self.limits = limits
        self.budget = budget
        self.loop = asyncio.get_running_loop()


Arrival = tuple[Surface, Http2Connection, Stream, RpcHead]
"""What each call begins with: what all share, and its own connection, stream and head."""


class RpcCall:
    """One call; subclasses read its request and answer. A call with a bad head is refused without them.

    due: as of `http2_streams.Call`
    over: whether its end is known, or its client no longer waits for it
    started: when its head was there
    """

    __slots__ = (
        "_content",
        "_task",
        "connection",
        "due",
        "head",
        "limits",
        "over",
        "share",
        "started",
        "stream",
        "surface",
    )

    def __init__(
        self,
        surface: Surface,
        connection: Http2Connection,
        stream: Stream,
        head: RpcHead,
        limited: bool = True,
    ) -> None:
        """limited: whether the server's time-out applies, or the caller's own alone."""
        self.surface = surface
        self.connection = connection
        self.stream = stream
        self.head = head
        self.started = time.perf_counter()
        self.limits = surface.limits
        if head.seconds is not None:
            self.limits = Limits(self.limits.max_bytes, min(head.seconds, self.limits.seconds))
        seconds = self.limits.seconds if limited else inf if head.seconds is None else head.seconds
        self.due = self.started + seconds
        self.share = Share(surface.budget)
        self.over = False
        self._content: bytes | bytearray = b""
        self._task: asyncio.Future[Any] | Pending | None = None

    # --- what goes on

    def attempt(self, work: Callable[[], None]) -> None:
        """Do this for the call, which is refused if it fails."""
        try:
            work()
        except Exception as error:
            self.refuse(self.fault(error))

    def fault(self, error: Exception) -> ApiError:
        """The refusal that says this."""
        if isinstance(error, ApiError):
            return error
        log.error("a call failed unexpectedly", exc_info=error)
        return UNEXPECTED

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Go on with this; the call is refused if it fails."""
        task = self.surface.loop.create_task(work)
        self._task = task
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Future[None]) -> None:
        if self._task is task:
            self._task = None
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                assert isinstance(error, Exception)
                self.refuse(self.fault(error))

    def lost(self) -> None:
        """The client has given the call up, or it was ended."""
        self.over = True
        self.due = inf
        self._content = b""
        self.share.end()
        if self._task is not None:
            self._task.cancel()

    def overdue(self) -> None:
        """Refuse it, or end it if the client does not take its answer."""
        if self.over:
            self.connection.reset(self.stream, Code.CANCEL)
        elif self._task is not None:
            self.due += _GRACE_SECONDS  # the run has the same deadline, and says more
        elif not self.stream.complete:
            self.refuse(self.limits.too_slow())
        else:
            self.refuse(
                ApiError(504, f"no answer within {self.limits.seconds:g} s, the time-out of this call")
            )

    # --- the answer

    def answer(self, parts: Sequence[Part]) -> None:
        """The one message of the answer, and the status OK."""
        self.say(parts)
        self.succeed()

    def say(self, parts: Sequence[Part]) -> None:
        """A message of the answer; the call is refused if there is no memory for one that has to wait."""
        if self.over:
            return
        out, stream = self.connection.out, self.stream
        if not stream.begun:
            out.begin(stream, _BEGIN)
        try:
            out.send(stream, (b"\0" + sum(map(len, parts)).to_bytes(4, "big"), *parts))
        except ApiError as error:
            self.refuse(error)

    def succeed(self) -> None:
        """The status OK."""
        self.finish(_OK if self.stream.begun else _BEGIN + _OK)

    def finish(self, block: bytes) -> None:
        """The end of the answer."""
        if self.over:
            return
        self.over = True
        self._content = b""
        self.share.end()
        self.due = time.perf_counter() + self.surface.limits.seconds  # for the client to take it
        self.connection.out.finish(self.stream, block)
        self.connection.flush()

    def refuse(self, error: ApiError) -> None:
        """The status of an error ends the call; other calls of the connection go on."""
        code = code_of(error.status)
        block = status_block(code, error.message, [each for each in error.headers if each != CLOSE])
        self.finish(block if self.stream.begun else _BEGIN + block)


def code_of(status: int) -> int:
    """The status over gRPC of an answer that has this one over HTTP."""
    return _CODES.get(status, _INTERNAL)


def parsed(kind: type[Message], message: Body) -> Any:
    """The message. Raises ApiError."""
    try:
        return kind.FromString(bytes(message))
    except DecodeError:
        raise ApiError(
            400, f"the message is no {kind.DESCRIPTOR.name} of {kind.DESCRIPTOR.full_name}"
        ) from None


def status_block(code: int, message: str, headers: Sequence[Header]) -> bytes:
    """The trailers of an error."""
    cut = message.encode(errors="replace")[:_LONGEST_MESSAGE].decode(errors="ignore")
    said = quote(cut, _PRINTED).encode()
    trailers = ((b"grpc-status", b"%d" % code), (b"grpc-message", said), *headers)
    return b"".join([literal(name, value) for name, value in trailers])
