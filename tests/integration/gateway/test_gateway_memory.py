"""Bodies of strangers against the memory that all services share, through the real Envoy."""

import asyncio
import io
import re
import socket
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from e2e.cluster.ports import free_port
from tests.integration.gateway import flood
from tests.integration.gateway.gateway_lab import MEMORY_BYTES, Gateway, Pods, gateway_pod
from tests.integration.gateway.scripted_cluster import endpoint_slice, inference_service

LIMIT = 32 * 2**20
FLOOD_SECONDS = 7
PER_SECOND = 100
NEIGHBOUR, DEAF = free_port(), free_port()


@pytest.fixture
def deaf() -> Iterator[None]:
    """A pod that takes connections and reads nothing."""
    with socket.create_server(("127.0.0.3", DEAF), backlog=4096):
        yield


@pytest_asyncio.fixture
async def gateway(tmp_path: Path, pods: Pods, deaf: None) -> AsyncIterator[Gateway]:
    """A gateway that takes 32 MiB, with a neighbour and the service that is flooded."""
    await pods.http("r1", "127.0.0.2", NEIGHBOUR)
    async with gateway_pod(tmp_path, limit_bytes=LIMIT) as running:
        for name, address, port in (
            ("neighbour", "127.0.0.2", NEIGHBOUR),
            ("flooded", "127.0.0.3", DEAF),
        ):
            running.cluster.put(
                endpoint_slice("risk", name, f"{name}-r1", [(address, "ready")], {"http": port}),
                inference_service("risk", name, {f"{name}-r1": 100}, timeout="120s"),
            )
            await running.until_applied(f"risk/{name}", 1)
        yield running


@asynccontextmanager
async def flooding(gateway: Gateway, kind: str, clients: int) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(Path(flood.__file__)), kind, str(gateway.http_port), str(clients)
    )
    try:
        yield
        assert process.returncode is None
    finally:
        process.kill()
        await process.wait()


def peak_bytes(gateway: Gateway) -> int:
    """The most memory that Envoy ever had."""
    assert gateway.envoy is not None
    status = Path(f"/proc/{gateway.envoy.pid}/status").read_text()
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


async def ask(gateway: Gateway) -> str:
    try:
        return str((await gateway.call("neighbour.risk"))[0])
    except (aiohttp.ClientError, TimeoutError) as error:
        return type(error).__name__


@pytest.mark.parametrize(
    ("kind", "clients"), [("length", 40), ("chunks", 40), ("small", 2_000), ("streams", 30)]
)
async def test_bodies_of_strangers_take_no_request_from_a_neighbour(
    gateway: Gateway, kind: str, clients: int, record_property: Callable[[str, object], None]
) -> None:
    async with flooding(gateway, kind, clients):
        begun, requests = time.monotonic(), []
        for number in range(FLOOD_SECONDS * PER_SECOND):
            await asyncio.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
            requests.append(asyncio.create_task(ask(gateway)))
        outcomes = Counter(await asyncio.gather(*requests))
    record_property("peak_mib", peak_bytes(gateway) // 2**20)
    assert outcomes == {"200": len(requests)}
    assert peak_bytes(gateway) < MEMORY_BYTES


async def test_the_largest_body_arrives(gateway: Gateway) -> None:
    status, answer, _ = await gateway.call("neighbour.risk", method="POST", data=io.BytesIO(bytes(LIMIT)))
    assert (status, answer["bytes"]) == (200, LIMIT)


async def test_a_long_body_without_a_length_is_asked_for_one(gateway: Gateway) -> None:
    async def pieces(count: int) -> AsyncIterator[bytes]:
        for _ in range(count):
            yield bytes(1_000)

    status, answer, _ = await gateway.call("neighbour.risk", method="POST", data=pieces(100))
    assert (status, answer["bytes"]) == (200, 100_000)
    status, answer, _ = await gateway.call("neighbour.risk", method="POST", data=pieces(200))
    assert status == 411
    assert "larger than 131072 bytes, the most without a Content-Length" in answer["error"]
    assert f"up to {LIMIT} bytes" in answer["error"]
