"""Ends a connection whose client reads nothing of what is written for it, and so holds its memory."""

import asyncio
import fcntl
import sys
import termios
from contextlib import suppress
from math import inf
from typing import Final

UNREAD_SECONDS: Final = 60.0


class Unread:
    """What one transport has still to send. Between `begin` and `stop` some of it must be read each time."""

    __slots__ = ("_loop", "_timer", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Look every UNREAD_SECONDS whether the client reads."""
        if self._timer is None:
            self._look(inf)

    def stop(self) -> None:
        """It has read enough, or has gone."""
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
