"""The operator is killed before a write of each class while pods change places on full nodes."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest
from tailbound.kube.resources import CONTROLLER_REVISIONS, DEPLOYMENTS, INFERENCE_SERVICES
from tailbound.objects.fields import Object

from tests.integration.controller.environment import Environment, beside
from tests.integration.controller.kills import Moment, dies
from tests.integration.controller.nodes import kubelet
from tests.integration.controller.services import NEW_MODEL, condition, weights_of

NAME = "churn"
# Cuts are tried side by side, each in namespaces of its own.
LANES = 3
# So that no look at the API server takes the time from those who work with it.
EVERY_SECONDS = 0.2
MOMENTS = (
    Moment("apply", "Deployment"),
    Moment("replace_status", "InferenceService"),
    Moment("delete", "Deployment"),
)
ROLLOUT = {"capacity": "inPlace", "scaleDownDelay": "0s", "minStepTime": "1s", "historyLimit": 100}


async def alone(environment: Environment, number: int, pods: int) -> bool:
    """One revision has all requests and all places, and says so. On the way at most one pod is missing."""
    fleet = {
        each["metadata"]["name"].split("-")[-2]: each["spec"]["replicas"]
        for each in await environment.children(DEPLOYMENTS, NAME)
        if "deletionTimestamp" not in each["metadata"]
    }
    assert not fleet or sum(fleet.values()) >= pods - 1, fleet
    if fleet != {f"r{number}": pods}:
        return False
    service = await environment.service(NAME)
    reconciling = condition(service, "Reconciling")
    return (
        reconciling.get("status") == "False"
        and reconciling["observedGeneration"] == service["metadata"]["generation"]
        and condition(service, "TrafficApplied").get("status") == "True"
        and weights_of(service) == {f"r{number}": 100}
    )


async def change(environment: Environment, number: int) -> None:
    """The spec asks for a revision that was never there."""
    await environment.edit(NAME, model={**NEW_MODEL, "sha256": f"{number:064x}"})


async def roll_back(environment: Environment, number: int) -> None:
    """Somebody asks for a return to the first revision."""
    revisions = await environment.children(CONTROLLER_REVISIONS, NAME)
    (first,) = (each["metadata"]["name"] for each in revisions if int(each["revision"]) == 1)

    def asked(stored: Object) -> Object:
        annotations = {"tailbound.dev/rollback-to": f"{first}/{number}"}
        return {**stored, "metadata": {**stored["metadata"], "annotations": annotations}}

    await environment.replace(INFERENCE_SERVICES, NAME, asked)


@dataclass
class Enumeration:
    """Moments at which the operator dies, one after the other."""

    returns: bool
    """The operator dies in manual returns, and otherwise in rollouts."""
    pods: int
    moments: Iterator[Moment] = field(init=False)

    def __post_init__(self) -> None:
        self.moments = iter(MOMENTS)

    async def lane(self, environment: Environment) -> None:
        """One cut after the other, of one rollout after the other of the same service."""
        await environment.create(NAME, rollout=ROLLOUT, scaling={"min": self.pods})
        serving = newest = 1
        async with kubelet(environment, self.pods):
            while True:
                async with environment.running():
                    await self._until_alone(environment, serving)
                    if (moment := next(self.moments, None)) is None:
                        return
                    newest += 1
                    if self.returns:
                        await change(environment, newest)
                        await self._until_alone(environment, newest)
                serving = 1 if self.returns else newest
                await (roll_back if self.returns else change)(environment, newest)
                reached = partial(alone, environment, serving, self.pods)
                assert await dies(environment, moment, reached, EVERY_SECONDS)

    async def _until_alone(self, environment: Environment, number: int) -> None:
        reached = partial(alone, environment, number, self.pods)
        await environment.until(f"r{number} alone", reached, every=EVERY_SECONDS)


@pytest.mark.parametrize(("returns", "pods"), [(False, 3), (True, 2)], ids=["rollout", "manual-return"])
async def test_kills_while_pods_are_replaced_in_place_end_where_no_kill_ends(
    environment: Environment, returns: bool, pods: int
) -> None:
    lanes = [await beside(environment, number) for number in range(LANES)]
    enumeration = Enumeration(returns, pods)
    async with asyncio.TaskGroup() as group:
        for lane in lanes:
            group.create_task(enumeration.lane(lane))
