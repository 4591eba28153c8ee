"""A clock that moves only when a test says so, and sleepers that wake by it."""

import asyncio
import heapq
import itertools
from collections.abc import Callable


class VirtualTime:
    """Give `clock` and `sleep` to what is tested, and `advance` from the test."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def clock(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), woken))
        await woken

    async def advance(self, seconds: float, look: Callable[[], None] = lambda: None) -> None:
        """Let time pass, waking everybody in order; each acts, and then `look` is called, before the next."""
        until = self._now + seconds
        await settle()
        look()
        while self._sleepers and self._sleepers[0][0] <= until:
            self._now, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)
            await settle()
            look()
        self._now = until


async def settle() -> None:
    """Let every task run until it waits for time."""
    for _ in range(30):
        await asyncio.sleep(0)
