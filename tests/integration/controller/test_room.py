"""Rollouts on the real API server, in a cluster that is full."""

from functools import partial
from typing import Any

import pytest
from tailbound.kube.protocol import Object
from tailbound.kube.resources import CONTROLLER_REVISIONS, DEPLOYMENTS, INFERENCE_SERVICES

from tests.integration.controller.environment import Environment
from tests.integration.controller.nodes import kubelet
from tests.integration.controller.services import (
    CANARY,
    GOOD,
    NEW_MODEL,
    SLA,
    condition,
    is_ready,
    rollout_of,
    weights_of,
)

PODS = 3


async def begun(environment: Environment, capacity: str, **rollout: Any) -> None:
    """A service that serves with as many pods as there is room for, and whose spec was just changed."""
    for gateway in environment.gateways:
        gateway.answers = {"r1": GOOD, "r2": GOOD}
    spec = {**CANARY, "capacity": capacity, **rollout}
    await environment.create("churn", sla=SLA, rollout=spec, scaling={"min": PODS})
    async with environment.running():
        await environment.until_service("churn", is_ready, "Ready")
        await environment.until_service("churn", lambda it: condition(it, "Promoted").get("status") == "True")
    await environment.edit("churn", model=NEW_MODEL)


def promoted(service: Object) -> bool:
    return rollout_of(service).get("state") == "Promoted" and bool(rollout_of(service).get("from"))


async def test_surge_waits_for_room_and_goes_on_when_it_comes(environment: Environment) -> None:
    async with kubelet(environment, PODS) as room:
        await begun(environment, "surge", progressDeadline="10s")
        async with environment.running():
            service = await environment.until_service(
                "churn", lambda it: rollout_of(it).get("reason") == "QuotaExceeded", "the want of room"
            )
            told = rollout_of(service)
            assert "exceeded quota: devices; a pod needs" in told["message"]
            assert weights_of(service) == {"r1": 100}
            room.places = 2 * PODS
            await environment.until_service("churn", promoted, "the promotion")


@pytest.mark.parametrize("capacity", ["inPlace", "auto"])
async def test_in_place_needs_no_more_room(environment: Environment, capacity: str) -> None:
    pods: list[tuple[int, ...]] = []

    async def one_left() -> bool:
        found = await environment.children(DEPLOYMENTS, "churn")
        pods.append(tuple(deployment["spec"]["replicas"] for deployment in found))
        return promoted(await environment.service("churn")) and len(found) == 1

    async with kubelet(environment, PODS):
        await begun(environment, capacity)
        async with environment.running():
            await environment.until("the promotion, and the end of the old pods", one_left)
            service = await environment.until_service("churn", is_ready, "Ready")
    assert weights_of(service) == {"r2": 100}
    assert pods[-1] == (PODS,)
    assert min(most[0] for most in pods if len(most) > 1) == 1, "the stable one kept a pod to return to"


async def replaced(environment: Environment, capacity: str) -> None:
    """The second revision serves for good, with as many pods as there is room for."""
    await begun(environment, capacity, strategy="blueGreen", steps=[], progressDeadline="10s")
    async with environment.running():
        await environment.until(
            "the promotion, and the end of the old pods", partial(only, environment, "r2")
        )


async def only(environment: Environment, number: str) -> bool:
    """One revision has all requests, and nothing else has a pod."""
    service = await environment.service("churn")
    fleet = await pods_of(environment)
    return weights_of(service) == {number: 100} and fleet == {number: PODS}


async def pods_of(environment: Environment, name: str = "churn") -> dict[str, int]:
    """Pods that each revision is to have."""
    found = await environment.children(DEPLOYMENTS, name)
    return {each["metadata"]["name"].split("-")[-2]: each["spec"]["replicas"] for each in found}


@pytest.mark.parametrize("capacity", ["inPlace", "auto", "surge"])
async def test_a_revision_that_dies_later_makes_way_for_the_one_before(
    environment: Environment, capacity: str
) -> None:
    async with kubelet(environment, PODS) as room:
        room.places = 2 * PODS
        await replaced(environment, capacity)
        room.places = PODS
        room.dead = {"r2"}
        async with environment.running():
            await environment.until("the return", partial(only, environment, "r1"))
            await environment.until_service(
                "churn", lambda it: rollout_of(it).get("reason") == "Lost", "the reason"
            )


async def test_a_manual_return_changes_places_one_after_the_other(environment: Environment) -> None:
    async with kubelet(environment, 2 * PODS) as room:
        await replaced(environment, "auto")
        room.places = PODS
        old = min(
            each["metadata"]["name"] for each in await environment.children(CONTROLLER_REVISIONS, "churn")
        )

        def asked(stored: Object) -> Object:
            annotations = {"tailbound.dev/rollback-to": old}
            return {**stored, "metadata": {**stored["metadata"], "annotations": annotations}}

        async def returned() -> bool:
            fleet = await pods_of(environment)
            assert fleet.get("r2", 1) >= 1, "the last pod stays until its requests have gone"
            return await only(environment, "r1")

        await environment.replace(INFERENCE_SERVICES, "churn", asked)
        async with environment.running():
            await environment.until("the return", returned)
            assert rollout_of(await environment.service("churn"))["reason"] == "RolledBackManually"
