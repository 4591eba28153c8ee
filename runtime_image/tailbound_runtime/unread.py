"""What a connection holds for a client that does not read: its bytes are counted, and its time is short.

| what waits for the client | then |
|---|---|
| does not fit into the memory of all requests | the connection ends |
| becomes less within UNREAD_SECONDS | it goes on waiting |
| does not | the connection ends |
"""

import asyncio
import fcntl
import sys
import termios
from contextlib import suppress
from math import inf
from typing import Final

import structlog

from tailbound_runtime.budget import Budget, Share
from tailbound_runtime.errors import ApiError

UNREAD_SECONDS: Final = 60.0

log = structlog.get_logger(__name__)


class Unread:
    """What one transport has still to send, from the time on when its client has to read first."""

    __slots__ = ("_budget", "_loop", "_share", "_timer", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, budget: Budget) -> None:
        self._transport = transport
        self._loop = loop
        self._budget = budget
        self._share: Share | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Look every UNREAD_SECONDS whether the client reads."""
        if self._timer is None:
            self._look(inf)

    def count(self, more: int = 0) -> None:
        """Count what the transport has to send, and so many bytes that come after it."""
        if self._share is None:
            self._share = Share(self._budget)
        try:
            self._share.hold(self._transport.get_write_buffer_size() + more)
        except ApiError as error:
            log.warning("a connection is closed, as there is no memory for its answers", error=str(error))
            self._transport.abort()

    def stop(self) -> None:
        """Stop waiting: the client has read enough, or has gone."""
        if self._share is not None:
            self._share.end()
            self._share = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, before: float) -> None:
        left = self._transport.get_write_buffer_size() + self._in_kernel()
        if left >= before:
            self._transport.abort()
        else:
            self._timer = self._loop.call_later(UNREAD_SECONDS, self._look, left)

    def _in_kernel(self) -> int:
        """Bytes that the kernel has still to send: it takes no more from us until a third of them is read."""
        sock = self._transport.get_extra_info("socket")
        with suppress(OSError, ValueError):  # it has been closed
            if sock is not None:
                return int.from_bytes(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
        return 0
