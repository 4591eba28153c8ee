"""Short requests that come together: all are read, then all run, then all are answered.

Done one after the other they take a quarter more of CPU time: each step finds its code and data in the
processor's caches only if the same step came before it. What all of them take together is bounded, as the
first one's answer waits for the others' runs.
"""

import asyncio
import time
from typing import Final, Protocol

from tailbound_runtime.inferences import Inferences
from tailbound_runtime.pending import Pending
from tailbound_runtime.reception import Head, Intake
from tailbound_runtime.responses import Response
from tailbound_runtime.short import Short

MOST: Final = 8
TOGETHER_SECONDS: Final = 0.0005


class Asking(Protocol):
    """A connection with one request in the burst."""

    def answer(self, head: Head, body: bytes, begun: Response | Pending | Intake | None) -> None:
        """Go on with that request; None: it has yet to begin."""


class Burst:
    """The requests that were there when the loop looked, of all connections. For the loop's thread only."""

    def __init__(self, app: Inferences, loop: asyncio.AbstractEventLoop) -> None:
        self._app = app
        self._loop = loop
        self._waiting: list[tuple[Asking, Head, bytes, float]] = []
        self._most = 1  # as long as nothing is known, and where requests wait for runs elsewhere

    def add(self, asking: Asking, head: Head, body: bytes) -> None:
        """Serve this one with those that come before the loop looks again, or now if these are enough."""
        waiting, now = self._waiting, time.perf_counter()
        if self._most == 1 and not waiting:
            self._one(asking, head, body, now)
            return
        waiting.append((asking, head, body, now))
        if len(waiting) >= self._most:
            self.serve()
        elif len(waiting) == 1:
            self._loop.call_soon(self.serve)

    def serve(self) -> None:
        """Serve what is here."""
        waiting = self._waiting
        if not waiting:
            return
        self._waiting = []
        began, app = time.perf_counter(), self._app
        read = [app.read(head, body, since) for _, head, body, since in waiting]
        waits = False
        for each in read:
            if isinstance(each, Short):
                app.run(each)
            elif isinstance(each, Pending):
                waits = True
        for (asking, head, body, _), each in zip(waiting, read, strict=True):
            asking.answer(head, body, app.answer(each) if isinstance(each, Short) else each)
        self._most = 1 if waits else _most(time.perf_counter() - began, len(waiting))

    def _one(self, asking: Asking, head: Head, body: bytes, since: float) -> None:
        app = self._app
        begun = app.read(head, body, since)
        if isinstance(begun, Short):
            app.run(begun)
            asking.answer(head, body, app.answer(begun))
        else:
            asking.answer(head, body, begun)
            if isinstance(begun, Pending):
                return
        self._most = _most(time.perf_counter() - since, 1)


def _most(seconds: float, requests: int) -> int:
    """How many to serve together, where so many took these seconds."""
    return min(MOST, int(TOGETHER_SECONDS * requests / seconds) or 1)
