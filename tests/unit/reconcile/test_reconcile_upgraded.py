"""A rollout that an earlier operator began goes on, or is judged from the beginning: its status is read."""

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest
from tailbound.api.conditions import Reason
from tailbound.api.parsing import parse
from tailbound.api.rollout import RolloutStatus
from tailbound.judge.record import state_of
from tailbound.reconcile.model import RefusedWrite

from tests.support.copies import remembered
from tests.support.simulated.objects import model, service
from tests.support.simulated.rollouts import CANARY, around, begun, state, until
from tests.support.simulated.simulator import Simulator

EARLIER: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "earlier_rollouts.json").read_text(encoding="utf-8")
)
"""status.rollout of the same service at the same places, and the evidence of the first step."""
SLOW: Final = 0.3


def at(weight: int) -> Callable[[dict[str, Any]], bool]:
    return lambda rollout: bool(rollout["weight"] == weight)


@remembered
def returning() -> Simulator:
    simulator = begun({}, sla=None)
    simulator.settle()
    simulator.annotate(rollback_to=simulator.names("ControllerRevision")[0])
    around(simulator)
    return simulator


@remembered
def canary(weight: int, **fields: Any) -> Simulator:
    simulator = begun(CANARY | fields)
    until(simulator, at(weight))
    return simulator


@remembered
def in_place() -> Simulator:
    simulator = begun({"capacity": "inPlace"})
    simulator.devices = 4
    until(simulator, at(66))
    return simulator


@remembered
def recreated() -> Simulator:
    simulator = begun({"strategy": "recreate"})
    until(simulator, state("Promoting"))
    return simulator


PLACES: dict[str, Callable[[], Simulator]] = {
    "first-step": lambda: canary(10),
    "second-step": lambda: canary(50),
    "awaiting": lambda: canary(50, promotion="manual"),
    "promoting": lambda: canary(100),
    "in-place": in_place,
    "return": returning,
    "recreate": recreated,
}


@remembered
def upgraded(place: str) -> Simulator:
    """The service at this place, whose status is that of an earlier operator."""
    simulator = PLACES[place]()
    evidence = {} if place == "return" else {"evidence": EARLIER["evidence"]}
    rollout = EARLIER["rollouts"][place] | evidence
    present = simulator.rollout
    assert (rollout["revision"], rollout["from"]) == (present["revision"], present["from"])
    simulator.service["status"]["rollout"] = rollout
    simulator.now = max(simulator.now, datetime.fromisoformat(EARLIER["at"][place]))
    simulator.touch(simulator.service)
    return simulator


@pytest.mark.parametrize("place", PLACES)
def test_a_status_of_an_earlier_operator_is_read(place: str) -> None:
    assert isinstance(parse(RolloutStatus, EARLIER["rollouts"][place]), RolloutStatus)


def test_evidence_of_an_earlier_operator_is_refused_whole() -> None:
    with pytest.raises(ValueError, match="the rollout is then judged from the beginning"):
        state_of(EARLIER["evidence"])


@pytest.mark.parametrize("place", PLACES)
def test_a_good_revision_is_promoted_after_an_upgrade(place: str) -> None:
    simulator = upgraded(place)
    weight = simulator.rollout["weight"]
    until(simulator, lambda rollout: rollout["state"] in ("Promoted", "RolledBack", "Paused"), rounds=100)
    serves = "RolledBack" if place == "return" else "Paused" if place == "awaiting" else "Promoted"
    assert simulator.rollout["state"] == serves
    assert simulator.rollout["weight"] >= (0 if place == "return" else weight)
    rejected = simulator.names("ControllerRevision")[1:] if place == "return" else []
    assert simulator.marked("rejected-at") == set(rejected)


@pytest.mark.parametrize("place", PLACES)
def test_a_reason_that_this_operator_does_not_know_is_replaced(place: str) -> None:
    simulator, reason = upgraded(place), "PromotedByHand"
    simulator.service["status"]["rollout"] |= {"reason": reason}
    simulator.service["status"]["conditions"] = [
        {**condition, "reason": reason} if condition["type"] in ("Ready", "Promoted") else condition
        for condition in simulator.service["status"]["conditions"]
    ]
    simulator.touch(simulator.service)
    around(simulator)
    stored = [simulator.rollout["reason"], *(simulator.condition(kind)[1] for kind in ("Ready", "Promoted"))]
    assert set(stored) <= set(Reason)


@pytest.mark.parametrize("place", ["first-step", "second-step", "awaiting", "promoting", "in-place"])
def test_a_bad_revision_is_rejected_after_an_upgrade(place: str) -> None:
    simulator = upgraded(place)
    until(simulator, state("Promoted", "RolledBack"), rounds=100, r2=SLOW)
    assert (simulator.rollout["state"], simulator.rollout["reason"]) == ("RolledBack", "Slow")


def test_a_step_that_was_not_passed_is_proven_again_after_an_upgrade() -> None:
    simulator = upgraded("first-step")
    around(simulator)
    assert simulator.rollout["weight"] == 10
    until(simulator, lambda rollout: rollout["weight"] == 50)
    assert simulator.rollout["passed"] == 10


def test_a_first_revision_that_is_blocked_under_an_unknown_reason_is_still_decided_on() -> None:
    simulator = Simulator(service())
    simulator.reconcile()
    (name,) = simulator.names("Deployment")
    simulator.service["status"]["rollout"] |= {"reason": "NoSuchReason"}
    del simulator.objects["Deployment", name]
    simulator.refused_writes = (RefusedWrite("Service", name, Reason.QUOTA_EXCEEDED, "no luck today"),)
    del simulator.objects["Service", name]
    simulator.touch(simulator.service)
    simulator.reconcile()
    assert simulator.condition("Promoted") == ("Unknown", "RollingOut")


def test_a_refused_write_that_was_stored_under_an_unknown_reason_is_tried_again() -> None:
    simulator = upgraded("recreate")
    simulator.service["status"]["rollout"] |= {"refused": {"reason": "NoSuchReason", "message": "m"}}
    simulator.touch(simulator.service)
    around(simulator)
    assert "refused" not in simulator.rollout


def test_a_service_with_an_annotation_that_is_refused_now_stays_as_it_is_until_that_is_removed() -> None:
    """Its stored revision is one that no operator makes any more, and is left alone."""
    annotations = {"k8s.v1.cni.cncf.io/networks": "other"}
    simulator = Simulator(service(rollout=CANARY))
    simulator.settle()
    (first,) = simulator.names("Deployment")
    data = simulator.objects["ControllerRevision", first]["data"]
    template = json.loads(data["template"])
    template["metadata"]["annotations"] = annotations
    data["template"] = json.dumps(template)
    simulator.edit(annotations=annotations, scaling={"min": 3})
    assert simulator.reconcile().writes == ()
    assert simulator.condition("Ready") == ("False", "InvalidSpec")
    assert simulator.weights() == {"r1": 100}
    simulator.edit(annotations={}, model=model("b"), scaling={"min": 1})
    simulator.settle()
    assert simulator.condition("Promoted") == ("True", "Promoted")
    assert simulator.weights() == {"r2": 100}
