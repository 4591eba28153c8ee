"""Rollouts on the real API server, in a cluster that is full."""

from typing import Any

import pytest
from tailbound.kube.protocol import Object
from tailbound.kube.resources import DEPLOYMENTS

from tests.integration.controller.environment import Environment, condition, is_ready, kubelet
from tests.integration.controller.test_rollouts import CANARY, GOOD, NEW_MODEL, SLA, rollout_of, weights_of

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
            room[0] = 2 * PODS
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
