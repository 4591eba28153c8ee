"""One address floods a port of the sidecar while the operator, Prometheus and the kubelet ask from others."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from e2e.cluster.ports import free_port
from tests.integration.gateway.gateway_lab import Gateway, Pods
from tests.integration.gateway.scripted_cluster import endpoint_slice, inference_service

HTTP = free_port()
STRANGER = "127.0.0.66"
CLIENTS = 100


@asynccontextmanager
async def flood(url: str, authorization: str = "", **security: Any) -> AsyncIterator[Counter[int]]:
    """Requests of a stranger, always so many in flight, each with a token of its own; their statuses."""
    statuses: Counter[int] = Counter()
    connector = aiohttp.TCPConnector(limit=CLIENTS, local_addr=(STRANGER, 0))
    numbers = iter(range(10**9))

    async def repeat(client: aiohttp.ClientSession) -> None:
        while True:
            headers = {"Authorization": f"{authorization} {next(numbers)}"} if authorization else {}
            try:
                async with client.get(url, headers=headers, **security) as response:
                    statuses[response.status] += 1
            except aiohttp.ClientError:
                statuses[0] += 1
            await asyncio.sleep(1)

    async with aiohttp.ClientSession(connector=connector) as client:
        tasks = [asyncio.create_task(repeat(client)) for _ in range(CLIENTS)]
        try:
            yield statuses
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("flooded", ["observed", "metrics", "health"])
async def test_a_flood_of_one_port_keeps_nobody_waiting(gateway: Gateway, pods: Pods, flooded: str) -> None:
    await pods.http("r1", "127.0.0.2", HTTP)
    gateway.cluster.put(
        inference_service("risk", "churn", {"r1": 100}),
        endpoint_slice("risk", "churn", "r1", [("127.0.0.2", "ready")], {"http": HTTP}),
    )
    await gateway.until_applied("risk/churn", 1)
    before = gateway.cluster.reviews
    url = {
        "observed": f"https://127.0.0.1:{gateway.observed_port}/observed",
        "metrics": f"http://127.0.0.1:{gateway.metrics_port}/metrics",
        "health": f"http://127.0.0.1:{gateway.health_port}/readyz",
    }[flooded]

    async def observed() -> bool:
        return "risk/churn" in (await gateway.observed("risk/churn"))["services"]

    async def metrics() -> bool:
        async with gateway.client.get(f"http://127.0.0.1:{gateway.metrics_port}/metrics") as response:
            return response.status == 200

    secured = {"authorization": "Bearer", **gateway.security} if flooded == "observed" else {}
    async with flood(url, **secured) as statuses:
        end = time.monotonic() + 5
        while time.monotonic() < end:
            for ask in (gateway.ready, observed, metrics):
                assert await ask()
            await asyncio.sleep(0.1)
    assert statuses[429] > 0
    assert gateway.cluster.reviews - before <= 12
