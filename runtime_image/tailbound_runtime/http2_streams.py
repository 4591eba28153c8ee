"""The frames that one HTTP/2 connection sends (RFC 9113), and the streams that they make.

| a client | gets |
|---|---|
| breaks HTTP/2, or sends more than a limit allows | Http2Error: GOAWAY with the reason |
| breaks it on one stream only | RST_STREAM |
| asks for more than MOST_STREAMS at once | RST_STREAM with REFUSED_STREAM: it may ask again |
| floods (http2_allowance.py) | Http2Error: GOAWAY with ENHANCE_YOUR_CALM |
| takes no answers | its next requests wait once MOST_UNSENT bytes do |
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from tailbound_runtime import http2_frames as h2
from tailbound_runtime.http2_allowance import Allowance
from tailbound_runtime.http2_blocks import LONGEST_LIST, Blocks
from tailbound_runtime.http2_frames import Code, Http2Error
from tailbound_runtime.http2_outflow import Outflow, Stream

MOST_STREAMS: Final = 128
MOST_UNSENT: Final = 2**20
STREAM_WINDOW: Final = 2**22
WINDOW: Final = 2**24
"""Bytes that clients may send before they are taken in; the memory for requests has a limit of its own."""
LONGEST_BLOCK: Final = 32 * 2**10
MOST_CONTINUATIONS: Final = 16
STRAY_BYTES: Final = 2**10
"""DATA for a stream that is over, and of so many bytes, is no flood: it was sent before the client knew."""

SETTINGS: Final = h2.settings(
    {
        h2.MAX_CONCURRENT_STREAMS: MOST_STREAMS,
        h2.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
        h2.MAX_HEADER_LIST_SIZE: LONGEST_LIST,
    }
) + h2.window_update(0, WINDOW - h2.DEFAULT_WINDOW)
"""What a connection begins with."""


class Call(Protocol):
    """What takes in the request of one stream.

    due: when it has to be over, a time of `perf_counter`
    """

    due: float

    def receive(self, part: bytes) -> None:
        """A part of the request's content."""

    def end(self) -> None:
        """All of it has come."""

    def lost(self) -> None:
        """The client has given the call up, or has gone."""

    def overdue(self) -> None:
        """The call is not over when it was due."""


class Streams:
    """The streams of one connection.

    begins: what the client has still to end: the stream and flags of a block, or (0, 0) for its settings;
        None if there is nothing
    refuses: whether new calls are taken no more
    last: the greatest number of a stream so far
    """

    def __init__(
        self,
        make: Callable[[Mapping[bytes, bytes] | None], Any],
        call: Callable[[Stream, Any], Call | None],
        out: Callable[[Allowance, Callable[[Stream], None]], Outflow],
        emptied: Callable[[], None],
    ) -> None:
        """`make` reads heads, and gives None for those of no request; `call` begins a call, or answers
        without one, None then.

        emptied: called when a stream has ended, and it was the last one
        """
        self._call = call
        self._emptied = emptied
        self._blocks = Blocks(make)
        self._streams: dict[int, Stream] = {}
        self._held: deque[Stream] = deque()
        self._allowance = Allowance(time.perf_counter())
        self.out = out(self._allowance, self._remove)
        self._settled = False  # the client's settings have come
        self._block: bytearray | None = None  # of headers that go on
        self._block_of = (0, 0)  # their stream and flags
        self._continued = 0
        self._inbox = WINDOW
        self.last = 0
        self.refuses = False

    def __bool__(self) -> bool:
        return bool(self._streams)

    @property
    def begins(self) -> tuple[int, int] | None:
        if not self._settled:
            return 0, 0
        return None if self._block is None else self._block_of

    def lost(self) -> None:
        """The client has gone: what is not answered yet is given up."""
        self._held.clear()
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.call.lost()

    def overdue(self, now: float) -> None:
        """Tell the calls that are overdue at a time of `perf_counter`."""
        for stream in tuple(self._streams.values()):
            if stream.call.due <= now:
                stream.call.overdue()

    def reset(self, stream: Stream, code: Code) -> None:
        """End a stream without an answer, or in the middle of it."""
        self.out.control(h2.rst_stream(stream.number, code))
        self._drop(stream)

    def _drop(self, stream: Stream) -> None:
        self.out.forget(stream)
        if stream.number in self._streams:
            stream.call.lost()
        self._remove(stream)

    def _remove(self, stream: Stream) -> None:
        """Forget a stream that is over."""
        self._streams.pop(stream.number, None)
        if not self._streams:
            self._emptied()

    def take(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        """Take in a frame. Raises Http2Error."""
        if self._block is not None and (kind != h2.CONTINUATION or number != self._block_of[0]):
            raise Http2Error(Code.PROTOCOL_ERROR, "headers have to go on before anything else comes")
        if not self._settled and (kind != h2.SETTINGS or flags & h2.ACK):
            raise Http2Error(Code.PROTOCOL_ERROR, "the first frame is to be SETTINGS")
        if kind < len(_TAKEN):
            _TAKEN[kind](self, flags, number, payload)
        else:
            self._allowance.spend()

    def _data(self, flags: int, number: int, payload: bytes) -> None:
        size = len(payload)
        self._inbox -= size
        if self._inbox < WINDOW // 2:
            if self._inbox < 0:
                raise Http2Error(Code.FLOW_CONTROL_ERROR, "more DATA than the connection's window allows")
            self.out.control(h2.window_update(0, WINDOW - self._inbox))
            self._inbox = WINDOW
        stream = self._streams.get(number)
        if stream is None and size >= STRAY_BYTES and not self._is_idle(number):
            return
        if stream is None or stream.complete:
            self._stray(number, "DATA")
            return
        stream.inbox -= size
        if stream.inbox < 0:
            self.reset(stream, Code.FLOW_CONTROL_ERROR)
            return
        if flags & h2.PADDED:
            payload = h2.content_of(h2.PADDED, payload)
        if stream.left is not None:
            stream.left -= len(payload)
            if stream.left < 0:
                self.reset(stream, Code.PROTOCOL_ERROR)
                return
        if payload:
            stream.call.receive(payload)
        elif not flags & h2.END_STREAM:
            self._allowance.spend()
        if flags & h2.END_STREAM:
            self._complete(stream)
        elif stream.inbox < STREAM_WINDOW // 2 and number in self._streams:
            self.out.control(h2.window_update(number, STREAM_WINDOW - stream.inbox))
            stream.inbox = STREAM_WINDOW

    def _complete(self, stream: Stream) -> None:
        """All of a request is here."""
        stream.complete = True
        if stream.number not in self._streams:  # it was refused by its last part
            return
        if stream.left:
            self.reset(stream, Code.PROTOCOL_ERROR)
            return
        if self.out.unsent > MOST_UNSENT:
            self._held.append(stream)
        else:
            stream.call.end()

    def proceed(self) -> None:
        """Answer the requests that waited until others were sent."""
        while self._held and self.out.unsent <= MOST_UNSENT:
            stream = self._held.popleft()
            if stream.number in self._streams:
                stream.call.end()

    def _stray(self, number: int, kind: str) -> None:
        """A frame came for a stream that is over: the client may not know yet. Raises Http2Error."""
        if self._is_idle(number):
            raise Http2Error(Code.PROTOCOL_ERROR, f"{kind} came for stream {number}, which nothing began")
        self._allowance.spend()
        stream = self._streams.get(number)
        if stream is not None and kind != "WINDOW_UPDATE":
            self.reset(stream, Code.STREAM_CLOSED)

    def _is_idle(self, number: int) -> bool:
        """Whether the client has not begun this stream, or cannot: even numbers are the server's."""
        return number % 2 == 0 or number > self.last

    def _headers(self, flags: int, number: int, payload: bytes) -> None:
        if number % 2 == 0:
            raise Http2Error(Code.PROTOCOL_ERROR, f"a client begins no stream {number}")
        if flags & (h2.PADDED | h2.PRIORITIZED):
            payload = h2.content_of(flags, payload)
        if flags & h2.END_HEADERS:
            self._head(number, flags, payload)
        else:
            self._block, self._block_of, self._continued = bytearray(payload), (number, flags), 0

    def _continuation(self, flags: int, number: int, payload: bytes) -> None:
        if self._block is None:
            raise Http2Error(Code.PROTOCOL_ERROR, "CONTINUATION came without HEADERS")
        self._allowance.spend()
        self._block += payload
        self._continued += 1
        if len(self._block) > LONGEST_BLOCK or self._continued > MOST_CONTINUATIONS:
            raise Http2Error(Code.ENHANCE_YOUR_CALM, f"headers are longer than {LONGEST_BLOCK} bytes")
        if flags & h2.END_HEADERS:
            block, self._block = bytes(self._block), None
            self._head(number, self._block_of[1], block)

    def _head(self, number: int, flags: int, block: bytes) -> None:
        head = self._blocks.read(block)
        if number <= self.last and head is None:
            self._trailers(number, flags)
            return
        if number <= self.last:
            raise Http2Error(Code.PROTOCOL_ERROR, f"stream {number} began after stream {self.last}")
        self.last = number
        if self.refuses:  # the client knows that it will not be answered
            self._allowance.spend()
            return
        if len(self._streams) >= MOST_STREAMS:
            self._allowance.spend()
            self.out.control(h2.rst_stream(number, Code.REFUSED_STREAM))
            return
        stream = Stream(number, self.out.initial, STREAM_WINDOW)
        stream.complete = bool(flags & h2.END_STREAM)
        stream.call = self._call(stream, head)
        if stream.call is None:
            self._allowance.spend()
            return
        self._streams[number] = stream
        if stream.complete:
            self._complete(stream)

    def _trailers(self, number: int, flags: int) -> None:
        """A request may end with headers, which have no meaning here."""
        stream = self._streams.get(number)
        if stream is None or stream.complete:
            self._stray(number, "HEADERS")
        elif not flags & h2.END_STREAM:
            self.reset(stream, Code.PROTOCOL_ERROR)
        else:
            self._complete(stream)

    def _priority(self, flags: int, number: int, payload: bytes) -> None:
        self._allowance.spend()
        if number == 0:
            raise Http2Error(Code.PROTOCOL_ERROR, "PRIORITY came for no stream")
        if len(payload) != 5:
            raise Http2Error(Code.FRAME_SIZE_ERROR, "PRIORITY has 5 bytes")

    def _rst_stream(self, flags: int, number: int, payload: bytes) -> None:
        self._allowance.spend()
        h2.number_of(payload, "RST_STREAM")
        if self._is_idle(number):
            raise Http2Error(Code.PROTOCOL_ERROR, f"RST_STREAM came for stream {number}")
        stream = self._streams.get(number)
        if stream is not None:
            self._drop(stream)

    def _take_settings(self, flags: int, number: int, payload: bytes) -> None:
        self._allowance.spend()
        self._settled = True
        if number != 0:
            raise Http2Error(Code.PROTOCOL_ERROR, "SETTINGS came for a stream")
        if flags & h2.ACK:
            if payload:
                raise Http2Error(Code.FRAME_SIZE_ERROR, "an acknowledgement of SETTINGS has no content")
            return
        for name, value in h2.settings_of(payload):
            self._allowance.spend()  # each may look at all streams
            self._setting(name, value)
        self.out.control(h2.frame(h2.SETTINGS, h2.ACK, 0))

    def _setting(self, name: int, value: int) -> None:
        if name == h2.ENABLE_PUSH and value > 1:
            raise Http2Error(Code.PROTOCOL_ERROR, f"ENABLE_PUSH is {value}")
        if name == h2.MAX_FRAME_SIZE:
            if not h2.MOST_PAYLOAD <= value <= h2.LARGEST_FRAME:
                raise Http2Error(Code.PROTOCOL_ERROR, f"MAX_FRAME_SIZE is {value}")
            self.out.limit(value)
        if name == h2.INITIAL_WINDOW_SIZE:
            if value > h2.MOST_WINDOW:
                raise Http2Error(Code.FLOW_CONTROL_ERROR, f"INITIAL_WINDOW_SIZE is {value}")
            more, self.out.initial = value - self.out.initial, value
            for stream in tuple(self._streams.values()):
                if stream.window + more > h2.MOST_WINDOW:
                    raise Http2Error(Code.FLOW_CONTROL_ERROR, "the window of a stream is beyond 2^31 - 1")
                self.out.widen(stream, more)

    def _push_promise(self, flags: int, number: int, payload: bytes) -> None:
        raise Http2Error(Code.PROTOCOL_ERROR, "a client sent PUSH_PROMISE")

    def _ping(self, flags: int, number: int, payload: bytes) -> None:
        self._allowance.spend()
        if number != 0:
            raise Http2Error(Code.PROTOCOL_ERROR, "PING came for a stream")
        if len(payload) != 8:
            raise Http2Error(Code.FRAME_SIZE_ERROR, "PING has 8 bytes")
        if not flags & h2.ACK:
            self.out.control(h2.frame(h2.PING, h2.ACK, 0, payload))

    def _goaway(self, flags: int, number: int, payload: bytes) -> None:
        self._allowance.spend()
        if number != 0:
            raise Http2Error(Code.PROTOCOL_ERROR, "GOAWAY came for a stream")

    def _window_update(self, flags: int, number: int, payload: bytes) -> None:
        self._allowance.spend()
        more = h2.number_of(payload, "WINDOW_UPDATE") & h2.MOST_WINDOW
        if number == 0:
            if not more:
                raise Http2Error(Code.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
            self.out.widen(None, more)
            self.proceed()
            return
        stream = self._streams.get(number)
        if stream is None:
            self._stray(number, "WINDOW_UPDATE")
        elif not more:
            self.reset(stream, Code.PROTOCOL_ERROR)
        elif stream.window + more > h2.MOST_WINDOW:
            self.reset(stream, Code.FLOW_CONTROL_ERROR)
        else:
            self.out.widen(stream, more)
            self.proceed()


_TAKEN: Final[tuple[Callable[[Streams, int, int, bytes], None], ...]] = (
    Streams._data,
    Streams._headers,
    Streams._priority,
    Streams._rst_stream,
    Streams._take_settings,
    Streams._push_promise,
    Streams._ping,
    Streams._goaway,
    Streams._window_update,
    Streams._continuation,
)
"""By the kind of frame."""
