"""What keeps one client of the sidecar from taking its time away from the others."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

T = TypeVar("T")


class Shared(Generic[T]):
    """One reading at a time, which all who wait for it share, and after each a pause of the same length.

    So readers take at most half of the time, however many there are. `get` raises what the reading raises.
    """

    def __init__(self, read: Callable[[], Awaitable[T]], now: Callable[[], float]) -> None:
        self._read = read
        self._now = now
        self._next: asyncio.Task[T] | None = None
        self._not_before = 0.0

    async def get(self) -> T:
        """The reading that is under way, or else the next one."""
        if self._next is None:
            self._next = asyncio.create_task(self._after_the_pause())
        return await asyncio.shield(self._next)

    async def _after_the_pause(self) -> T:
        try:
            await asyncio.sleep(self._not_before - self._now())
            begun = self._now()
            try:
                return await self._read()
            finally:
                self._not_before = 2 * self._now() - begun
        finally:
            self._next = None


def at_most(requests: int) -> Middleware:
    """Answers 429 to an address that has its limit of requests in flight already."""
    in_flight: Counter[str | None] = Counter()

    @web.middleware
    async def bounded(request: web.Request, handler: Handler) -> web.StreamResponse:
        address = request.remote
        if in_flight[address] >= requests:
            return web.json_response(
                {"error": f"{address} has {requests} requests in flight here: wait for their answers"},
                status=429,
                headers={"Retry-After": "1"},
            )
        in_flight[address] += 1
        try:
            return await handler(request)
        finally:
            in_flight[address] -= 1
            if not in_flight[address]:
                del in_flight[address]

    return bounded
