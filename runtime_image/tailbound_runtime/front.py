"""HTTP/1.1 connections, with limits for heads and bodies, refusals in JSON, and upgrades declined.

A request that can be answered at once is: no task, timer or thread is made for it. The others become tasks of
the event loop. Requests of one connection are answered in turn, whatever each of them needs.
"""

import asyncio
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from email.utils import formatdate
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Any, Final, cast

import httptools
import orjson
import structlog

from tailbound_runtime.app import App, Pending, Phase
from tailbound_runtime.errors import Header
from tailbound_runtime.reception import CLOSE, Head, Intake
from tailbound_runtime.responses import Response

HEAD_BYTES: Final = 32 * 2**10
HEAD_SECONDS: Final = 10.0
# Longer than a proxy keeps an idle connection (Envoy: one hour), so that it is the proxy that closes it. A
# server that closes first does so, now and then, just when a request arrives.
KEEP_ALIVE_SECONDS: Final = 2 * 3600.0
SWEEP_SECONDS: Final = 60.0  # between two looks for connections that are idle for too long
MOST_KNOWN: Final = 256
LONGEST_KNOWN: Final = 2 * 2**10
"""Heads that are kept, and their bytes. Clients that send the same again are spared its parsing."""
JOINED_BYTES: Final = 64 * 2**10
"""Parts of a short answer are joined: copying them costs less than another call to the kernel."""

_END_OF_HEAD: Final = b"\r\n\r\n"

# Of all connections: the loop reads and gives on what it has read, before it reads from another.
_ANY: Final = memoryview(bytearray(32 * 2**10))

_STATUS: Final = {
    status: b"HTTP/1.1 %d %s\r\ndate: " % (status, HTTPStatus(status).phrase.encode())
    for status in map(int, HTTPStatus)
}

log = structlog.get_logger(__name__)


class _HeadTooLongError(Exception):
    pass


class _Exchange:
    """One request, and its answer once that is known.

    intake: where its body goes; None if it was answered without
    complete: whether all of it has arrived
    expects: whether the client waits to be asked for the body
    """

    __slots__ = ("complete", "expects", "head_only", "intake", "keep_alive", "response", "task", "written")

    def __init__(self, head_only: bool, keep_alive: bool, begun: Intake | Response, expects: bool) -> None:
        self.head_only = head_only
        self.keep_alive = keep_alive
        self.intake = begun if isinstance(begun, Intake) else None
        self.response = begun if isinstance(begun, Response) else None
        self.expects = expects
        self.complete = self.written = False
        self.task: asyncio.Future[Any] | None = None


class Front:
    """All connections of one server."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._open: set[Connection] = set()
        self._known: dict[bytes, Head] = {}
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] | None = None
        self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def connection(self) -> "Connection":
        """A new one, for the loop's server."""
        return Connection(self._app, self._open, self._known, self._loop, self._closed)

    async def close(self, seconds: float) -> None:
        """End idle connections now, the others after their answers, and all of them after so many seconds."""
        self._sweeper.cancel()
        for connection in tuple(self._open):
            connection.end()
        if self._open:
            self._ended = self._loop.create_future()
            await asyncio.wait([self._ended], timeout=seconds)

    def _closed(self) -> None:
        if self._ended is not None and not self._open and not self._ended.done():
            self._ended.set_result(None)

    def _sweep(self) -> None:
        self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)
        now = time.perf_counter()
        for connection in tuple(self._open):
            if now - connection.used > KEEP_ALIVE_SECONDS:
                connection.end()


class Connection(asyncio.BufferedProtocol):
    """One connection. A head may have HEAD_BYTES, and must be complete HEAD_SECONDS after its first byte.

    A long body with binary tensors passes the parser by, once its first bytes are there: the kernel writes it
    where it stays.

    used: when the last answer was written, in the time of `perf_counter`
    """

    def __init__(
        self,
        app: App,
        among: "set[Connection]",
        known: dict[bytes, Head],
        loop: asyncio.AbstractEventLoop,
        closed: Any,
    ) -> None:
        self._app = app
        self._among = among
        self._known = known
        self._loop = loop
        self._closed = closed
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head: Head | Response | None = None  # the last one that was parsed
        self._in_head = False
        self._between = True  # the parser is after the end of a request
        self._head_bytes = 0
        self._completed = 0  # requests that ended in the bytes that the parser got last
        self._upgrades = False
        self._timer: asyncio.TimerHandle | None = None
        self._misses = 0  # bytes of a body that passes the parser by
        self._room: memoryview | None = None  # where they go; None if they are not kept
        self._line: deque[_Exchange] = deque()  # in the order of arrival; the first is answered next
        self._full = False  # the client takes no more bytes now
        self._ending = False
        self.used = time.perf_counter()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)
        self._among.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone: what is not answered yet is given up."""
        self._among.discard(self)
        self._stop_timer()
        for exchange in self._line:
            if exchange.task is not None:
                exchange.task.cancel()
            elif exchange.intake is not None and exchange.response is None:
                self._app.left(exchange.intake, exchange.complete)
        self._line.clear()
        self._closed()

    def pause_writing(self) -> None:
        """The client reads slower than it asks: it has to read first."""
        self._full = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """It has read."""
        self._full = False
        self._advance()

    def end(self) -> None:
        """Close after the answers that are due."""
        self._ending = True
        if not self._line:
            self._transport.close()

    # --- bytes

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        if not self._misses:
            return _ANY
        return _ANY[: self._misses] if self._room is None else self._room

    def buffer_updated(self, nbytes: int) -> None:
        """They are there."""
        if self._misses:
            self._passed_by(nbytes)
        else:
            self._read(bytes(_ANY[:nbytes]))

    def _passed_by(self, size: int) -> None:
        """So many bytes of a body are there. Those of one that is refused by then are not kept."""
        exchange = self._line[-1] if self._line else None
        self._misses -= size
        if exchange is None or exchange.intake is None or exchange.response is not None:
            self._room = None
        else:
            self._room = None if self._room is None else self._room[size:]
            exchange.response = self._app.received(exchange.intake, size)
            if exchange.response is not None:
                self._room = None
                self._advance()
        if not self._misses:
            self._room = None
            self.on_message_complete()

    def _read(self, data: bytes) -> None:
        """Bytes of a request, or of several. Whole ones with a head that is known pass the parser by."""
        while self._between and (ends := data.find(_END_OF_HEAD) + len(_END_OF_HEAD)) >= len(_END_OF_HEAD):
            head = self._known.get(data[:ends])
            if head is None:
                self._learn(data[:ends], data[ends:])
                return
            assert head.length is not None
            if len(data) < ends + head.length:
                break
            self._whole(head, data[ends : ends + head.length])
            data = data[ends + head.length :]
            if not data or self._transport.is_closing():
                return
        self._parse(data)

    def _whole(self, head: Head, body: bytes) -> None:
        """All of a request is there."""
        begun: Intake | Response | None = None
        if not self._line and not self._full and self._stays():
            begun = self._app.whole(head, body)
            if isinstance(begun, Response):
                seconds = self._send(
                    begun.parts, _head(begun.status, begun.headers, sum(map(len, begun.parts)))
                )
                if begun.sent is not None:
                    begun.sent(seconds)
                return
        exchange = _Exchange(False, True, begun or self._app.begin(head), False)
        exchange.complete = True
        if exchange.intake is not None and begun is None:
            exchange.response = self._app.receive(exchange.intake, body)
        self._line.append(exchange)
        self._advance()

    def _learn(self, head: bytes, rest: bytes) -> None:
        """Parse a head and what follows; remember the head if it is that of an inference with a body.

        The parser gets the head alone: if no less and no more than these bytes was one, they always are.
        """
        self._head, self._completed = None, 0
        if self._feed(head):
            known = self._last_head()
            if known is not None and len(head) <= LONGEST_KNOWN:
                if len(self._known) >= MOST_KNOWN:
                    self._known.clear()
                self._known[head] = known
        elif self._transport.is_closing():
            return
        self._parse(rest)

    def _last_head(self) -> Head | None:
        """What the parser has just got, if that is the whole head of an inference whose body is to follow."""
        head = self._head
        if not isinstance(head, Head) or not head.length or b"expect" in head.headers:
            return None
        exchange = self._line[-1] if self._line else None
        if exchange is None or exchange.intake is None or exchange.intake.body or self._completed:
            return None
        return head if exchange.keep_alive else None

    def _parse(self, data: bytes) -> None:
        self._completed = 0
        if not self._feed(data):
            return
        if self._in_head:
            self._head_goes_on(0 if self._completed else len(data))
        elif self._line:
            self._body_goes_on(self._line[-1])

    def _feed(self, data: bytes) -> bool:
        """Give the parser these bytes; whether it took all of them as they are."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            self._failed(error)
        except httptools.HttpParserError:
            self._refuse(400, "the connection sent what is no HTTP/1.1 request")
        else:
            return True
        return False

    def _failed(self, error: httptools.HttpParserCallbackError) -> None:
        if isinstance(error.__context__, _HeadTooLongError):
            self._refuse_head()
        else:
            log.error("a connection failed unexpectedly", exc_info=error.__context__)
            self._refuse(500, "internal error: the server's log has the details")

    def _head_goes_on(self, more: int) -> None:
        self._head_bytes += more
        if self._head_bytes > HEAD_BYTES:
            self._refuse_head()
        elif self._timer is None:
            self._timer = self._loop.call_later(HEAD_SECONDS, self._head_is_late)

    def _body_goes_on(self, exchange: _Exchange) -> None:
        if exchange.intake is None or exchange.response is not None or exchange.complete:
            return
        self._room = exchange.intake.room()
        if self._room is not None:
            self._misses = len(self._room)
            self._parser = httptools.HttpRequestParser(self)
        if self._timer is None:
            seconds = exchange.intake.left(time.perf_counter())
            self._timer = self._loop.call_later(max(0.0, seconds), self._body_is_late, exchange)

    def _head_is_late(self) -> None:
        self._refuse(408, f"the request's head did not arrive within {HEAD_SECONDS:g} s")

    def _body_is_late(self, exchange: _Exchange) -> None:
        self._timer = None
        if exchange.intake is not None and exchange.response is None and not exchange.complete:
            exchange.response = self._app.late(exchange.intake)
            self._advance()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- what the parser finds

    def on_message_begin(self) -> None:
        """The first byte of a head."""
        self._in_head = True
        self._between = False
        self._head_bytes = 0
        self._url = b""
        self._headers = []

    def on_url(self, url: bytes) -> None:
        """A part of what is asked for."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or one after the body, which has no meaning here."""
        if self._in_head:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The end of a head. Raises _HeadTooLongError."""
        self._in_head = False
        self._stop_timer()
        if len(self._url) + sum([len(name) + len(value) for name, value in self._headers]) > HEAD_BYTES:
            raise _HeadTooLongError
        self._upgrades = self._parser.should_upgrade()
        if self._upgrades:
            return
        method = self._parser.get_method()
        headers = dict(self._headers)
        self._head = self._app.head(method, self._url, headers)
        begun = self._app.begin(self._head) if isinstance(self._head, Head) else self._head
        expects = b"expect" in headers and headers[b"expect"].lower() == b"100-continue"
        self._line.append(_Exchange(method == b"HEAD", self._parser.should_keep_alive(), begun, expects))
        if expects or not isinstance(begun, Intake):
            self._advance()

    def on_body(self, body: bytes) -> None:
        """A part of a body; that of a request which is refused already is not kept."""
        if self._upgrades or not self._line:
            return
        exchange = self._line[-1]
        if exchange.intake is not None and exchange.response is None:
            exchange.response = self._app.receive(exchange.intake, body)
            if exchange.response is not None:
                self._advance()

    def on_message_complete(self) -> None:
        """The end of a request."""
        self._completed += 1
        self._between = True
        if self._upgrades or not self._line:
            return
        self._stop_timer()
        self._line[-1].complete = True
        self._advance()

    def _decline(self, rest: bytes) -> None:
        """Go on with HTTP/1.1 as if the client had not asked for another protocol, which it must expect."""
        method = self._parser.get_method()
        self._parser = httptools.HttpRequestParser(self)
        if method == b"CONNECT":
            self._refuse(400, "this server is no proxy")
            return
        asks = (b"connection", b"upgrade", b"http2-settings")
        kept = [b"%s: %s\r\n" % header for header in self._headers if header[0] not in asks]
        self._parse(b"%s %s HTTP/1.1\r\n%s\r\n" % (method, self._url, b"".join(kept)) + rest)

    # --- answers

    def _advance(self) -> None:
        """Answer what can be answered, in turn."""
        line = self._line
        while line and not self._full:
            exchange = line[0]
            if exchange.response is None and not self._answer(exchange):
                break
            if not exchange.written:
                self._write(exchange)
            if not exchange.complete or self._transport.is_closing():
                break
            line.popleft()
            if self._ending and not line:
                self._transport.close()
        if self._full or (len(line) > 1 and line[0].task is not None):
            self._transport.pause_reading()  # what comes would only have to wait here
        elif not self._transport.is_reading() and not self._transport.is_closing():
            self._transport.resume_reading()

    def _answer(self, exchange: _Exchange) -> bool:
        """Whether the answer is there now; if not, what still misses comes by itself."""
        assert exchange.intake is not None
        if not exchange.complete:
            if exchange.expects:
                exchange.expects = False
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return False
        if exchange.task is not None:
            return False
        outcome = self._app.infer(exchange.intake, time.perf_counter())
        if isinstance(outcome, Response):
            exchange.response = outcome
            return True
        if isinstance(outcome, Pending):
            exchange.task = outcome.job.future
            exchange.task.add_done_callback(partial(self._run_is_over, exchange, outcome))
        else:
            self._goes_on(exchange, outcome)
        return False

    def _run_is_over(self, exchange: _Exchange, pending: Pending, _: asyncio.Future[Any]) -> None:
        exchange.task = None
        outcome = self._app.run_is_over(pending)
        if isinstance(outcome, Response):
            exchange.response = outcome
            self._advance()
        elif outcome is not None:
            self._goes_on(exchange, outcome)

    def _goes_on(self, exchange: _Exchange, coroutine: Coroutine[Any, Any, Response]) -> None:
        exchange.task = self._loop.create_task(coroutine)
        exchange.task.add_done_callback(partial(self._answered, exchange))

    def _answered(self, exchange: _Exchange, task: asyncio.Future[Response]) -> None:
        if task.cancelled():
            assert exchange.intake is not None
            self._app.left(exchange.intake, True)
            return
        exchange.task = None
        exchange.response = task.result()
        self._advance()

    def _stays(self) -> bool:
        """Whether the connection goes on after an answer, if the client wishes."""
        return not self._ending and self._app.phase is not Phase.DRAINING

    def _write(self, exchange: _Exchange) -> None:
        response = exchange.response
        assert response is not None
        exchange.written = True
        kept = exchange.keep_alive and self._stays()
        headers = response.headers
        if CLOSE in headers:
            kept = False
        elif not kept:
            headers = [*headers, CLOSE]  # the client's next connection goes to a pod that stays
        head = _head(response.status, headers, sum(map(len, response.parts)))
        seconds = self._send(() if exchange.head_only else response.parts, head)
        if exchange.intake is not None:
            self._app.sent(exchange.intake, seconds)
        if not kept:
            self._transport.close()

    def _send(self, parts: Sequence[bytes | memoryview], head: bytes) -> float:
        """Write an answer; the seconds that this took."""
        started = self.used = time.perf_counter()
        if sum(map(len, parts)) <= JOINED_BYTES:
            self._transport.write(b"".join((head, *parts)))
        else:
            self._transport.write(head)
            for part in parts:
                self._transport.write(part)
        return time.perf_counter() - started

    def _refuse_head(self) -> None:
        self._refuse(
            431, f"the request's line and headers are longer than {HEAD_BYTES} bytes, the limit here"
        )

    def _refuse(self, status: int, message: str) -> None:
        """Refuse what was sent, and close the connection."""
        self._stop_timer()
        if self._transport.is_closing():
            return
        if not self._line or self._line[0].written:
            body = orjson.dumps({"error": message})
            head = _head(status, [(b"content-type", b"application/json"), CLOSE], len(body))
            self._transport.write(head + body)
        self._transport.close()


def _head(status: int, headers: Sequence[Header], length: int) -> bytes:
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
    """This time, as headers say it."""
    return formatdate(seconds, usegmt=True).encode()
