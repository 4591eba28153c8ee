"""Changes under way: how fast they are applied, and what a bad one may not do."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tailbound.gateway import controller
from tailbound.gateway.admin import EnvoyAdmin
from tailbound.gateway.resources import Bundle
from tailbound.gateway.routes import bundle_of
from tailbound.kube.resources import ENDPOINT_SLICES, INFERENCE_SERVICES
from tailbound.traffic.model import Route

from e2e.cluster.ports import free_port
from tests.integration.gateway.gateway_lab import Gateway, Pods, gateway_pod, refused, until
from tests.integration.gateway.scripted_cluster import OTHER_TOKEN, endpoint_slice, inference_service

HTTP = free_port()
SERVICES = 50


def slice_of(revision: str, *addresses: str, service: str = "churn") -> Any:
    return endpoint_slice("risk", service, revision, [(a, "ready") for a in addresses], {"http": HTTP})


async def stats_of(gateway: Gateway) -> list[str]:
    """Names of all stats that Envoy holds."""
    async with EnvoyAdmin(gateway.run.admin_socket) as admin:
        return list(await admin.gauges(""))


def percentile_99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]


async def test_weights_and_endpoints_are_applied_within_a_second(
    gateway: Gateway, pods: Pods, record_property: Callable[[str, object], None]
) -> None:
    for revision, address in (("r1", "127.0.0.2"), ("r2", "127.0.0.3")):
        await pods.http(revision, address, HTTP)
    bystanders = [inference_service("risk", f"s{n}", {f"s{n}-r1": 100}) for n in range(50)]
    gateway.cluster.put(*bystanders, slice_of("r1", "127.0.0.2"), slice_of("r2", "127.0.0.3"))
    gateway.cluster.put(inference_service("risk", "churn", {"r1": 100}))
    await gateway.until_applied("risk/churn", 1)

    async def served(revision: str, pod: str) -> float:
        begun = time.monotonic()

        async def check() -> bool:
            body = (await gateway.call("churn.risk"))[1]
            return bool((body.get("revision"), body.get("pod")) == (revision, pod))

        await until(f"{revision} at {pod} serves", check)
        return (time.monotonic() - begun) * 1000

    weights_ms, endpoints_ms = [], []
    for turn in range(2, 42):
        revision, pod = ("r2", "127.0.0.3") if turn % 2 == 0 else ("r1", "127.0.0.2")
        gateway.cluster.put(inference_service("risk", "churn", {revision: 100}, traffic_generation=turn))
        weights_ms.append(await served(revision, pod))
        await gateway.until_applied("risk/churn", turn)
    await pods.http("r1", "127.0.0.4", HTTP)
    for turn in range(40):
        pod = "127.0.0.4" if turn % 2 == 0 else "127.0.0.2"
        gateway.cluster.put(slice_of("r1", pod))
        endpoints_ms.append(await served("r1", pod))
    record_property("weight_p99_ms", round(percentile_99(weights_ms)))
    record_property("endpoint_p99_ms", round(percentile_99(endpoints_ms)))
    assert percentile_99(weights_ms) < 1000
    assert percentile_99(endpoints_ms) < 1000


async def test_a_rollover_under_load_loses_no_request(gateway: Gateway, pods: Pods) -> None:
    """Keep-alive and new connections, no client retries; the old pods go once the new route is applied."""
    for revision, address in (("r1", "127.0.0.2"), ("r2", "127.0.0.3")):
        await pods.http(revision, address, HTTP)
    gateway.cluster.put(slice_of("r1", "127.0.0.2"), inference_service("risk", "churn", {"r1": 100}))
    await gateway.until_applied("risk/churn", 1)
    statuses: list[int] = []
    stopping = asyncio.Event()

    async def load(*, keep_alive: bool) -> None:
        connector = aiohttp.TCPConnector(force_close=not keep_alive)
        url = f"http://127.0.0.1:{gateway.http_port}/?sleep=0.02"
        async with aiohttp.ClientSession(connector=connector) as session:
            while not stopping.is_set():
                async with session.get(url, headers={"Host": "churn.risk"}) as response:
                    await response.read()
                    statuses.append(response.status)

    async with asyncio.TaskGroup() as clients:
        for number in range(8):
            clients.create_task(load(keep_alive=number % 2 == 0))
        for turn in range(2, 22):
            new, old = ("r2", "r1") if turn % 2 == 0 else ("r1", "r2")
            gateway.cluster.put(slice_of(new, "127.0.0.3" if new == "r2" else "127.0.0.2"))
            gateway.cluster.put(inference_service("risk", "churn", {new: 100}, traffic_generation=turn))
            await gateway.until_applied("risk/churn", turn)
            gateway.cluster.remove(ENDPOINT_SLICES, "risk", f"{old}-slice")
        stopping.set()
    assert len(statuses) > 100
    assert set(statuses) == {200}


async def test_requests_under_way_outlive_their_revision(gateway: Gateway, pods: Pods) -> None:
    for revision, address in (("r1", "127.0.0.2"), ("r2", "127.0.0.3")):
        await pods.http(revision, address, HTTP)
    gateway.cluster.put(slice_of("r1", "127.0.0.2"), slice_of("r2", "127.0.0.3"))
    gateway.cluster.put(inference_service("risk", "churn", {"r1": 100}))
    await gateway.until_applied("risk/churn", 1)
    slow = asyncio.create_task(gateway.call("churn.risk", "/?sleep=1"))

    async def under_way() -> bool:
        metrics = f"http://127.0.0.1:{gateway.metrics_port}/metrics"
        async with gateway.client.get(metrics) as response:
            name = 'envoy_cluster_upstream_rq_active{envoy_cluster_name="risk/churn/r1/http"} 1'
            return name in await response.text()

    await until("the request is under way", under_way)
    gateway.cluster.put(inference_service("risk", "churn", {"r2": 100}, traffic_generation=2))
    await gateway.until_applied("risk/churn", 2)
    gateway.cluster.remove(ENDPOINT_SLICES, "risk", "r1-slice")
    assert (await gateway.call("churn.risk"))[1]["revision"] == "r2"
    status, body, _ = await slow
    assert (status, body["revision"]) == (200, "r1")


async def test_a_deleted_service_is_forgotten_until_it_is_applied_again(gateway: Gateway, pods: Pods) -> None:
    await pods.http("r1", "127.0.0.2", HTTP)
    gateway.cluster.put(slice_of("r1", "127.0.0.2"), inference_service("risk", "churn", {"r1": 100}))
    await gateway.until_applied("risk/churn", 1)
    gateway.cluster.remove(INFERENCE_SERVICES, "risk", "churn")

    async def unknown() -> bool:
        return (await gateway.call("churn.risk"))[0] == 421

    await until("the host is unknown", unknown)
    assert (await gateway.observed())["services"] == {}
    # The pods of an orphaned service are still there when its successor is applied.
    gateway.cluster.put(inference_service("risk", "churn", {"r1": 100}, created="2026-02-01T00:00:00Z"))
    await gateway.until_applied("risk/churn", 1)
    assert (await gateway.call("churn.risk"))[1]["revision"] == "r1"


async def test_counters_of_deleted_services_leave_envoy(
    tmp_path: Path, pods: Pods, record_property: Callable[[str, object], None]
) -> None:
    await pods.http("r1", "127.0.0.2", HTTP)
    names = [f"s{n}" for n in range(SERVICES)]
    async with gateway_pod(tmp_path, eviction_seconds=5) as gateway:
        gateway.cluster.put(slice_of("r1", "127.0.0.2"), inference_service("risk", "churn", {"r1": 100}))
        await gateway.until_applied("risk/churn", 1)
        before = set(await stats_of(gateway))
        gateway.cluster.put(*(slice_of(f"{name}-r1", "127.0.0.2", service=name) for name in names))
        gateway.cluster.put(*(inference_service("risk", name, {f"{name}-r1": 100}) for name in names))
        for name in names:
            await gateway.until_applied(f"risk/{name}", 1)
            assert (await gateway.call(f"{name}.risk"))[0] == 200
        record_property("stats_of_the_services", len(set(await stats_of(gateway)) - before))
        for name in names:
            gateway.cluster.remove(INFERENCE_SERVICES, "risk", name)
            gateway.cluster.remove(ENDPOINT_SLICES, "risk", f"{name}-r1-slice")

        async def left() -> bool:
            """What is used goes on counting meanwhile."""
            await gateway.infer("churn.risk")
            return not [stat for stat in await stats_of(gateway) if any(f"{n}-r1" in stat for n in names)]

        await until("no stat names a deleted service", left)
        counted = (await gateway.observed("risk/churn"))["services"]["risk/churn"]["counters"]["r1"]["good"]
        await gateway.infer("churn.risk")
        again = (await gateway.observed("risk/churn"))["services"]["risk/churn"]["counters"]["r1"]["good"]
        assert again == counted + 1 > 2


async def test_a_hand_written_traffic_status_harms_its_own_service_only(gateway: Gateway, pods: Pods) -> None:
    for revision, address in (("r1", "127.0.0.2"), ("f1", "127.0.0.3")):
        await pods.http(revision, address, HTTP)
    gateway.cluster.put(slice_of("r1", "127.0.0.2"), slice_of("f1", "127.0.0.3", service="fraud"))
    gateway.cluster.put(
        inference_service("risk", "churn", {"r1": 100}), inference_service("risk", "fraud", {"f1": 100})
    )
    await gateway.until_applied("risk/churn", 1)
    await gateway.until_applied("risk/fraud", 1)
    # Its weights are wrong; and a neighbour's revision is no business of this service.
    for generation, weights in ((2, {"r1": 60, "f1": 60}), (3, {"f1": 100})):
        gateway.cluster.put(inference_service("risk", "churn", weights, traffic_generation=generation))
        gateway.cluster.put(
            inference_service("risk", "fraud", {"f1": 100}, traffic_generation=generation, timeout="3s")
        )
        await gateway.until_applied("risk/fraud", generation)
        assert (await gateway.call("churn.risk"))[1]["revision"] == "r1"
        assert (await gateway.call("fraud.risk"))[1]["revision"] == "f1"
        if generation == 2:
            rejected = (await gateway.observed("risk/churn"))["services"]["risk/churn"]["rejected"]
            assert rejected["trafficGeneration"] == 2
            assert "the weights add up to 120" in rejected["message"]


async def test_what_envoy_refuses_is_found_among_many(
    gateway: Gateway, pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A response with one bad route is refused as a whole; its neighbours must be applied all the same."""

    def poisoned(route: Route) -> Bundle:
        bundle = bundle_of(route)
        bad = route.service.name == "s7" and route.traffic_generation == 2
        return refused(bundle) if bad else bundle

    monkeypatch.setattr(controller, "bundle_of", poisoned)
    await pods.http("r1", "127.0.0.2", HTTP)
    for n in range(20):
        gateway.cluster.put(
            endpoint_slice("risk", f"s{n}", f"s{n}-r1", [("127.0.0.2", "ready")], {"http": HTTP})
        )
        gateway.cluster.put(inference_service("risk", f"s{n}", {f"s{n}-r1": 100}))
    for n in range(20):
        await gateway.until_applied(f"risk/s{n}", 1)
    for n in range(20):
        gateway.cluster.put(
            inference_service("risk", f"s{n}", {f"s{n}-r1": 100}, traffic_generation=2, timeout="3s")
        )
    for n in set(range(20)) - {7}:
        await gateway.until_applied(f"risk/s{n}", 2)

    async def rejected() -> Any:
        return (await gateway.observed("risk/s7"))["services"]["risk/s7"]["rejected"]

    found = await until("the culprit is known", rejected)
    assert found["trafficGeneration"] == 2
    assert "s7" in found["message"]
    observed = (await gateway.observed())["services"]
    assert observed["risk/s7"]["applied"]["trafficGeneration"] == 1
    assert [name for name, state in observed.items() if state["rejected"]] == ["risk/s7"]
    assert {(await gateway.call(f"s{n}.risk"))[0] for n in range(20)} == {200}


async def test_hosts_of_others_are_denied(gateway: Gateway, pods: Pods) -> None:
    await pods.http("r1", "127.0.0.2", HTTP)
    gateway.cluster.put(
        slice_of("r1", "127.0.0.2"),
        inference_service("risk", "churn", {"r1": 100}, hosts=["a.example.com"]),
        inference_service(
            "evil", "thief", {"r1": 100}, created="2026-05-01T00:00:00Z", hosts=["a.example.com"]
        ),
    )
    await gateway.until_applied("risk/churn", 1)
    await gateway.until_applied("evil/thief", 1)
    observed = (await gateway.observed())["services"]
    assert observed["evil/thief"]["applied"]["deniedHosts"] == ["a.example.com"]
    assert observed["risk/churn"]["applied"]["deniedHosts"] == []
    assert (await gateway.call("a.example.com"))[1]["revision"] == "r1"


async def test_observed_is_for_the_operator_only(gateway: Gateway) -> None:
    await gateway.until_ready()
    for authorization, status in (
        (None, 401),
        ("Basic abc", 401),
        ("Bearer unknown", 401),
        (f"Bearer {OTHER_TOKEN}", 403),
        (f"Bearer {gateway.token}", 200),
    ):
        found, body = await gateway.status_of_token(authorization)
        assert found == status
        assert ("error" in json.loads(body)) is (status != 200)
    reviews = gateway.cluster.reviews
    for _ in range(5):
        await gateway.observed()
    assert gateway.cluster.reviews == reviews


async def test_observed_contents(gateway: Gateway) -> None:
    gateway.cluster.put(inference_service("risk", "churn", {"r1": 100}, generation=4, traffic_generation=9))
    gateway.cluster.put(inference_service("risk", "fraud", None))
    await gateway.until_applied("risk/churn", 9, 4)
    everything = await gateway.observed()
    assert everything["synced"] is True
    assert everything["services"].keys() == {"risk/churn", "risk/fraud"}
    assert (await gateway.observed("risk/fraud"))["services"].keys() == {"risk/fraud"}
    assert (await gateway.observed("risk/nobody"))["services"] == {}
