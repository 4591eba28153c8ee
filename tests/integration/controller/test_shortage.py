"""Rollouts on the real API server, in a cluster that is full.

tests/unit/reconcile/test_reconcile_shortage.py has each of them for every capacity and number of pods, on a
simulated API server.
"""

from functools import partial
from typing import Any

from tailbound.kube.resources import CONTROLLER_REVISIONS, DEPLOYMENTS, INFERENCE_SERVICES
from tailbound.objects.fields import Object

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
    """A service that serves with as many pods as the nodes take, and whose spec was just changed."""
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


async def test_surge_waits_for_capacity_and_goes_on_when_it_comes(environment: Environment) -> None:
    async with kubelet(environment, PODS) as capacity:
        await begun(environment, "surge", progressDeadline="10s")
        async with environment.running():
            service = await environment.until_service(
                "churn", lambda it: rollout_of(it).get("reason") == "QuotaExceeded", "the shortage"
            )
            told = rollout_of(service)
            assert "exceeded quota: devices; a pod needs" in told["message"]
            assert weights_of(service) == {"r1": 100}
            capacity.pods = 2 * PODS
            await environment.until_service("churn", promoted, "the promotion")


async def test_in_place_needs_no_more_capacity(environment: Environment) -> None:
    pods: list[tuple[int, ...]] = []

    async def one_left() -> bool:
        found = await environment.children(DEPLOYMENTS, "churn")
        pods.append(tuple(deployment["spec"]["replicas"] for deployment in found))
        return promoted(await environment.service("churn")) and len(found) == 1

    async with kubelet(environment, PODS):
        await begun(environment, "auto")
        async with environment.running():
            await environment.until("the promotion, and the end of the old pods", one_left)
            service = await environment.until_service("churn", is_ready, "Ready")
    assert weights_of(service) == {"r2": 100}
    assert pods[-1] == (PODS,)
    assert min(most[0] for most in pods if len(most) > 1) == 1, "the stable one kept a pod to return to"


async def replaced(environment: Environment, capacity: str) -> None:
    """The second revision serves for good, with as many pods as the nodes take."""
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


async def test_a_revision_that_dies_later_makes_way_for_the_one_before(environment: Environment) -> None:
    async with kubelet(environment, PODS) as capacity:
        capacity.pods = 2 * PODS
        await replaced(environment, "surge")
        capacity.pods = PODS
        capacity.dead = {"r2"}
        async with environment.running():
            await environment.until("the return", partial(only, environment, "r1"))
            await environment.until_service(
                "churn", lambda it: rollout_of(it).get("reason") == "Lost", "the reason"
            )


async def test_a_manual_return_replaces_pods_in_place_one_after_the_other(environment: Environment) -> None:
    async with kubelet(environment, 2 * PODS) as capacity:
        await replaced(environment, "auto")
        capacity.pods = PODS
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
