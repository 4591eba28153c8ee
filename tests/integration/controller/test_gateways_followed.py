"""Gateways are read while something awaits them, and one that stays behind is replaced."""

import asyncio

import pytest
from tailbound.controller import stale_gateways
from tailbound.kube.resources import EVENTS, PODS

from tests.integration.controller.environment import Environment
from tests.integration.controller.nodes import kubelet
from tests.integration.controller.services import condition, is_ready


async def test_traffic_is_not_applied_while_a_ready_gateway_has_not_acknowledged(
    environment: Environment,
) -> None:
    behind = environment.gateways[1]
    behind.acknowledges = False
    async with environment.running(), kubelet(environment):
        await environment.create("churn")
        service = await environment.until_service(
            "churn",
            lambda each: behind.name in condition(each, "TrafficApplied").get("message", ""),
            "word of the gateway that is behind",
        )
        assert condition(service, "TrafficApplied")["reason"] == "WaitingForGateway"
        behind.acknowledges = True
        await environment.until_service("churn", is_ready, "Ready")


async def test_gateway_that_stays_behind_is_deleted_with_an_event_and_the_other_one_is_not(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stale_gateways, "STALE_SECONDS", 1.0)
    behind = environment.gateways[1]
    behind.acknowledges = False
    async with environment.running(), kubelet(environment):
        await environment.create("churn")
        await environment.until_service("churn", is_ready, "Ready without the stale gateway")
        pods = (await environment.cluster.list(PODS, environment.system)).items
        assert [pod["metadata"]["name"] for pod in pods] == [environment.gateways[0].name]

        async def told() -> list[str]:
            listing = await environment.cluster.list(EVENTS, environment.namespace)
            return [event["message"] for event in listing.items if event["reason"] == "GatewayReplaced"]

        notes = await environment.until("the Event", told)
        assert len(notes) == 1
        assert behind.name in notes[0]


async def test_no_gateway_is_deleted_while_none_has_acknowledged(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stale_gateways, "STALE_SECONDS", 0.5)
    for gateway in environment.gateways:
        gateway.acknowledges = False
    async with environment.running(), kubelet(environment):
        await environment.create("churn")
        await environment.until_service(
            "churn",
            lambda each: condition(each, "TrafficApplied").get("reason") == "WaitingForGateway",
            "WaitingForGateway",
        )
        await asyncio.sleep(3)
        assert len((await environment.cluster.list(PODS, environment.system)).items) == 2
