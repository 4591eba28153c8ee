"""What one HTTP/2 connection sends: answers, within the windows that the client opens, and control frames.

Frames are gathered until `flush`, so that all that one read brings about is one call to the kernel.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from tailbound_runtime.budget import Budget, Share
from tailbound_runtime.http2_allowance import PER_CALL, PER_FRAME, Allowance
from tailbound_runtime.http2_frames import (
    DATA,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    HEAD,
    HEADERS,
    MOST_PAYLOAD,
    MOST_WINDOW,
    Code,
    Http2Error,
    frame,
    rst_stream,
)

JOINED_BYTES: Final = 64 * 2**10
_LONGEST_FRAME: Final = 2**20
"""The longest frame of DATA that is sent, if the client takes that."""

Part = bytes | memoryview


class Stream:
    """One stream: a request, which a call takes in, and its answer.

    call: what takes in the request and answers it
    complete: whether all of the request has come
    inbox: bytes that the client may still send before it gets a window update
    left: bytes of content that the head has announced and that have not come; None if it has not
    window: bytes of DATA that may be sent
    pending: what the windows had no room for so far
    trailers: the block that ends the answer, once its content is known
    """

    __slots__ = ("begun", "call", "complete", "inbox", "left", "number", "pending", "trailers", "window")

    def __init__(self, number: int, window: int, inbox: int) -> None:
        self.number = number
        self.window = window
        self.inbox = inbox
        self.left: int | None = None
        self.call: Any = None
        self.begun = self.complete = False
        self.pending: deque[memoryview] | None = None
        self.trailers: bytes | None = None


class Outflow:
    """Sends for all streams of one connection.

    unsent: bytes of answers that wait for windows, a part of the memory of all requests
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        budget: Budget,
        allowance: Allowance,
        ended: Callable[[Stream], None],
    ) -> None:
        """`ended` gets each stream whose answer is sent."""
        self._share = Share(budget)
        self._transport = transport
        self._allowance = allowance
        self._ended = ended
        self._out: list[Part] = []
        self._gathered = 0  # bytes of DATA in it
        self._waiting: dict[int, Stream] = {}
        self._window = DEFAULT_WINDOW
        self._most = MOST_PAYLOAD
        self.initial = DEFAULT_WINDOW
        self.unsent = 0
        self.full = False  # the client reads slower than it asks

    def control(self, sent: bytes) -> None:
        """Send frames to which no window applies."""
        self._out.append(sent)

    def begin(self, stream: Stream, block: bytes) -> None:
        """Send the block that begins an answer."""
        stream.begun = True
        self._out.append(frame(HEADERS, END_HEADERS, stream.number, block))

    def send(self, stream: Stream, parts: Sequence[Part]) -> None:
        """Send content of an answer, as soon as the windows allow it.

        Raises ApiError 503, and 413, if there is no memory for what has to wait.
        """
        size = sum(map(len, parts))
        if stream.pending is None and not self.full and size <= min(self._window, stream.window, self._most):
            self._frame(stream, parts, size)
            return
        self._share.hold(self.unsent + size)
        if stream.pending is None:
            stream.pending = deque()
        stream.pending.extend(memoryview(part) for part in parts)
        self.unsent += size
        self._waiting[stream.number] = stream
        self._pump(stream)

    def finish(self, stream: Stream, block: bytes) -> None:
        """Send the block that ends an answer, once its content is sent."""
        stream.trailers = block
        if stream.pending is None:
            self._finish(stream, block)

    def forget(self, stream: Stream) -> None:
        """Nothing more is to be sent of this stream."""
        if self._waiting.pop(stream.number, None) is not None:
            assert stream.pending is not None
            self.unsent -= sum(map(len, stream.pending))
            self._share.hold(self.unsent)
        stream.pending = None

    def lost(self) -> None:
        """The client has gone: nothing waits any longer."""
        self._waiting.clear()
        self._share.end()

    def widen(self, stream: Stream | None, more: int) -> None:
        """Raise the window of a stream, or of all together, by `more` bytes. Raises Http2Error."""
        if stream is not None:
            stream.window += more
            if stream.pending is not None:
                self._pump(stream)
            return
        self._window += more
        if self._window > MOST_WINDOW:
            raise Http2Error(Code.FLOW_CONTROL_ERROR, "the window of the connection is beyond 2^31 - 1")
        self.pump()

    def limit(self, size: int) -> None:
        """Set the largest frame that the client takes, in bytes."""
        self._most = min(size, _LONGEST_FRAME)

    def pump(self) -> None:
        """Send what the windows have room for by now, of each stream in turn."""
        for stream in tuple(self._waiting.values()):
            if self.full or self._window <= 0:
                return
            self._pump(stream)
            if stream.pending is not None:  # the others are first next time
                self._waiting[stream.number] = self._waiting.pop(stream.number)

    def flush(self) -> None:
        """Give the kernel what has been gathered."""
        out, self._out, self._gathered = self._out, [], 0
        if not out or self._transport.is_closing():
            return
        if sum(map(len, out)) <= JOINED_BYTES:
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)

    def _frame(self, stream: Stream, parts: Sequence[Part], size: int) -> None:
        """Send these parts as one frame of DATA; long ones at once, which tells what the client takes."""
        self._window -= size
        stream.window -= size
        self._out.append(HEAD.pack(size << 8 | DATA, 0, stream.number))
        self._out.extend(parts)
        self._gathered += size
        if self._gathered > JOINED_BYTES:
            self.flush()

    def _pump(self, stream: Stream) -> None:
        pending = stream.pending
        assert pending is not None
        while pending and not self.full:
            room = min(self._window, stream.window, self._most)
            if room <= 0:
                return
            parts, size = _taken(pending, room)
            self.unsent -= size
            self._allowance.earn(PER_FRAME)
            self._frame(stream, parts, size)
            self._share.hold(self.unsent)
        if not pending:
            stream.pending = None
            del self._waiting[stream.number]
            if stream.trailers is not None:
                self._finish(stream, stream.trailers)

    def _finish(self, stream: Stream, block: bytes) -> None:
        self._out.append(frame(HEADERS, END_HEADERS | END_STREAM, stream.number, block))
        if not stream.complete:  # the client need not go on
            self._out.append(rst_stream(stream.number, Code.NO_ERROR))
        self._allowance.earn(PER_CALL)
        self._ended(stream)


def _taken(pending: deque[memoryview], room: int) -> tuple[list[memoryview], int]:
    """Take what is to be sent next, up to a number of bytes, and its length."""
    parts, left = [], room
    while pending and left:
        part = pending.popleft()
        if len(part) > left:
            pending.appendleft(part[left:])
        parts.append(part[:left])
        left -= len(parts[-1])
    return parts, room - left
