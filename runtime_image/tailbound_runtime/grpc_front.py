"""The gRPC server: its connections, from the first to the last."""

import asyncio
import time
from collections.abc import Mapping
from typing import Final

from tailbound_runtime.app import App
from tailbound_runtime.budget import Budget
from tailbound_runtime.connections import Connections
from tailbound_runtime.errors import ApiError
from tailbound_runtime.front import KEEP_ALIVE_SECONDS
from tailbound_runtime.grpc_call import SERVICE, RpcCall, Surface
from tailbound_runtime.grpc_head import RpcHead, head_of
from tailbound_runtime.grpc_health import Health
from tailbound_runtime.grpc_message_call import MessageCall
from tailbound_runtime.grpc_reflection import ReflectCall
from tailbound_runtime.grpc_service import methods_of
from tailbound_runtime.http2 import Http2Connection
from tailbound_runtime.http2_blocks import literal
from tailbound_runtime.http2_frames import Code
from tailbound_runtime.http2_outflow import Stream
from tailbound_runtime.http2_streams import Call
from tailbound_runtime.reception import Limits

CALL_BYTES: Final = 2 * 2**10
"""What a call takes before its message comes: many may only begin."""
SWEEP_SECONDS: Final = 0.25  # between two looks for calls that are overdue
IDLE_SWEEP_SECONDS: Final = 60.0


class RpcFront:
    """All connections of one server."""

    def __init__(self, app: App, limits: Limits, budget: Budget, connections: Connections) -> None:
        """connections: those of all fronts."""
        self._connections = connections
        self._limits = limits
        self._surface = surface = Surface(app, limits, budget)
        self._health = Health(surface, frozenset(("", SERVICE)))
        self._methods = methods_of(surface, self._health)
        self._loop = surface.loop
        self._open: set[Http2Connection] = set()
        self._busy: set[Http2Connection] = set()
        self._ended: asyncio.Future[None] | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._idle_sweeper = self._loop.call_later(IDLE_SWEEP_SECONDS, self._sweep_idle)

    def connection(self) -> Http2Connection:
        """A new one, for the loop's server."""
        return Http2Connection(
            self._head,
            self._call,
            self._open,
            self._sweep_later,
            self._closed,
            self._surface.budget,
            self._connections,
        )

    def ready(self, ready: bool) -> None:
        """What grpc.health.v1 says from now on."""
        self._health.set(ready)

    def drain(self) -> None:
        """Send clients elsewhere; calls that come nevertheless are served."""
        for connection in tuple(self._open):
            connection.end()

    async def close(self, seconds: float) -> None:
        """End idle connections now, the others after their answers, and all of them after `seconds`."""
        self._idle_sweeper.cancel()
        self._health.close()
        for connection in tuple(self._open):
            connection.refuse()
        if self._open:
            self._ended = self._loop.create_future()
            await asyncio.wait([self._ended], timeout=seconds)

    def _head(self, headers: Mapping[bytes, bytes] | None) -> RpcHead | None:
        return head_of(headers, self._methods, self._limits)

    def _call(self, connection: Http2Connection, stream: Stream, head: RpcHead | None) -> Call | None:
        """The call that has this head; None if it is answered, or refused, already."""
        if head is None:
            connection.reset(stream, Code.PROTOCOL_ERROR)
            return None
        stream.left = head.length
        if head.status is not None:
            connection.out.finish(stream, literal(b":status", b"%d" % head.status))
            return None
        if head.method is None or head.refusal is not None:
            assert head.refusal is not None
            RpcCall(self._surface, connection, stream, head).refuse(head.refusal)
            return None
        call: MessageCall | ReflectCall = head.method(connection, stream, head)
        try:
            call.share.need(CALL_BYTES)
        except ApiError as error:
            call.refuse(error)
            return None
        return call

    def _closed(self) -> None:
        if self._ended is not None and not self._open and not self._ended.done():
            self._ended.set_result(None)

    def _sweep_later(self, connection: Http2Connection) -> None:
        self._busy.add(connection)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        now = time.perf_counter()
        busy, self._busy = self._busy, set()
        for connection in busy:
            if connection.sweep(now):
                self._sweep_later(connection)

    def _sweep_idle(self) -> None:
        self._idle_sweeper = self._loop.call_later(IDLE_SWEEP_SECONDS, self._sweep_idle)
        now = time.perf_counter()
        for connection in tuple(self._open):
            if connection.is_idle and now - connection.used > KEEP_ALIVE_SECONDS:
                connection.end()
