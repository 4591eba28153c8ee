"""The operator is killed before a write of each class while pods change places on full nodes."""

import asyncio
from functools import partial

from tailbound.kube.resources import DEPLOYMENTS

from tests.integration.controller.environment import Environment, beside
from tests.integration.controller.kills import Moment, dies
from tests.integration.controller.nodes import kubelet
from tests.integration.controller.services import NEW_MODEL, condition, weights_of

NAME = "churn"
PODS = 3
# So that no look at the API server takes the time from those who work with it.
EVERY_SECONDS = 0.2
MOMENTS = (
    Moment("apply", "Deployment"),
    Moment("replace_status", "InferenceService"),
    Moment("delete", "Deployment"),
)
ROLLOUT = {"capacity": "inPlace", "scaleDownDelay": "0s", "minStepTime": "1s"}


async def alone(environment: Environment, number: int) -> bool:
    """One revision has all requests and all places, and says so. On the way at most one pod is missing."""
    fleet = {
        each["metadata"]["name"].split("-")[-2]: each["spec"]["replicas"]
        for each in await environment.children(DEPLOYMENTS, NAME)
        if "deletionTimestamp" not in each["metadata"]
    }
    assert not fleet or sum(fleet.values()) >= PODS - 1, fleet
    if fleet != {f"r{number}": PODS}:
        return False
    service = await environment.service(NAME)
    reconciling = condition(service, "Reconciling")
    return (
        reconciling.get("status") == "False"
        and reconciling["observedGeneration"] == service["metadata"]["generation"]
        and condition(service, "TrafficApplied").get("status") == "True"
        and weights_of(service) == {f"r{number}": 100}
    )


async def until_alone(environment: Environment, number: int) -> None:
    """Let an operator that nobody kills bring the service to this revision."""
    async with environment.running():
        reached = partial(alone, environment, number)
        await environment.until(f"r{number} alone", reached, every=EVERY_SECONDS)


async def killed_at(environment: Environment, moment: Moment) -> None:
    """A rollout whose operator dies at this moment, and another operator that ends it."""
    await environment.create(NAME, rollout=ROLLOUT, scaling={"min": PODS})
    async with kubelet(environment, PODS):
        await until_alone(environment, 1)
        await environment.edit(NAME, model=NEW_MODEL)
        assert await dies(environment, moment, partial(alone, environment, 2), EVERY_SECONDS)
        await until_alone(environment, 2)


async def test_kills_while_pods_are_replaced_in_place_end_where_no_kill_ends(
    environment: Environment,
) -> None:
    """Side by side, each in namespaces of its own."""
    async with asyncio.TaskGroup() as group:
        for number, moment in enumerate(MOMENTS):
            group.create_task(killed_at(await beside(environment, number), moment))
