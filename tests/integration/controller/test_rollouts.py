"""Rollouts on the real API server, judged by the counters of two gateways."""

import re
from typing import Any

import pytest
from tailbound.controller import counters
from tailbound.kube.resources import CONTROLLER_REVISIONS, DEPLOYMENTS
from tailbound.objects.fields import Object

from tests.integration.controller.environment import Environment
from tests.integration.controller.kills import Moment, dies
from tests.integration.controller.nodes import kubelet
from tests.integration.controller.services import (
    CANARY,
    GOOD,
    NEW_MODEL,
    SLA,
    SLOW,
    condition,
    is_ready,
    rollout_of,
    weights_of,
)

MANUAL = {**CANARY, "steps": [{"weight": 50}], "promotion": "manual"}


async def serving(
    environment: Environment, name: str, rollout: dict[str, Any], **answers: dict[str, int]
) -> None:
    """A service that serves; `answers` is what the gateways will count of each revision.

    Bad ones come again and again: those of one poll may be one burst.
    """
    for gateway in environment.gateways:
        gateway.answers, gateway.steady = answers, SLOW in answers.values()
    await environment.create(name, sla=SLA, rollout=rollout)
    async with environment.running():
        await environment.until_service(name, is_ready, "Ready")
        await environment.until_service(name, lambda it: condition(it, "Promoted").get("status") == "True")


async def test_a_good_canary_is_promoted_through_its_steps_by_counters(environment: Environment) -> None:
    seen: list[dict[str, int]] = []

    def promoted(service: Object) -> bool:
        if not seen or seen[-1] != weights_of(service):
            seen.append(weights_of(service))
        return rollout_of(service).get("state") == "Promoted" and bool(rollout_of(service).get("from"))

    async with kubelet(environment):
        await serving(environment, "churn", CANARY, r1=GOOD, r2=GOOD)
        await environment.edit("churn", model=NEW_MODEL)
        async with environment.running():
            service = await environment.until_service("churn", promoted, "the promotion")
            assert seen == [{"r1": 100}, {"r1": 80, "r2": 20}, {"r1": 50, "r2": 50}, {"r2": 100}]
            assert "evidence" not in rollout_of(service)
            assert condition(service, "Promoted")["status"] == "True"

            async def one_left() -> bool:
                return len(await environment.children(DEPLOYMENTS, "churn")) == 1

            await environment.until("the end of the old pods", one_left)
            reads = [gateway.reads for gateway in environment.gateways]
            await environment.until_service("churn", is_ready, "Ready")
            assert [gateway.reads for gateway in environment.gateways] == reads, "nobody counts any more"


async def test_a_slow_canary_is_rolled_back_by_counters(environment: Environment) -> None:
    def rolled_back(service: Object) -> bool:
        return rollout_of(service).get("state") == "RolledBack"

    async with kubelet(environment):
        await serving(environment, "churn", CANARY, r1=GOOD, r2=SLOW)
        await environment.edit("churn", model=NEW_MODEL)
        async with environment.running():
            service = await environment.until_service("churn", rolled_back, "the rollback")
            assert weights_of(service) == {"r1": 100}
            assert rollout_of(service)["reason"] == "Slow"
            assert re.match(r"\d+00 of \d+00 requests were slow", rollout_of(service)["message"])
            marks = [
                revision["metadata"]["annotations"].get("tailbound.dev/rejected-reason")
                for revision in await environment.children(CONTROLLER_REVISIONS, "churn")
            ]
            assert sorted(marks, key=str) == [None, "Slow"]

            async def one_left() -> bool:
                return len(await environment.children(DEPLOYMENTS, "churn")) == 1

            await environment.until("the end of the canary's pods", one_left)
            await environment.until_service(
                "churn", lambda it: condition(it, "Ready")["reason"] == "RolledBack", "Ready"
            )


# Where rollouts end wherever their operator died. Whoever is condemned may be so before the second gateway
# has applied the weight: how many requests that took is left out.
PASSED = {
    "weights": {"r1": 50, "r2": 50},
    "place": ["Paused", "AwaitingPromotion", 1, 50],
    "counted": {"latency": 800, "errors": 800},
    "revisions": 2,
    "pods": [1, 1],
}
CONDEMNED = {
    "weights": {"r1": 100},
    "place": ["RolledBack", "Slow", 0, 0],
    "counted": {},
    "revisions": 2,
    "pods": [1],
}


async def end_of(environment: Environment, name: str) -> dict[str, Any]:
    """Everything that must not depend on where the operator died."""
    service = await environment.service(name)
    rollout = rollout_of(service)
    condemned = rollout.get("state") == "RolledBack"
    return {
        "weights": weights_of(service),
        "place": [rollout.get(field, 0) for field in ("state", "reason", "step", "weight")],
        "counted": {
            finding["measure"]: finding["requests"]
            for finding in rollout.get("findings", ())
            if not condemned
        },
        "revisions": len(await environment.children(CONTROLLER_REVISIONS, name)),
        "pods": sorted(
            deployment["spec"]["replicas"] for deployment in await environment.children(DEPLOYMENTS, name)
        ),
    }


async def finish(environment: Environment, name: str, wanted: dict[str, Any]) -> None:
    """Let an operator that nobody kills bring the rollout to this end."""
    last: dict[str, Any] = {}

    async def over() -> bool:
        last.update(await end_of(environment, name))
        return last == wanted

    async with environment.running():
        try:
            await environment.until(f"the end of {name}", over)
        finally:
            assert last == wanted
    assert await end_of(environment, name) == wanted


def judges(service: Object) -> bool:
    """Whether requests of the candidate were counted."""
    return any(finding["requests"] for finding in rollout_of(service).get("findings", ()))


# A kill before each write is tried on the simulated API server, in tests/unit/reconcile.
KILLS = {
    "good-evidence": (GOOD, Moment("replace_status", "InferenceService", judges)),
    "slow-rejection": (SLOW, Moment("apply", "ControllerRevision")),
}


@pytest.mark.parametrize(("answers", "moment"), KILLS.values(), ids=KILLS)
async def test_a_kill_of_a_judged_rollout_counts_every_request_once(
    environment: Environment,
    monkeypatch: pytest.MonkeyPatch,
    answers: dict[str, int],
    moment: Moment,
) -> None:
    wanted = PASSED if answers == GOOD else CONDEMNED

    async def over() -> bool:
        return await end_of(environment, "churn") == wanted

    # Most of the time would go by until the counters are read again.
    monkeypatch.setattr(counters, "PERIOD_SECONDS", 0.25)
    async with kubelet(environment):
        await serving(environment, "churn", MANUAL, r1=GOOD, r2=answers)
        await environment.edit("churn", model=NEW_MODEL)
        assert await dies(environment, moment, over)
        await finish(environment, "churn", wanted)
