"""One HTTP/1.1 connection: limits for heads and bodies, refusals in JSON, and upgrades declined.

The bytes of a head that was seen before are not parsed again: they mean the same, whatever they are, because
all of them are compared. Heads that each have a number of their own, as the gateways' x-request-id, gain
nothing by that.
"""

import asyncio
import time
from typing import Any, Final, cast

import httptools
import structlog

from tailbound_runtime.app import App
from tailbound_runtime.burst import Burst
from tailbound_runtime.connections import Admission, Connections
from tailbound_runtime.errors import ApiError
from tailbound_runtime.head_parts import MOST_HEADERS, HeadParts, HeadTooLongError
from tailbound_runtime.pending import Pending
from tailbound_runtime.pipeline import Exchange, Pipeline
from tailbound_runtime.reception import CLOSE, Head, Heads, Intake, space
from tailbound_runtime.responses import Response, refusal

HEAD_BYTES: Final = 32 * 2**10
HEAD_SECONDS: Final = 10.0

_END_OF_HEAD: Final = b"\r\n\r\n"

# Of all connections: the loop reads and gives on what it has read, before it reads from another.
_ANY: Final = memoryview(bytearray(32 * 2**10))

log = structlog.get_logger(__name__)


class Connection(HeadParts, asyncio.BufferedProtocol):
    """One connection. A head may have HEAD_BYTES, and must be complete HEAD_SECONDS after its first byte.

    A long body with binary tensors passes the parser by, once its first bytes are there: the kernel writes it
    where it stays. After such a request, of any connection, the next one is expected to have the same head:
    all of it is written there, and the head is compared.
    """

    def __init__(
        self,
        app: App,
        among: "set[Connection]",
        known: Heads,
        loop: asyncio.AbstractEventLoop,
        closed: Any,
        connections: Connections,
        burst: Burst,
    ) -> None:
        super().__init__()
        self._app = app
        self._burst = burst
        self._in_burst = False  # a request is, and nothing after it is looked at before it is served
        self._connections = connections
        self._turned_away = False
        self._among = among
        self._known = known
        self._loop = loop
        self._closed = closed
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._pipeline: Pipeline
        self._head: Head | Response | None = None  # the last one that was parsed
        self._completed = 0  # requests that ended in the bytes that the parser got last
        self._upgrades = False
        self._timer: asyncio.TimerHandle | None = None
        self._misses = 0  # bytes of a body that passes the parser by
        self._room: memoryview | None = None  # where they go; None if they are not kept
        self._likely = known.likely  # the head that the next request is expected to have
        self._guess: memoryview | None = None  # where the next request goes, if it has that head

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)
        self._pipeline = Pipeline(self._app, self._transport, self._loop)
        self._among.add(self)
        admission = self._connections.admit(self)
        if admission is Admission.ENDED:
            self._transport.abort()
        elif admission is Admission.TURNED_AWAY:
            self._turned_away = True
            self._pipeline.end_after_one()
            self._timer = self._loop.call_later(HEAD_SECONDS, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone: what is not answered yet is given up."""
        self._in_burst = False
        self._among.discard(self)
        self._connections.left(self)
        self._stop_timer()
        self._pipeline.lost()
        self._closed()

    def pause_writing(self) -> None:
        """The client reads slower than it asks."""
        self._pipeline.pause()

    def resume_writing(self) -> None:
        """Go on: the client has read what was pending."""
        self._pipeline.resume()

    def end(self) -> None:
        """Close after the answers that are due."""
        if self._in_burst:
            self._burst.serve()
        self._pipeline.end()

    give_way = end

    @property
    def is_idle(self) -> bool:
        """Whether no part of a request is here, and the client has read its answers."""
        return self._between and not self._in_burst and self._pipeline.is_idle

    @property
    def used(self) -> float:
        """When the last answer was written, in the time of `perf_counter`."""
        return self._pipeline.used

    # --- bytes

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        if self._misses:
            return _ANY[: self._misses] if self._room is None else self._room
        if self._likely is None or not self._between:
            return _ANY
        head, meaning = self._likely
        self._guess = space(meaning, len(head))
        return _ANY if self._guess is None else self._guess

    def buffer_updated(self, nbytes: int) -> None:
        """They are there."""
        if self._in_burst:
            self._burst.serve()
        if self._pipeline.is_over:
            return
        guess, self._guess = self._guess, None
        if self._misses:
            self._passed_by(nbytes)
        elif guess is None:
            self._read(bytes(_ANY[:nbytes]))
        elif not self._guessed(guess, nbytes):
            self._read(bytes(guess[:nbytes]))

    def _guessed(self, there: memoryview, size: int) -> bool:
        """Whether the first bytes are the head that was expected: then what follows passes the parser by."""
        assert self._likely is not None
        expected, head = self._likely
        ends = len(expected)
        if bytes(there[:ends]) != expected or size <= ends:
            self._likely = None
            return False
        begun = self._begin(head)
        exchange = Exchange(False, True, begun, False)
        self._pipeline.append(exchange)
        self._between = False
        self._misses = len(there) - ends
        if isinstance(begun, Intake):
            begun.body = self._room = there[ends:]
        else:
            self._pipeline.advance()
        self._passed_by(size - ends)
        if self._misses and not self._pipeline.is_over:
            self._hurry(exchange)
        return True

    def _passed_by(self, size: int) -> None:
        """Count `size` bytes of a body that have come. Those of a refused one are not kept."""
        exchange = self._pipeline.last
        self._misses -= size
        if exchange is None or exchange.intake is None or exchange.response is not None:
            self._room = None
        else:
            self._room = None if self._room is None else self._room[size:]
            exchange.response = self._app.received(exchange.intake, size)
            if exchange.response is not None:
                self._room = None
                self._pipeline.advance()
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
                self._likely = self._known.likely = data[:ends], head
                break
            self._whole(head, data[ends : ends + head.length])
            data = data[ends + head.length :]
            if not data:
                return
            if self._in_burst:
                self._burst.serve()
            if self._pipeline.is_over:
                return
        self._parse(data)

    def _whole(self, head: Head, body: bytes) -> None:
        """All of a request is there."""
        if self._pipeline.is_free:
            self._in_burst = True
            self._burst.add(self, head, body)
        else:
            self._go_on(head, body, None)

    def answer(self, head: Head, body: bytes, begun: Response | Pending | Intake | None) -> None:
        """Go on with the request that was in the burst; None: it has yet to begin."""
        if self._in_burst:
            self._in_burst = False
            self._go_on(head, body, begun)
        elif isinstance(begun, Pending):  # the client has gone since
            begun.cancel()
        elif isinstance(begun, Intake):
            self._app.left(begun, True)

    def _go_on(self, head: Head, body: bytes, begun: Response | Pending | Intake | None) -> None:
        if isinstance(begun, Response):
            self._pipeline.answer_at_once(begun)
            return
        if isinstance(begun, Pending):
            self._pipeline.wait(begun)
            return
        exchange = Exchange(False, True, begun or self._begin(head), False)
        exchange.complete = True
        if exchange.intake is not None and begun is None:
            exchange.response = self._app.receive(exchange.intake, body)
        self._pipeline.append(exchange)
        self._pipeline.advance()

    def _learn(self, head: bytes, rest: bytes) -> None:
        """Parse a head and what follows; remember the head if it is that of an inference with a body.

        The parser gets the head alone: if no less and no more than these bytes was one, they always are.
        """
        self._head, self._completed = None, 0
        if self._feed(head):
            known = self._last_head()
            if known is not None:
                self._known.learn(head, known)
        elif self._pipeline.is_over:
            return
        self._parse(rest)

    def _last_head(self) -> Head | None:
        """What the parser has just got, if that is the whole head of an inference whose body is to follow."""
        head = self._head
        if not isinstance(head, Head) or not head.length or b"expect" in head.headers:
            return None
        exchange = self._pipeline.last
        if exchange is None or exchange.intake is None or exchange.intake.body or self._completed:
            return None
        return head if exchange.keep_alive else None

    def _parse(self, data: bytes) -> None:
        self._completed = 0
        if not self._feed(data):
            return
        if self._in_head:
            self._head_goes_on(0 if self._completed else len(data))
        else:
            self._body_goes_on(self._pipeline.last)

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
        if isinstance(error.__context__, HeadTooLongError):
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

    def _body_goes_on(self, exchange: Exchange | None) -> None:
        if exchange is None or exchange.intake is None or exchange.response is not None or exchange.complete:
            return
        self._room = exchange.intake.room()
        if self._room is not None:
            self._misses = len(self._room)
            self._parser = httptools.HttpRequestParser(self)
        self._hurry(exchange)

    def _hurry(self, exchange: Exchange) -> None:
        """The rest of this body has to arrive in time."""
        if self._timer is None and exchange.intake is not None and exchange.response is None:
            seconds = exchange.intake.left(time.perf_counter())
            self._timer = self._loop.call_later(max(0.0, seconds), self._body_is_late, exchange)

    def _head_is_late(self) -> None:
        self._refuse(408, f"the request's head did not arrive within {HEAD_SECONDS:g} s")

    def _body_is_late(self, exchange: Exchange) -> None:
        self._timer = None
        if exchange.intake is not None and exchange.response is None and not exchange.complete:
            exchange.response = self._app.late(exchange.intake)
            self._pipeline.advance()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- what the parser finds

    def on_headers_complete(self) -> None:
        """The end of a head. Raises HeadTooLongError."""
        self._in_head = False
        self._stop_timer()
        if len(self._url) + sum([len(name) + len(value) for name, value in self._headers]) > HEAD_BYTES:
            raise HeadTooLongError
        self._upgrades = self._parser.should_upgrade()
        if self._upgrades:
            return
        method = self._parser.get_method()
        headers = dict(self._headers)
        self._head = self._app.head(method, self._url, headers)
        begun = self._begin(self._head) if isinstance(self._head, Head) else self._head
        expects = b"expect" in headers and headers[b"expect"].lower() == b"100-continue"
        self._pipeline.append(Exchange(method == b"HEAD", self._parser.should_keep_alive(), begun, expects))
        if expects or not isinstance(begun, Intake):
            self._pipeline.advance()

    def _begin(self, head: Head) -> Intake | Response:
        return refusal(self._connections.refusal()) if self._turned_away else self._app.begin(head)

    def on_body(self, body: bytes) -> None:
        """A part of a body; that of a request which is refused already is not kept."""
        exchange = self._pipeline.last
        if self._upgrades or exchange is None:
            return
        if exchange.intake is not None and exchange.response is None:
            exchange.response = self._app.receive(exchange.intake, body)
            if exchange.response is not None:
                self._pipeline.advance()

    def on_message_complete(self) -> None:
        """The end of a request."""
        self._completed += 1
        self._between = True
        exchange = self._pipeline.last
        if self._upgrades or exchange is None:
            return
        self._stop_timer()
        exchange.complete = True
        self._pipeline.advance()

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

    def _refuse_head(self) -> None:
        self._refuse(
            431,
            f"the request's line and headers are longer than {HEAD_BYTES} bytes, or there are more than "
            f"{MOST_HEADERS} headers: these are the limits here",
        )

    def _refuse(self, status: int, message: str) -> None:
        self._stop_timer()
        self._pipeline.refuse(ApiError(status, message, [CLOSE]))
