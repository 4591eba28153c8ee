"""Pods that follow the traffic, on the real API server, with a Prometheus whose answers are given."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tailbound.controller.operator import Operator
from tailbound.kube.resources import CONTROLLER_REVISIONS, DEPLOYMENTS
from tailbound.objects.fields import Object

from tests.integration.controller.audit import settled, writes_since
from tests.integration.controller.environment import Environment
from tests.integration.controller.fake_prometheus import FakePrometheus
from tests.integration.controller.nodes import kubelet, nodes
from tests.integration.controller.services import condition, is_ready

SLA = {"latency": {"p99": "500ms"}}
BOUNDS = {"min": 1, "max": 12}
PERIOD_SECONDS = 0.2
BUSY = 120.0


@pytest.fixture
async def prometheus(environment: Environment) -> AsyncIterator[FakePrometheus]:
    async with FakePrometheus(environment.namespace).running() as running:
        yield running


def operator(environment: Environment, prometheus: FakePrometheus) -> Operator:
    return environment.operator(
        prometheus_url=prometheus.url,
        scaling_period_seconds=PERIOD_SECONDS,
        unix_time=prometheus.now,
    )


def told(service: Object) -> dict[str, Any]:
    """What status.scaling says of the one revision."""
    revisions = ((service.get("status") or {}).get("scaling") or {}).get("revisions") or [{}]
    return dict(revisions[0])


def is_told(service: Object, kind: str, status: str, reason: str) -> bool:
    found = condition(service, kind)
    return (found.get("status"), found.get("reason")) == (status, reason)


async def until_told(
    environment: Environment, kind: str, status: str, reason: str, name: str = "churn"
) -> Object:
    return await environment.until_service(
        name, lambda it: is_told(it, kind, status, reason), f"{kind} {status}/{reason}"
    )


async def pods(environment: Environment) -> int:
    """spec.replicas of the only Deployment."""
    (deployment,) = await environment.children(DEPLOYMENTS, "churn")
    return int(deployment["spec"]["replicas"])


async def until_pods(environment: Environment, at_least: int, at_most: int) -> int:
    async def within() -> int | None:
        count = await pods(environment)
        return count if at_least <= count <= at_most else None

    return int(await environment.until(f"{at_least} to {at_most} pods", within))


@asynccontextmanager
async def surroundings(environment: Environment) -> AsyncIterator[None]:
    async with kubelet(environment), nodes(environment):
        yield


@asynccontextmanager
async def at_work(environment: Environment, prometheus: FakePrometheus) -> AsyncIterator[None]:
    async with surroundings(environment), environment.running(operator(environment, prometheus)):
        yield


async def serve(environment: Environment, prometheus: FakePrometheus, **scaling: Any) -> str:
    """A service that is ready; its revision, which has no traffic yet."""
    await environment.create("churn", sla=SLA, scaling={**BOUNDS, **scaling})
    service = await environment.until_service("churn", is_ready, "Ready")
    revision = str(service["status"]["stable"]["revision"])
    prometheus.rates = {revision: 0.0}
    return revision


async def test_pods_follow_the_traffic_up_and_down_and_the_status_says_why(
    environment: Environment, prometheus: FakePrometheus
) -> None:
    async with at_work(environment, prometheus):
        revision = await serve(environment, prometheus)
        await until_told(environment, "MetricsStale", "False", "MetricsFresh")
        assert await pods(environment) == 1
        prometheus.rates = {revision: BUSY}
        high = await until_pods(environment, 4, 12)
        service = await environment.until_service(
            "churn", lambda it: told(it).get("replicas", 0) >= high and "capacityPerSecond" in told(it)
        )
        figures = told(service)
        assert figures["arrivalsPerSecond"] == pytest.approx(BUSY, rel=0.1)
        assert figures["revision"] == revision
        assert is_told(service, "SLAMet", "True", "WithinTarget")
        prometheus.rates = {revision: BUSY / 10}
        await until_pods(environment, 1, high // 2)


async def test_one_of_two_gateways_that_prometheus_has_lost_is_no_less_traffic(
    environment: Environment, prometheus: FakePrometheus
) -> None:
    async with at_work(environment, prometheus):
        revision = await serve(environment, prometheus)
        prometheus.rates = {revision: BUSY}
        await until_pods(environment, 4, 12)
        await until_told(environment, "MetricsStale", "False", "MetricsFresh")
        high = await pods(environment)
        prometheus.gateways, prometheus.rates = 1, {revision: BUSY / 10}
        service = await until_told(environment, "MetricsStale", "True", "MetricsMissing")
        assert "1 of 2 gateways" in condition(service, "MetricsStale")["message"]
        assert await pods(environment) >= high


async def test_an_operator_that_is_killed_and_comes_back_keeps_the_pods_and_what_it_learned(
    environment: Environment, prometheus: FakePrometheus
) -> None:
    async with surroundings(environment):
        async with environment.killed(operator(environment, prometheus)):
            revision = await serve(environment, prometheus)
            prometheus.rates = {revision: BUSY}
            high = await until_pods(environment, 4, 12)

            async def learned() -> bool:
                (record,) = await environment.children(CONTROLLER_REVISIONS, "churn")
                return "tailbound.dev/capacity" in record["metadata"]["annotations"]

            await environment.until("learned capacity", learned)
        high = await pods(environment)
        async with environment.running(operator(environment, prometheus)):
            prometheus.rates = {revision: BUSY * 1.5}
            await until_pods(environment, high + 1, 12)


async def test_an_idle_fleet_is_looked_at_and_never_written(
    environment: Environment, prometheus: FakePrometheus
) -> None:
    names = [f"idle-{number}" for number in range(4)]
    async with surroundings(environment):
        async with environment.running(operator(environment, prometheus)):
            for name in names:
                await environment.create(name, sla=SLA, scaling=BOUNDS)
            for name in names:
                await until_told(environment, "Scheduled", "True", "Scheduled", name)
                await until_told(environment, "MetricsStale", "True", "MetricsMissing", name)
            await settled(environment)
        log = environment.control_plane.audit_log
        async with environment.running(running := operator(environment, prometheus)):
            await environment.until_leading(running)
            for name in names:
                await environment.until_service(name, is_ready, "Ready")
            offset = log.stat().st_size
            began = prometheus.now()

            async def time_passed() -> bool:
                return prometheus.now() > began + 120

            await environment.until("twelve ticks", time_passed)
            assert writes_since(log, offset) == []
