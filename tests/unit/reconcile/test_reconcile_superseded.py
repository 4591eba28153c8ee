"""What is left before a verdict is told by an event and remembered, and why something was rejected stays."""

from typing import Any

import pytest
from tailbound.api.rollout import RolloutState
from tailbound.reconcile.model import Event

from tests.support.copies import remembered
from tests.support.simulated.objects import model, spec
from tests.support.simulated.rollouts import CANARY, around, begun, state, until
from tests.support.simulated.simulator import Simulator


def marks(simulator: Simulator, number: str) -> dict[str, str]:
    (name,) = (name for name in simulator.names("ControllerRevision") if f"-{number}-" in name)
    found: dict[str, str] = simulator.objects["ControllerRevision", name]["metadata"]["annotations"]
    return {key.removeprefix("tailbound.dev/"): value for key, value in found.items()}


def name_of(simulator: Simulator, number: str) -> str:
    return next(name for name in simulator.names("ControllerRevision") if f"-{number}-" in name)


@remembered
def half_way() -> Simulator:
    simulator = begun()
    until(simulator, lambda rollout: rollout["weight"] == 10)
    return simulator


def told(simulator: Simulator, reason: str, rounds: int = 5) -> list[Event]:
    events = [event for _ in range(rounds) for event in around(simulator).events]
    return [event for event in events if event.reason == reason]


def test_a_revert_tells_that_the_revision_was_given_up() -> None:
    simulator = half_way()
    simulator.edit(model=spec()["model"])
    (event,) = told(simulator, "Superseded")
    first, second = name_of(simulator, "r1"), name_of(simulator, "r2")
    assert event.type == "Normal"
    assert (
        event.message
        == f"the rollout of {second} ended before a verdict, because the spec is now that of {first}"
    )
    assert marks(simulator, "r2")["superseded-by"] == first
    simulator.settle()
    assert "superseded-by" not in marks(simulator, "r1")


def test_an_overtaking_edit_tells_that_the_revision_was_given_up() -> None:
    simulator = half_way()
    simulator.edit(model=model("c"))
    assert len(told(simulator, "Superseded")) == 1
    assert marks(simulator, "r2")["superseded-by"] == name_of(simulator, "r3")


def test_a_revision_that_is_taken_up_again_and_promoted_was_not_given_up() -> None:
    simulator = half_way()
    simulator.edit(model=model("c"))
    around(simulator)
    simulator.edit(model=model("b"))
    until(simulator, lambda rollout: rollout["state"] == RolloutState.PROMOTED)
    assert "superseded-by" not in marks(simulator, "r2")
    assert marks(simulator, "r3")["superseded-by"] == name_of(simulator, "r2")


def test_what_was_decided_is_not_superseded() -> None:
    simulator = begun()
    until(simulator, state("RolledBack"), r2=0.1)
    simulator.edit(model=model("c"))
    assert told(simulator, "Superseded") == []
    assert "superseded-by" not in marks(simulator, "r2")
    simulator.settle()
    simulator.annotate(rollback_to=name_of(simulator, "r1"))
    around(simulator)
    simulator.edit(model=model("d"))
    assert told(simulator, "Superseded") == []


def test_a_retry_is_remembered_with_what_it_forgave() -> None:
    simulator = begun()
    until(simulator, state("RolledBack"), r2=0.1)
    message = marks(simulator, "r2")["rejected-message"]
    simulator.annotate(retry=name_of(simulator, "r2"))
    until(simulator, state("Promoted"))
    assert "rejected-at" not in marks(simulator, "r2")
    assert message in marks(simulator, "r2")["formerly-rejected"]


def test_a_return_to_what_serves_keeps_why_the_newest_was_rejected() -> None:
    simulator = begun()
    until(simulator, state("RolledBack"), r2=0.1)
    simulator.settle()
    before, rollout = marks(simulator, "r2"), simulator.rollout
    assert rollout["findings"]
    simulator.annotate(rollback_to=f"{name_of(simulator, 'r1')}/1")
    simulator.settle()
    assert simulator.rollout == rollout
    after = marks(simulator, "r2")
    assert {key: after[key] for key in before} == before
    assert simulator.condition("Promoted") == ("False", "RolledBack")


@pytest.mark.parametrize("rollout", [CANARY, {"strategy": "recreate"}], ids=["canary", "recreate"])
def test_what_is_under_way_says_that_it_waits_for_the_newest_spec(
    rollout: dict[str, Any],
) -> None:
    simulator = begun(rollout)
    around(simulator)
    around(simulator)
    runtimes, simulator.cluster_runtimes = simulator.cluster_runtimes, {}
    simulator.edit(model=model("c"))
    for _ in range(6):
        around(simulator)
    stable, canary = simulator.names("ControllerRevision")
    assert simulator.rollout["message"] == (
        f"the rollout of {canary} is held, and {stable} gets the requests, until the problem with the "
        "newest spec is solved"
    )
    assert simulator.serving() == [stable]
    assert simulator.condition("Ready") == ("False", "RuntimeNotFound")
    simulator.cluster_runtimes = runtimes
    until(simulator, state("Promoted"))
    assert simulator.serving() == [simulator.names("ControllerRevision")[2]]
