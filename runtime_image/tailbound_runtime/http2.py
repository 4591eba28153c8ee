"""One HTTP/2 connection with prior knowledge, as gRPC needs it, from its first byte to its last.

The library h2 takes longer for the frames of one call than this server does for the whole call.

| a client | gets |
|---|---|
| breaks a rule or a limit (http2_streams.py) | GOAWAY with the reason; the connection ends |
| does not end its settings, or a block, within PREFACE_SECONDS, however often it sends more | the same |
| speaks another protocol | a sentence in HTTP/1.1; the connection ends |
| comes when there are too many (connections.py) | GOAWAY with the reason; the connection ends |
| does not read what is written (unread.py) | the connection ends without it |
| gets a GOAWAY | LAST_CALLS_SECONDS for calls that are on their way; then those that are here end |
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, cast

import structlog

from tailbound_runtime import http2_frames as h2
from tailbound_runtime.budget import Budget
from tailbound_runtime.connections import Admission, Connections
from tailbound_runtime.http2_frames import Code, Http2Error
from tailbound_runtime.http2_outflow import Outflow, Stream
from tailbound_runtime.http2_streams import SETTINGS, Call, Streams
from tailbound_runtime.unread import Unread

PREFACE_SECONDS: Final = 10.0
LAST_CALLS_SECONDS: Final = 1.0
"""Between saying that the connection ends and ending it: calls that are on their way are served."""

_NOT_HTTP2: Final = (
    b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 55\r\n\r\n"
    b"this port speaks gRPC: HTTP/2 with prior knowledge only"
)

# Of all connections: the loop reads and gives on what it has read, before it reads from another.
_ANY: Final = memoryview(bytearray(256 * 2**10))

log = structlog.get_logger(__name__)


class Http2Connection(asyncio.BufferedProtocol):
    """The calls of one client.

    used: when bytes came last, in the time of `perf_counter`
    """

    def __init__(
        self,
        make: Callable[[Mapping[bytes, bytes] | None], Any],
        call: Callable[["Http2Connection", Stream, Any], Call | None],
        among: "set[Http2Connection]",
        busy: Callable[["Http2Connection"], None],
        closed: Callable[[], None],
        budget: Budget,
        connections: Connections,
    ) -> None:
        """`make` and `call` as of Streams.

        busy: gets the connection when it begins to need `sweep`
        """
        self._make = make
        self._call = call
        self._among = among
        self._busy = busy
        self._closed = closed
        self._budget = budget
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._streams: Streams
        self.out: Outflow
        self._rest = b""  # of a frame that is not complete
        self._greeted = False  # the preface has come
        self._reading = self._flushes = self._ends = False
        self._last = h2.LAST_STREAM  # as GOAWAY has said it, which must not name a greater one later
        self._unread: Unread
        self.used = self._begun = time.perf_counter()
        self._begins: tuple[int, int] | None = None  # as of Streams, since `_begun`

    # --- the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)
        self._unread = Unread(self._transport, self._loop, self._budget)
        out = partial(Outflow, self._transport, self._budget)
        self._streams = Streams(self._make, partial(self._call, self), out, self._close_if_done)
        self.out = self._streams.out
        self._begins = self._streams.begins
        self._among.add(self)
        self._busy(self)
        self._transport.write(SETTINGS)
        admission = self._connections.admit(self)
        if admission is Admission.ENDED:
            self._transport.abort()
        elif admission is Admission.TURNED_AWAY:
            self._turn_away(self._connections.refusal().message)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone: what is not answered yet is given up."""
        self._among.discard(self)
        self._connections.left(self)
        self._unread.stop()
        self._streams.lost()
        self.out.lost()
        self._closed()

    def pause_writing(self) -> None:
        """The client reads slower than it asks: it has to read first."""
        self.out.full = True
        self._transport.pause_reading()
        self._unread.begin()
        self._unread.count()

    def resume_writing(self) -> None:
        """Go on: the client has read what was pending."""
        self.out.full = False
        if self._transport.is_closing():
            return
        self._unread.stop()
        self.out.pump()
        self._streams.proceed()
        self.out.flush()
        if not self.out.full:
            self._transport.resume_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return _ANY

    def buffer_updated(self, nbytes: int) -> None:
        """They are there."""
        self.used = time.perf_counter()
        self._reading = True
        try:
            self._rest = self._read(self._rest + bytes(_ANY[:nbytes]))
        except Http2Error as error:
            self._fail(error.code, str(error))
        except Exception:
            log.exception("a connection failed unexpectedly")
            self._fail(Code.INTERNAL_ERROR, "internal error: the server's log has the details")
        finally:
            self._reading = False
        self.out.flush()
        if self._begins != self._streams.begins:
            self._begins, self._begun = self._streams.begins, self.used
        if self._streams or self._begins is not None:
            self._busy(self)

    def flush(self) -> None:
        """Send what has been gathered: at the end of the read, or of what the loop has to do now."""
        if not self._reading and not self._flushes:
            self._flushes = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushes = False
        self._streams.proceed()
        self.out.flush()

    # --- the end

    def end(self) -> None:
        """Ask the client to go elsewhere; calls that it makes until it knows are served."""
        if not self._ends:
            self._ends = True
            self._transport.write(h2.goaway(h2.LAST_STREAM, Code.NO_ERROR, "this server is about to end"))
            self._loop.call_later(LAST_CALLS_SECONDS, self.refuse)

    def refuse(self) -> None:
        """Take no more calls; close after those that are here."""
        if self._streams.refuses or self._transport.is_closing():
            return
        self._ends = self._streams.refuses = True
        self._last = self._streams.last
        self._transport.write(h2.goaway(self._last, Code.NO_ERROR))
        self._close_if_done()

    def give_way(self) -> None:
        """Close at once, as no call is here."""
        self.refuse()

    def _turn_away(self, reason: str) -> None:
        """Say why no call is taken, and close once the client had time to read that."""
        self._ends = self._streams.refuses = True
        self._last = 0
        self._transport.write(h2.goaway(0, Code.ENHANCE_YOUR_CALM, reason))
        self._loop.call_later(LAST_CALLS_SECONDS, self._transport.abort)

    def _close_if_done(self) -> None:
        if self._streams.refuses and not self._streams:
            self.out.flush()
            self._close()

    def _close(self) -> None:
        """The end, once the client has read what is written."""
        self._transport.close()
        self._unread.begin()

    def _fail(self, code: Code, message: str) -> None:
        if not self._transport.is_closing():
            self.out.control(h2.goaway(min(self._last, self._streams.last), code, message))
            self.out.flush()
            self._close()

    def reset(self, stream: Stream, code: Code) -> None:
        """End a stream without an answer, or in the middle of it."""
        self._streams.reset(stream, code)
        self.flush()

    def sweep(self, now: float) -> bool:
        """End what is overdue; whether to look again."""
        begins = self._begins is not None
        if begins and now - self._begun > PREFACE_SECONDS:
            self._fail(Code.PROTOCOL_ERROR, f"nothing that is complete came within {PREFACE_SECONDS:g} s")
            return False
        self._streams.overdue(now)
        self._streams.proceed()
        self.out.flush()
        return (begins or bool(self._streams)) and not self._transport.is_closing()

    @property
    def is_idle(self) -> bool:
        """Whether no call is here, and the client has read its answers."""
        return not self._streams and not self.out.full

    # --- frames

    def _read(self, data: bytes) -> bytes:
        """Take in frames; the bytes of one that is not complete. Raises Http2Error."""
        at, end = 0, len(data)
        if not self._greeted:
            if not data.startswith(h2.PREFACE[:end]):
                self._transport.write(_NOT_HTTP2)
                self._close()
                return b""
            if end < len(h2.PREFACE):
                return data
            self._greeted, at = True, len(h2.PREFACE)
        while end - at >= h2.HEAD_BYTES:
            first, flags, number = h2.HEAD.unpack_from(data, at)
            length, kind = first >> 8, first & 0xFF
            if length > h2.MOST_PAYLOAD:
                raise Http2Error(Code.FRAME_SIZE_ERROR, f"a frame is longer than {h2.MOST_PAYLOAD} bytes")
            begins = at + h2.HEAD_BYTES
            at = begins + length
            if at > end:
                return data[begins - h2.HEAD_BYTES :]
            self._streams.take(kind, flags, number & 0x7FFFFFFF, data[begins:at])
            if self._transport.is_closing():
                return b""
        return data[at:]
