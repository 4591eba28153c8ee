"""Rollouts on the real API server, in a cluster that is full."""

from functools import partial
from typing import Any, cast

import pytest
from tailbound.kube.protocol import Cluster, Object
from tailbound.kube.resources import DEPLOYMENTS

from tests.integration.controller.environment import Cut, Environment, condition, is_ready, kubelet
from tests.integration.controller.test_rollouts import (
    CANARY,
    GOOD,
    MOST_WRITES,
    NEW_MODEL,
    SLA,
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


async def test_every_kill_of_a_rollout_in_place_ends_with_all_pods_of_the_new_revision(
    environment: Environment,
) -> None:
    rollout = {"capacity": "inPlace", "scaleDownDelay": "0s", "minStepTime": "1s"}

    async def over(name: str) -> bool:
        service = await environment.service(name)
        # Whoever has requests to answer has a pod: the last one is never given up.
        fleet = {
            deployment["metadata"]["name"]: deployment["spec"]["replicas"]
            for deployment in await environment.children(DEPLOYMENTS, name)
            if "deletionTimestamp" not in deployment["metadata"]
        }
        assert sum(fleet.values()) >= PODS - 1, fleet
        newest = list(weights_of(service)) == ["r2"] and is_promoted(service)
        return newest and list(fleet.values()) == [PODS]

    async def run_until_cut(name: str, writes: int) -> bool:
        """True if the operator died before it was finished."""
        cuts: list[Cut] = []

        def wrap(inner: Cluster) -> Cluster:
            cuts.append(Cut(inner, writes))
            return cast(Cluster, cuts[-1])

        async def dead_or_over() -> bool:
            return any(cut.dead.is_set() for cut in cuts) or await over(name)

        async with environment.killed(environment.operator(wrap=wrap)):
            await environment.until(f"the end of {name}", dead_or_over)
        return any(cut.dead.is_set() for cut in cuts)

    async with kubelet(environment):
        for writes in range(2 * MOST_WRITES):
            name = f"churn-{writes}"
            await environment.create(name, rollout=rollout, scaling={"min": PODS})
            async with environment.running():
                await environment.until_service(name, is_promoted)
            await environment.edit(name, model=NEW_MODEL)
            died = await run_until_cut(name, writes)
            async with environment.running():
                await environment.until(f"the end of {name}", partial(over, name))
            if not died:
                break
        else:
            pytest.fail(f"still writing after {2 * MOST_WRITES} writes")
    assert writes > 10


def is_promoted(service: Object) -> bool:
    return is_ready(service) and condition(service, "Promoted").get("status") == "True"
