"""The operator is killed before a write of each class, remembers nothing, and ends the same."""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import pytest
from tailbound.api.names import PROMOTED_AT_ANNOTATION, STABLE_ANNOTATION
from tailbound.kube.protocol import KubeClient
from tailbound.kube.resources import CONTROLLER_REVISIONS, DEPLOYMENTS, DISRUPTION_BUDGETS, SERVICES
from tailbound.objects.fields import Object
from tailbound.reconcile.model import Delete, DryRun, Write

from tests.integration.controller.environment import Environment
from tests.integration.controller.kills import Moment, Recorder, dies, number_of
from tests.integration.controller.nodes import kubelet
from tests.integration.controller.services import gives_weight, is_ready
from tests.support.simulated.objects import service
from tests.support.simulated.simulator import Simulator

EDIT = {"env": [{"name": "LEVEL", "value": "2"}]}
EDITS: dict[str, dict[str, Any]] = {"rollover": EDIT, "growth": {"scaling": {"min": 3}}}
CONDITIONS = {
    "Promoted": ("True", "Promoted"),
    "Ready": ("True", "Serving"),
    "Reconciling": ("False", "Reconciled"),
    "RuntimeOutdated": ("False", "UpToDate"),
    "Stalled": ("False", "NotStalled"),
    "TrafficApplied": ("True", "Acknowledged"),
}
MARKS = [PROMOTED_AT_ANNOTATION, STABLE_ANNOTATION]


def end_with(revision: str, marks: list[list[str]], pods: int = 2) -> dict[str, Any]:
    """What `end_state` has to be once a revision serves; `marks` are those of every revision."""
    return {
        "pods": [pods],
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
    "growth": end_with("revision 1", [MARKS], pods=3),
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
        "pods": [each["spec"]["replicas"] for each in await environment.children(DEPLOYMENTS, name)],
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
    stored = await environment.service(name)
    deployments = await environment.children(DEPLOYMENTS, name)
    stable = ((stored.get("status") or {}).get("stable") or {}).get("revision")
    return is_ready(stored) and [each["metadata"]["name"] for each in deployments] == [stable]


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


# A kill before each write is tried on the simulated API server, whose writes are those of this one.
KILLS = {
    "creation-pods": ("creation", Moment("create", "Deployment")),
    "rollover-weight": ("rollover", Moment("replace_status", "InferenceService", gives_weight("r2"))),
    "growth-pods": ("growth", Moment("apply", "Deployment")),
    "rollover-end-of-the-old": ("rollover", Moment("delete", "Deployment")),
}


@pytest.mark.parametrize(("phase", "moment"), KILLS.values(), ids=KILLS)
async def test_a_kill_before_a_write_ends_where_no_kill_ends(
    environment: Environment, phase: str, moment: Moment
) -> None:
    async with kubelet(environment):
        await environment.create("churn", scaling={"min": 2}, rollout={"scaleDownDelay": "1s"})
        if phase in EDITS:
            await finish(environment, "churn", ENDS["creation"])
            await environment.edit("churn", **EDITS[phase])
        assert await dies(environment, moment, partial(is_finished, environment, "churn"))
        await finish(environment, "churn", ENDS[phase])


async def test_the_simulated_api_server_gets_the_writes_of_the_real_one(environment: Environment) -> None:
    """The order is the same over a creation and a rollover: kills are enumerated on the simulated one."""
    written: list[tuple[str, str, str]] = []
    operator = environment.operator(wrap=lambda inner: cast(KubeClient, Recorder(inner, written)))
    async with environment.running(operator), kubelet(environment):
        await environment.create("churn", scaling={"min": 2}, rollout={"scaleDownDelay": "1s"})
        await environment.until("the creation", partial(is_finished, environment, "churn"))
        await environment.edit("churn", **EDIT)
        await environment.until("the rollover", partial(is_replaced, environment))
    simulated = Recorded(service=service(scaling={"min": 2}, rollout={"scaleDownDelay": "1s"}))
    simulated.settle()
    simulated.edit(**EDIT)
    simulated.settle()
    assert written == simulated.written


async def is_replaced(environment: Environment) -> bool:
    """Nothing is left of the first revision but its record."""
    if not await is_finished(environment, "churn"):
        return False
    found = await end_state(environment, "churn")
    return bool(found["children"] == ENDS["rollover"]["children"])


@dataclass
class Recorded(Simulator):
    """The simulated cluster, which keeps its writes as `Recorder` does."""

    written: list[tuple[str, str, str]] = field(default_factory=list)

    def write(self, write: Write) -> None:
        super().write(write)
        if not isinstance(write, DryRun):
            kind, name = (
                (write.kind, write.name)
                if isinstance(write, Delete)
                else (write.body["kind"], write.body["metadata"]["name"])
            )
            self.written.append((type(write).__name__.lower(), kind, number_of(name)))


def has_replicas(wanted: int, stored: Object) -> bool:
    return is_ready(stored) and bool(stored["status"]["replicas"] == wanted)


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
