"""Starts, stops and outages of the parts of a gateway pod."""

import asyncio
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tailbound.gateway import admin, controller, snapshot
from tailbound.gateway.drain import drain
from tailbound.gateway.leaving import DrainTimes

from e2e.cluster.ports import free_port
from tests.integration.gateway.gateway_lab import Gateway, Pods, gateway_pod, until
from tests.integration.gateway.scripted_cluster import ScriptedCluster, endpoint_slice, inference_service

HTTP = free_port()


def serving(revision: str, address: str, traffic_generation: int = 1) -> tuple[Any, Any]:
    return (
        endpoint_slice("risk", "churn", revision, [(address, "ready")], {"http": HTTP}),
        inference_service("risk", "churn", {revision: 100}, traffic_generation=traffic_generation),
    )


async def test_a_restarted_envoy_gets_everything_and_is_told_apart(gateway: Gateway, pods: Pods) -> None:
    await pods.http("r1", "127.0.0.2", HTTP)
    gateway.cluster.put(*serving("r1", "127.0.0.2"))
    await gateway.until_applied("risk/churn", 1)
    before = (await gateway.observed())["envoyStartTime"]
    await gateway.kill_envoy()

    async def gone() -> bool:
        found = await gateway.observed()
        return not found["synced"] and found["envoyStartTime"] is None

    await until("the sidecar sees that Envoy is gone", gone)
    assert not await gateway.ready()
    await gateway.start_envoy()
    await gateway.until_applied("risk/churn", 1)
    assert (await gateway.call("churn.risk"))[0] == 200
    assert (await gateway.observed())["envoyStartTime"] > before


async def test_what_is_applied_says_whether_a_pod_is_ready(gateway: Gateway, pods: Pods) -> None:
    await pods.http("r1", "127.0.0.2", HTTP)
    for state, status in (("ready", 200), ("starting", 503), ("ready", 200)):
        gateway.cluster.put(
            endpoint_slice("risk", "churn", "r1", [("127.0.0.2", state)], {"http": HTTP}),
            inference_service("risk", "churn", {"r1": 100}),
        )

        await gateway.until_ready()

        async def known(expected: bool = status == 200) -> bool:
            found = (await gateway.observed())["services"].get("risk/churn", {}).get("applied") or {}
            return found.get("hasReadyPod") is expected

        await until(f"a pod that is {state} is known", known)
        assert (await gateway.call("churn.risk"))[0] == status


async def test_a_restarted_sidecar_changes_nothing(gateway: Gateway, pods: Pods) -> None:
    await pods.http("r1", "127.0.0.2", HTTP)
    await pods.http("r2", "127.0.0.3", HTTP)
    gateway.cluster.put(*serving("r1", "127.0.0.2"))
    await gateway.until_applied("risk/churn", 1)
    before = (await gateway.observed())["envoyStartTime"]
    statuses: list[int] = []
    stopping = asyncio.Event()

    async def load() -> None:
        while not stopping.is_set():
            statuses.append((await gateway.call("churn.risk"))[0])

    async with asyncio.TaskGroup() as clients:
        clients.create_task(load())
        for _ in range(3):
            await gateway.stop_sidecar()
            gateway.start_sidecar()
            await gateway.until_applied("risk/churn", 1)
        stopping.set()
    assert set(statuses) == {200}
    assert (await gateway.observed())["envoyStartTime"] == before
    gateway.cluster.put(*serving("r2", "127.0.0.3", traffic_generation=2))
    await gateway.until_applied("risk/churn", 2)
    assert (await gateway.call("churn.risk"))[1]["revision"] == "r2"


async def test_an_outage_of_the_api_changes_nothing(gateway: Gateway, pods: Pods) -> None:
    await pods.http("r1", "127.0.0.2", HTTP)
    gateway.cluster.put(*serving("r1", "127.0.0.2"))
    await gateway.until_applied("risk/churn", 1)
    gateway.cluster.go_down()
    assert (await gateway.call("churn.risk"))[0] == 200
    assert await gateway.ready()


class TestSnapshot:
    """The pod starts while the API is out."""

    @pytest.fixture(autouse=True)
    def _impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(controller, "SNAPSHOT_AFTER_SECONDS", 0.2)
        monkeypatch.setattr(snapshot, "SNAPSHOT_EVERY_SECONDS", 0.05)

    async def test_serves_what_was_applied_last_and_catches_up(self, tmp_path: Path, pods: Pods) -> None:
        await pods.http("r1", "127.0.0.2", HTTP)
        await pods.http("r2", "127.0.0.3", HTTP)
        cluster = ScriptedCluster()
        cluster.put(*serving("r1", "127.0.0.2"), inference_service("risk", "doomed", {"r9": 100}))
        async with gateway_pod(tmp_path, cluster) as first:
            await first.until_applied("risk/churn", 1)

            async def written() -> bool:
                return first.run.snapshot.exists() and b"doomed" in first.run.snapshot.read_bytes()

            await until("the snapshot is written", written)
        cluster.down = True
        async with gateway_pod(tmp_path, cluster) as second:
            await second.until_ready()
            assert (await second.call("churn.risk"))[1]["revision"] == "r1"
            cluster.down = False
            cluster.put(*serving("r2", "127.0.0.3", traffic_generation=2))
            cluster.forget("risk", "doomed")
            await second.until_applied("risk/churn", 2)
            assert (await second.call("churn.risk"))[1]["revision"] == "r2"
            assert (await second.call("doomed.risk"))[0] == 421

    async def test_without_one_the_gateway_is_not_ready(self, tmp_path: Path) -> None:
        cluster = ScriptedCluster()
        cluster.down = True
        async with gateway_pod(tmp_path, cluster) as gateway:
            url = f"http://127.0.0.1:{gateway.health_port}/readyz"

            async def answers() -> str:
                try:
                    async with gateway.client.get(url) as response:
                        assert response.status == 503
                        return await response.text()
                except aiohttp.ClientError:
                    return ""

            assert "waiting for the API server" in await until("the sidecar answers", answers)
            cluster.down = False
            await gateway.until_ready()

    async def test_a_broken_one_is_no_snapshot(self, tmp_path: Path) -> None:
        (tmp_path / "snapshot.json").write_text('[{"service": ')
        async with gateway_pod(tmp_path) as gateway:
            await gateway.until_ready()


async def test_a_drain_under_load_loses_no_request(gateway: Gateway, pods: Pods) -> None:
    """Keep-alive and new connections, no client retries; the cluster leads both elsewhere in the end."""
    await pods.http("r1", "127.0.0.2", HTTP)
    gateway.cluster.put(*serving("r1", "127.0.0.2"))
    await gateway.until_applied("risk/churn", 1)
    statuses: list[int] = []
    is_routed_here = asyncio.Event()
    is_routed_here.set()

    async def load(*, keep_alive: bool) -> None:
        """A client whose new connections come here only while the cluster routes here."""
        url = f"http://127.0.0.1:{gateway.http_port}/?sleep=0.05"
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=not keep_alive)
        ) as session:
            may_continue = keep_alive
            while is_routed_here.is_set() or may_continue:
                async with session.get(url, headers={"Host": "churn.risk"}) as response:
                    await response.read()
                    statuses.append(response.status)
                    may_continue = keep_alive and response.headers.get("Connection") != "close"

    async with asyncio.TaskGroup() as clients:
        for number in range(8):
            clients.create_task(load(keep_alive=number % 2 == 0))
        await until("there is load", lambda: _longer_than(statuses, 20))
        times = DrainTimes(propagation=1.0, idle=3.0, longest=20.0)
        leaving = asyncio.create_task(drain(gateway.run, times, gateway.http_port))

        async def unready() -> bool:
            return not await gateway.ready()

        await until("readiness fails", unready)
        at_drain = len(statuses)
        await until("new connections are still served", lambda: _longer_than(statuses, at_drain + 20))
        is_routed_here.clear()
        outcome = await leaving
    assert outcome.startswith("drained after")
    assert set(statuses) == {200}


async def _longer_than(items: list[int], count: int) -> bool:
    return len(items) > count


async def test_a_drain_waits_for_long_requests_up_to_its_bound(gateway: Gateway, pods: Pods) -> None:
    await pods.http("r1", "127.0.0.2", HTTP)
    gateway.cluster.put(*serving("r1", "127.0.0.2"))
    await gateway.until_applied("risk/churn", 1)
    slow = asyncio.create_task(gateway.call("churn.risk", "/?sleep=2"))
    await asyncio.sleep(0)
    times = DrainTimes(propagation=0.3, quiet=0.1, idle=0.1, longest=0.8, poll=0.05)
    outcome = await drain(gateway.run, times, gateway.http_port)
    assert outcome.startswith("gave up after")
    assert outcome.endswith("requests: 1, connections: 1, not accepted yet: 0")
    outcome = await drain(gateway.run, replace(times, longest=20.0), gateway.http_port)
    assert outcome.startswith("drained after")
    assert (await slow)[0] == 200


async def test_a_drain_serves_late_clients_and_waits_for_no_probe(gateway: Gateway, pods: Pods) -> None:
    """News of the drain comes after `idle`; a load balancer goes on asking for the health meanwhile."""
    await pods.http("r1", "127.0.0.2", HTTP)
    gateway.cluster.put(*serving("r1", "127.0.0.2"))
    await gateway.until_applied("risk/churn", 1)
    times = DrainTimes(propagation=0.1, quiet=2.0, idle=0.2, longest=60.0, poll=0.05)
    statuses: list[int] = []
    probes: list[int] = []
    stopped = asyncio.Event()

    async def ask(host: str, answers: list[int], until_then: Callable[[], bool]) -> None:
        """One new connection after the other, as long as the gateway is there."""
        url = f"http://127.0.0.1:{gateway.http_port}/"
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
            while not until_then():
                async with session.post(url, headers={"Host": host}) as response:
                    answers.append(response.status)
                await asyncio.sleep(0.02)

    begun = time.monotonic()
    async with asyncio.TaskGroup() as clients:
        clients.create_task(ask("10.1.2.3", probes, stopped.is_set))
        leaving = asyncio.create_task(drain(gateway.run, times, gateway.http_port))
        await ask("churn.risk", statuses, lambda: time.monotonic() - begun > 1)
        assert not leaving.done()
        outcome = await leaving
        stopped.set()
    await gateway.close()
    assert outcome.startswith("drained after")
    assert set(statuses) == {200}
    assert probes[-1] == 503
    assert set(probes) <= {200, 503}, "the first probes come before the drain"


async def test_a_drain_does_not_take_a_busy_envoy_for_one_that_is_gone(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "TIMEOUT", aiohttp.ClientTimeout(total=0.2))
    await gateway.until_ready()
    assert gateway.envoy is not None
    gateway.envoy.send_signal(signal.SIGSTOP)
    times = DrainTimes(longest=300.0, propagation=0.0, quiet=0.0, poll=0.05)
    leaving = asyncio.create_task(drain(gateway.run, times, gateway.http_port))
    await asyncio.sleep(1)
    assert not leaving.done()
    gateway.envoy.send_signal(signal.SIGCONT)
    assert (await leaving).startswith("drained after")


async def test_a_drain_without_envoy_ends_at_once(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path, ScriptedCluster())
    assert (await drain(gateway.run, DrainTimes(longest=300.0))).startswith("Envoy does not run")
    await gateway.close()


async def test_a_new_envoy_is_not_draining(gateway: Gateway) -> None:
    await gateway.until_ready()
    await drain(gateway.run, DrainTimes(propagation=0.0, idle=0.0, longest=1.0))
    assert not await gateway.ready()
    await gateway.kill_envoy()
    await gateway.start_envoy()
    await gateway.until_ready()


async def test_start_with_many_services(
    tmp_path: Path, pods: Pods, record_property: Callable[[str, object], None]
) -> None:
    count = 200
    await pods.http("r1", "127.0.0.2", HTTP)
    cluster = ScriptedCluster()
    for n in range(count):
        cluster.put(
            endpoint_slice(
                "risk", f"s{n}", f"s{n}-r1", [("127.0.0.2", "ready")], {"http": HTTP, "grpc": HTTP}
            ),
            inference_service("risk", f"s{n}", {f"s{n}-r1": 100}),
        )
    async with gateway_pod(tmp_path, cluster) as gateway:
        begun = time.monotonic()
        await gateway.until_ready()
        record_property("ready_after_seconds", round(time.monotonic() - begun, 2))
        assert time.monotonic() - begun < 15
        observed = await gateway.observed()
        assert len(observed["services"]) == count
        assert all(state["applied"] for state in observed["services"].values())
        assert (await gateway.call(f"s{count - 1}.risk"))[0] == 200
