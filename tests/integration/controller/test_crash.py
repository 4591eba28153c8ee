"""The operator is killed between any two writes, loses its memory, and reaches the same end all the same."""

import asyncio
from functools import partial
from typing import Any

import pytest
from tailbound.api.names import PROMOTED_AT_ANNOTATION, STABLE_ANNOTATION
from tailbound.kube.protocol import Object
from tailbound.kube.resources import CONTROLLER_REVISIONS, DEPLOYMENTS, DISRUPTION_BUDGETS, SERVICES

from tests.integration.controller.environment import Environment
from tests.integration.controller.kills import dies
from tests.integration.controller.nodes import kubelet
from tests.integration.controller.services import is_ready

MOST_WRITES = 40
EDIT = {"env": [{"name": "LEVEL", "value": "2"}]}
CONDITIONS = {
    "Promoted": ("True", "Promoted"),
    "Ready": ("True", "Serving"),
    "Reconciling": ("False", "Reconciled"),
    "RuntimeOutdated": ("False", "UpToDate"),
    "Stalled": ("False", "NotStalled"),
    "TrafficApplied": ("True", "Acknowledged"),
}
MARKS = [PROMOTED_AT_ANNOTATION, STABLE_ANNOTATION]


def end_with(revision: str, marks: list[list[str]]) -> dict[str, Any]:
    """What `end_state` has to be once a revision serves; `marks` are those of every revision."""
    return {
        "children": {
            "ControllerRevision": [f"revision {number}" for number, _ in enumerate(marks, start=1)],
            "Deployment": [revision],
            "Service": sorted(["it", revision]),
            "PodDisruptionBudget": [revision],
        },
        "marks": marks,
        "traffic": [(revision, 100)],
        "stable": revision,
        "canary": None,
        "rollout": {"state": "Promoted", "reason": "Promoted", "step": 0, "weight": 100},
        "conditions": CONDITIONS,
    }


ENDS = {
    "creation": end_with("revision 1", [MARKS]),
    "rollover": end_with("revision 2", [[PROMOTED_AT_ANNOTATION], MARKS]),
}


async def end_state(environment: Environment, name: str) -> dict[str, Any]:
    """What counts about a service and its children, without what differs from service to service.

    The generation of the traffic is left out: where children exist and no status does, it starts far beyond
    any that a gateway may have acknowledged.
    """
    revisions = sorted(
        await environment.children(CONTROLLER_REVISIONS, name), key=lambda each: int(each["revision"])
    )
    called = {each["metadata"]["name"]: f"revision {each['revision']}" for each in revisions} | {name: "it"}
    status = (await environment.service(name))["status"]
    return {
        "children": {
            resource.kind: sorted(
                called[child["metadata"]["name"]] for child in await environment.children(resource, name)
            )
            for resource in (CONTROLLER_REVISIONS, DEPLOYMENTS, SERVICES, DISRUPTION_BUDGETS)
        },
        "marks": [
            sorted(mark for mark in MARKS if mark in (each["metadata"].get("annotations") or {}))
            for each in revisions
        ],
        "traffic": [(called[each["revision"]], each["weight"]) for each in status["traffic"]["backends"]],
        "stable": called[status["stable"]["revision"]],
        "canary": status.get("canary"),
        "rollout": {field: status["rollout"][field] for field in ("state", "reason", "step", "weight")},
        "conditions": {
            each["type"]: (each["status"], each["reason"])
            for each in status["conditions"]
            if each["type"] in CONDITIONS
        },
    }


async def is_finished(environment: Environment, name: str) -> bool:
    service = await environment.service(name)
    deployments = await environment.children(DEPLOYMENTS, name)
    stable = ((service.get("status") or {}).get("stable") or {}).get("revision")
    return is_ready(service) and [each["metadata"]["name"] for each in deployments] == [stable]


async def finish(environment: Environment, name: str, wanted: dict[str, Any]) -> None:
    """Let an operator that nobody kills bring the service to this end."""
    last: dict[str, Any] = {}

    async def ended() -> bool:
        if await is_finished(environment, name):
            last.update(await end_state(environment, name))
        return last == wanted

    async with environment.running():
        try:
            await environment.until(f"the end of {name}", ended)
        finally:
            assert last == wanted


@pytest.mark.parametrize("phase", ["creation", "rollover"])
async def test_every_kill_ends_where_no_kill_ends(environment: Environment, phase: str) -> None:
    async with kubelet(environment):
        for writes in range(MOST_WRITES):
            name = f"churn-{writes}"
            await environment.create(name, scaling={"min": 2}, rollout={"scaleDownDelay": "1s"})
            if phase == "rollover":
                await finish(environment, name, ENDS["creation"])
                await environment.edit(name, **EDIT)
            died = await dies(environment, writes, partial(is_finished, environment, name))
            await finish(environment, name, ENDS[phase])
            if not died:
                break
        else:
            pytest.fail(f"still writing after {MOST_WRITES} writes")
    assert writes > 5


def has_replicas(wanted: int, service: Object) -> bool:
    return is_ready(service) and bool(service["status"]["replicas"] == wanted)


async def test_writes_by_others_while_deciding_end_in_the_same_state(environment: Environment) -> None:
    """Every write of the operator races with somebody who changes the same Deployment all the time."""

    async def disturb() -> None:
        for number in range(10_000):
            for deployment in await environment.children(DEPLOYMENTS, "churn"):
                environment_name = deployment["metadata"]["name"]
                await asyncio.to_thread(
                    environment.control_plane.kubectl,
                    *("annotate", "deployment", environment_name, f"number={number}", "--overwrite"),
                    *("-n", environment.namespace),
                )
            await asyncio.sleep(0.01)

    async with environment.running(), kubelet(environment):
        await environment.create("churn")
        await environment.until_service("churn", is_ready, "Ready")
        disturber = asyncio.create_task(disturb())
        try:
            for replicas in (2, 3, 4, 5):
                await environment.edit("churn", scaling={"min": replicas})
                await environment.until_service("churn", partial(has_replicas, replicas), "the replicas")
        finally:
            disturber.cancel()
            await asyncio.gather(disturber, return_exceptions=True)
