"""The HTTP/1.1 server: its connections, from the first to the last."""

import asyncio
import time
from typing import Final

from tailbound_runtime.app import App
from tailbound_runtime.burst import Burst
from tailbound_runtime.connection import Connection
from tailbound_runtime.connections import Connections
from tailbound_runtime.reception import Heads

# Longer than a proxy keeps an idle connection (Envoy: one hour), so that it is the proxy that closes it. A
# server that closes first does so, now and then, just when a request arrives.
KEEP_ALIVE_SECONDS: Final = 2 * 3600.0
SWEEP_SECONDS: Final = 60.0  # between two looks for connections that are idle for too long


class Front:
    """All connections of one server."""

    def __init__(self, app: App, connections: Connections) -> None:
        """connections: those of all fronts."""
        self._app = app
        self._connections = connections
        self._open: set[Connection] = set()
        self._known = Heads()
        self._loop = asyncio.get_running_loop()
        self._burst = Burst(app, self._loop)
        self._ended: asyncio.Future[None] | None = None
        self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def connection(self) -> Connection:
        """A new one, for the loop's server."""
        return Connection(
            self._app,
            self._open,
            self._known,
            self._loop,
            self._closed,
            self._connections,
            self._burst,
        )

    async def close(self, seconds: float) -> None:
        """End idle connections now, the others after their answers, and all of them after `seconds`."""
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
