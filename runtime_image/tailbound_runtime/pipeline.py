"""The requests of one connection, which are answered in turn, whatever each of them needs (HTTP pipelining).

Some requests are answered at once, and some wait for a run, which calls back when it is over: no task, timer
or thread is made for either. The others become tasks of the event loop.
"""

import asyncio
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Final

from tailbound_runtime.app import App, Phase
from tailbound_runtime.errors import ApiError, Header
from tailbound_runtime.pending import Pending
from tailbound_runtime.reception import CLOSE, Intake
from tailbound_runtime.responses import Response, head_of, refusal
from tailbound_runtime.unread import Unread

JOINED_BYTES: Final = 64 * 2**10
"""Parts of a short answer are joined: copying them costs less than another call to the kernel."""
LINGER_SECONDS: Final = 2.0
"""Bytes that the client sends after its last answer are read for so long, and dropped. With unread
bytes, the kernel would reset the connection, and the client might never see the answer (RFC 9112, 9.6)."""


class Exchange:
    """One request, and its answer once that is known.

    intake: where its body goes; None if it was answered without
    task: what its answer comes from by itself; None before, and once it is known
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
        self.task: asyncio.Task[Response] | Pending | None = None


class Pipeline:
    """Exchanges in the order of their arrival; the first one is answered next.

    used: when the last answer was written, in the time of `perf_counter`
    """

    __slots__ = (
        *("_app", "_ending", "_full", "_line", "_lingers", "_loop", "_refuses", "_transport", "_unread"),
        "_waiting",
        "used",
    )

    def __init__(self, app: App, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._app = app
        self._transport = transport
        self._loop = loop
        self._unread = Unread(transport, loop, app.budget)
        self._line: deque[Exchange] = deque()
        self._full = False  # the client takes no more bytes now
        self._waiting = 0  # bytes of answers that wait for those to requests before them
        self._ending = False
        self._lingers = False
        self._refuses = False  # what was sent last, and drops what comes after it
        self.used = time.perf_counter()

    @property
    def last(self) -> Exchange | None:
        """The one that arrived last; None if all are answered."""
        return self._line[-1] if self._line else None

    @property
    def is_free(self) -> bool:
        """Whether a request that comes now may be answered before this returns to the loop."""
        return not self._line and not self._full and self._stays()

    @property
    def is_over(self) -> bool:
        """Whether bytes that come now are dropped: the last answer is written, or known."""
        return self._refuses or self._is_closed

    @property
    def _is_closed(self) -> bool:
        """Whether the last answer is written."""
        return self._lingers or self._transport.is_closing()

    def append(self, exchange: Exchange) -> None:
        """One more has arrived; it is answered by `advance`."""
        if self._line and exchange.response is not None:
            self._waiting += exchange.response.size
            self._unread.count(self._waiting)
        self._line.append(exchange)

    def answer_at_once(self, response: Response) -> None:
        """Write the answer to a request that is not in line, as `is_free`."""
        seconds = self._send(response, response.parts, response.headers)
        if response.sent is not None:
            response.sent(seconds)
        if self._full:
            self._count()

    def wait(self, pending: Pending) -> None:
        """Answer a request that is not in line, as `is_free`, when its run is over."""
        exchange = Exchange(False, True, pending.intake, False)
        exchange.complete = True
        self._waits(exchange, pending)
        self._line.append(exchange)

    def lost(self) -> None:
        """The client has gone: what is not answered yet is given up."""
        self._unread.stop()
        self._full, self._waiting = False, 0  # nothing waits for it, whatever ends later
        for exchange in self._line:
            if exchange.task is not None:
                exchange.task.cancel()
            elif exchange.intake is not None and exchange.response is None:
                self._app.left(exchange.intake, exchange.complete)
        self._line.clear()

    def pause(self) -> None:
        """The client reads slower than it asks: it has to read first."""
        self._full = True
        self._transport.pause_reading()
        self._unread.begin()

    def resume(self) -> None:
        """Go on: the client has read what was pending."""
        self._full = False
        self._unread.stop()
        self.advance()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is here, and the client has read its answers."""
        return not self._line and not self._full

    def end_after_one(self) -> None:
        """Close after the next answer."""
        self._ending = True

    def end(self) -> None:
        """Close after the answers that are due."""
        self._ending = True
        if not self._line:
            self._transport.close()

    def advance(self) -> None:
        """Answer what can be answered, in turn."""
        line = self._line
        if self._lingers:
            return
        while line and not self._full:
            exchange = line[0]
            if exchange.response is None and not self._answer(exchange):
                break
            if not exchange.written:
                self._write(exchange)
            if not exchange.complete or self._is_closed:
                break
            line.popleft()
            if self._ending and not line:
                self._transport.close()
        if self._full or self._waiting:
            self._count()
        if self._full or (len(line) > 1 and line[0].task is not None):
            self._transport.pause_reading()  # what comes would only have to wait here
        elif not self._transport.is_reading() and not self._transport.is_closing():
            self._transport.resume_reading()

    def _count(self) -> None:
        """Count what waits here for the client to read."""
        if not self._line:
            self._waiting = 0
        if not self._full and not self._waiting:
            self._unread.stop()
            return
        first = self._line[0] if self._line else None
        known = 0 if first is None or first.response is None or first.written else first.response.size
        self._unread.count(self._waiting + known)

    def _answer(self, exchange: Exchange) -> bool:
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
            self._waits(exchange, outcome)
        else:
            self._goes_on(exchange, outcome)
        return False

    def _waits(self, exchange: Exchange, pending: Pending) -> None:
        exchange.task = pending
        pending.then = partial(self._run_is_over, exchange)

    def _run_is_over(self, exchange: Exchange, pending: Pending) -> None:
        exchange.task = None
        outcome = self._app.run_is_over(pending)
        if not isinstance(outcome, Response):
            self._goes_on(exchange, outcome)
            return
        exchange.response = outcome
        if self._is_plain(exchange, outcome):
            self._line.popleft()
            self._app.sent(pending.intake, self._send(outcome, outcome.parts, outcome.headers))
            if self._full:
                self._count()
        else:
            self.advance()

    def _is_plain(self, exchange: Exchange, response: Response) -> bool:
        """Whether this answer only has to be written, as most have: no other waits, the connection stays."""
        return (
            len(self._line) == 1
            and exchange.keep_alive
            and not exchange.head_only
            and not self._full
            and not self._lingers
            and self._stays()
            and CLOSE not in response.headers
        )

    def _goes_on(self, exchange: Exchange, coroutine: Coroutine[Any, Any, Response]) -> None:
        exchange.task = task = self._loop.create_task(coroutine)
        task.add_done_callback(partial(self._answered, exchange))

    def _answered(self, exchange: Exchange, task: asyncio.Future[Response]) -> None:
        if task.cancelled():
            assert exchange.intake is not None
            self._app.left(exchange.intake, True)
            return
        exchange.task = None
        exchange.response = task.result()
        self.advance()

    def _stays(self) -> bool:
        """Whether the connection goes on after an answer, if the client wishes."""
        return not self._ending and self._app.phase is not Phase.DRAINING

    def _write(self, exchange: Exchange) -> None:
        response = exchange.response
        assert response is not None
        exchange.written = True
        kept = exchange.keep_alive and self._stays()
        headers = response.headers
        if CLOSE in headers:
            kept = False
        elif not kept:
            headers = [*headers, CLOSE]  # the client's next connection goes to a pod that stays
        seconds = self._send(response, () if exchange.head_only else response.parts, headers)
        if exchange.intake is not None:
            self._app.sent(exchange.intake, seconds)
        if not kept:
            self._close(exchange.complete)

    def _close(self, complete: bool) -> None:
        """Close after the last answer; `complete` if all of the last request is here."""
        if complete:
            self._transport.close()
            return
        self._lingers = True
        self._transport.write_eof()
        self._loop.call_later(LINGER_SECONDS, self._transport.close)

    def _send(
        self, response: Response, parts: Sequence[bytes | memoryview], headers: Sequence[Header]
    ) -> float:
        """Write an answer, with these parts of it; the seconds that this took."""
        started = self.used = time.perf_counter()
        head = head_of(response.status, headers, response.size)
        if response.size <= JOINED_BYTES:
            self._transport.write(b"".join((head, *parts)))
        else:
            self._transport.write(head)
            for part in parts:
                self._transport.write(part)
        return time.perf_counter() - started

    def refuse(self, error: ApiError) -> None:
        """Refuse what was sent, and close the connection after the answers to the requests before it."""
        if self.is_over:
            return
        self._refuses = True
        last = self.last
        if last is None or last.complete:
            self.append(Exchange(False, False, refusal(error), False))
        elif last.intake is not None and last.response is None:
            self._app.left(last.intake, False)
            last.response = refusal(error)
        if last is not None and last.written:  # it had its answer before the end of its body
            self._close(complete=False)
        else:
            self.advance()
