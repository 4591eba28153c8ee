"""What the gateway refuses of a server that knows nothing of deadlines, through the real Envoy."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from aiohttp import web
from tailbound.gateway.admin import EnvoyAdmin

from e2e.cluster.ports import free_port
from tests.integration.gateway.gateway_lab import Gateway, until
from tests.integration.gateway.scripted_cluster import endpoint_slice, inference_service

PORT = free_port()
TARGET = 0.5
SPEC: Mapping[str, Any] = {"sla": {"latency": {"p99": "500ms"}}, "timeout": "30s"}
WORKERS, SECONDS = 2, 0.05
"""At most 40 requests per second."""
OFFERED, FOR, NOTICED = 100, 10.0, 5.0
"""Requests per second, seconds, and from when on the overload is known."""
LITTLE_MORE = 60
"""Requests per second that wait for seconds and not for half a minute where none is refused."""
LIMIT = "circuit_breakers.risk/churn/churn-r1/http.default.max_requests"


class Answer(NamedTuple):
    sent: float
    took: float
    status: int
    headers: Mapping[str, str]
    body: Any


@pytest_asyncio.fixture
async def server() -> AsyncIterator[None]:
    """A pod that works on two requests at a time and lets all others wait."""
    free = asyncio.Semaphore(WORKERS)

    async def answer(_: web.Request) -> web.Response:
        async with free:
            await asyncio.sleep(SECONDS)
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.2", PORT).start()
    yield
    await runner.cleanup()


async def serve(gateway: Gateway, **spec: Any) -> None:
    gateway.cluster.put(
        endpoint_slice("risk", "churn", "churn-r1", [("127.0.0.2", "ready")], {"http": PORT}),
        inference_service("risk", "churn", {"churn-r1": 100}, **SPEC, **spec),
    )
    await gateway.until_applied("risk/churn", 1)


async def ask(gateway: Gateway, begun: float) -> Answer:
    sent = time.monotonic()
    status, body, headers = await gateway.infer("churn.risk")
    return Answer(sent - begun, time.monotonic() - sent, status, headers, body)


async def overload(gateway: Gateway, rate: int = OFFERED) -> list[Answer]:
    begun, requests = time.monotonic(), []
    for number in range(int(rate * FOR)):
        await asyncio.sleep(max(0.0, begun + number / rate - time.monotonic()))
        requests.append(asyncio.create_task(ask(gateway, begun)))
    return await asyncio.gather(*requests)


async def counters(gateway: Gateway) -> Mapping[str, int]:
    found = (await gateway.observed("risk/churn"))["services"]["risk/churn"]["counters"]["churn-r1"]
    return {name: count for name, count in found.items() if count}


async def test_what_would_be_late_is_refused_and_the_rest_is_in_time(gateway: Gateway, server: None) -> None:
    await serve(gateway, overload="shed")
    answers = await overload(gateway)
    refused = [each for each in answers if each.status == 503]
    answered = [each for each in answers if each.status == 200]
    assert len(refused) + len(answered) == len(answers)
    assert len(refused) > 0.2 * len(answers)
    for each in refused:
        assert "would answer later than its P99 target (spec.overload)" in each.body["error"]
        assert int(each.headers["retry-after"]) > 0
    settled = [each for each in answered if each.sent > NOTICED]
    late = [each.took for each in settled if each.took > TARGET]
    assert len(settled) > 20
    assert len(late) < 0.1 * len(settled)
    found = await counters(gateway)
    assert found["shed"] == len(refused)
    assert set(found) <= {"good", "slow", "shed"}

    async def calm() -> bool:
        return (await ask(gateway, 0.0)).status == 200 and LIMIT not in await runtime_keys(gateway)

    await until("the limit goes with the overload", calm)


async def test_with_queue_every_request_waits(gateway: Gateway, server: None) -> None:
    await serve(gateway)
    assert {each.status for each in await overload(gateway, LITTLE_MORE)} == {200}
    assert "shed" not in await counters(gateway)


async def runtime_keys(gateway: Gateway) -> list[str]:
    async with EnvoyAdmin(gateway.run.admin_socket) as admin:
        return await admin.runtime_keys()


@pytest.mark.parametrize("overload", ["queue", "shed"])
async def test_a_limit_does_not_outlive_the_sidecar_that_set_it(
    gateway: Gateway, server: None, overload: str
) -> None:
    await serve(gateway, overload=overload)
    await gateway.stop_sidecar()
    async with EnvoyAdmin(gateway.run.admin_socket) as admin:
        await admin.modify_runtime({LIMIT: "0"})
    assert (await ask(gateway, 0.0)).status == 503
    gateway.start_sidecar()

    async def served() -> bool:
        return (await ask(gateway, 0.0)).status == 200

    await until("requests are served again", served)
    assert LIMIT not in await runtime_keys(gateway)
