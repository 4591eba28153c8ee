"""Clients of the sidecar share readings, and each address has its bound."""

import asyncio
from collections import Counter

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tailbound.gateway.fairness import Shared, at_most


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_all_who_wait_share_one_reading() -> None:
    readings = 0

    async def read() -> int:
        nonlocal readings
        readings += 1
        await asyncio.sleep(0)
        return readings

    shared = Shared(read, Clock())
    assert await asyncio.gather(*(shared.get() for _ in range(500))) == [1] * 500
    assert await shared.get() == 2


async def test_after_a_reading_there_is_a_pause_of_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, pauses = Clock(), list[float]()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async def read() -> None:
        clock.now += 3

    shared = Shared(read, clock)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    await shared.get()
    clock.now += 1
    await shared.get()
    assert pauses[1] == 2


async def test_a_reading_that_fails_fails_those_who_waited_and_no_others() -> None:
    async def read() -> None:
        raise OSError("away")

    shared = Shared(read, Clock())
    outcomes = await asyncio.gather(*(shared.get() for _ in range(3)), return_exceptions=True)
    assert [str(each) for each in outcomes] == ["away"] * 3
    with pytest.raises(OSError, match="away"):
        await shared.get()


async def test_an_address_has_so_many_requests_in_flight_and_others_have_theirs() -> None:
    release = asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        await release.wait()
        return web.Response()

    app = web.Application(middlewares=[at_most(3)])
    app.router.add_get("/", answer)

    async def ask(client: aiohttp.ClientSession) -> int:
        async with client.get(server.make_url("/")) as response:
            return response.status

    async with (
        TestServer(app) as server,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(local_addr=("127.0.0.66", 0))) as stranger,
        aiohttp.ClientSession() as other,
    ):
        flood = [asyncio.create_task(ask(stranger)) for _ in range(10)]
        first = asyncio.as_completed(flood)
        refused = [await next(first) for _ in range(7)]
        asked = asyncio.create_task(ask(other))
        release.set()
        assert refused == [429] * 7
        assert await asked == 200
        assert Counter(await asyncio.gather(*flood)) == {200: 3, 429: 7}
