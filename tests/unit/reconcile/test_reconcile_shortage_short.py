"""Rollouts whose stable revision asks for more pods than there is room: they wait, and say for what."""

from itertools import product
from typing import Any

import pytest

from tests.support.copies import remembered
from tests.support.effort import covering
from tests.support.simulated.objects import model
from tests.support.simulated.rollouts import around, replicas, state, until
from tests.support.simulated.simulator import Simulator
from tests.unit.reconcile.full_nodes import full

PODS, TOO_MANY = 4, 6
SAYS = {
    "devices": ("Unschedulable", "Insufficient nvidia.com/gpu"),
    "quota": ("QuotaExceeded", "exceeded quota: devices"),
}
SHORT: dict[str, tuple[str, dict[str, Any], bool]] = {
    f"{capacity}, {strategy}, {place}, {'meanwhile' if meanwhile else 'before'}": (
        place,
        {"capacity": capacity, "strategy": strategy},
        meanwhile,
    )
    for capacity, (place, meanwhile), strategy in covering(
        ("inPlace", "auto"), tuple(product(SAYS, (False, True))), ("blueGreen", "canary")
    )
}


@remembered
def limited(place: str, rollout: dict[str, Any]) -> Simulator:
    """A service that serves with as many pods as there is room for."""
    simulator = full(rollout, replicas=PODS, devices=2 * PODS)
    simulator.edit(model=model("a"))
    simulator.settle()
    setattr(simulator, place, PODS)
    return simulator


@remembered
def short(place: str, rollout: dict[str, Any], *, meanwhile: bool) -> Simulator:
    """A rollout waits for room for pods that were asked for before it began, or meanwhile."""
    simulator = limited(place, rollout)
    if not meanwhile:
        simulator.edit(scaling={"min": TOO_MANY})
        around(simulator)
    simulator.edit(model=model("c"))
    if meanwhile:
        for _ in range(5):
            around(simulator)
        simulator.edit(scaling={"min": TOO_MANY})
    until(simulator, lambda found: found["reason"] == SAYS[place][0] and "are missing" in found["message"])
    return simulator


def told(simulator: Simulator) -> tuple[str, ...]:
    """What a user reads of the wait."""
    return (simulator.rollout["message"], *(simulator.message(kind) for kind in ("Ready", "Promoted")))


@pytest.mark.parametrize(("place", "rollout", "meanwhile"), SHORT.values(), ids=SHORT)
def test_a_wait_in_place_names_who_lacks_what_why_and_the_remedy(
    place: str, rollout: dict[str, Any], meanwhile: bool
) -> None:
    simulator = short(place, rollout, meanwhile=meanwhile)
    stable, candidate = simulator.names("ControllerRevision")[0], simulator.names("ControllerRevision")[-1]
    for _ in range(4):
        around(simulator)
    for _ in range(3):
        around(simulator)
        for message in told(simulator):
            assert f"{candidate} waits for capacity" in message
            assert "are missing" in message
            assert SAYS[place][1] in message
            assert "a pod needs nvidia.com/gpu 1 (HardwareClass gpu-l4)" in message
            assert (
                "Add or free the resources that a pod needs, or ask for fewer pods in spec.scaling" in message
            )
            assert f"{stable} and {candidate} must have {TOO_MANY} pods together" in message
    assert simulator.ready_pods() >= PODS - 1


@pytest.mark.parametrize("remedy", ["capacity", "fewer pods"])
@pytest.mark.parametrize(("place", "rollout", "meanwhile"), SHORT.values(), ids=SHORT)
def test_either_remedy_lets_the_rollout_go_on(
    place: str, rollout: dict[str, Any], meanwhile: bool, remedy: str
) -> None:
    simulator = short(place, rollout, meanwhile=meanwhile)
    pods = TOO_MANY if remedy == "capacity" else PODS
    if remedy == "capacity":
        setattr(simulator, place, TOO_MANY)
    else:
        simulator.edit(scaling={"min": PODS})
    until(simulator, state("Promoted"))
    simulator.settle()
    assert (set(simulator.weights()), list(replicas(simulator).values())) == ({"r2"}, [pods])
    assert simulator.ready_pods() == pods


OTHER_REMEDIES: dict[str, tuple[str, int, str]] = {
    "surge": (
        "surge",
        PODS,
        "or let the pods of {stable} be replaced in place: set spec.rollout.capacity to auto",
    ),
    "one pod": ("inPlace", 1, "before the new pod starts, and no pod serves in between"),
}


@pytest.mark.parametrize(("capacity", "pods", "remedy"), OTHER_REMEDIES.values(), ids=OTHER_REMEDIES)
def test_a_wait_beside_the_stable_revision_tells_what_else_helps(
    capacity: str, pods: int, remedy: str
) -> None:
    simulator = full({"capacity": capacity}, replicas=pods, devices=pods)
    until(simulator, lambda found: found["reason"] == "Unschedulable")
    stable, candidate = simulator.names("ControllerRevision")
    for message in told(simulator):
        assert f"{pods} of {pods} pods of {candidate} are missing" in message
        assert message.endswith(remedy.format(stable=stable))


def test_a_new_spec_that_waits_for_the_stable_revision_names_what_that_lacks() -> None:
    simulator = limited("devices", {"capacity": "inPlace"})
    simulator.edit(model=model("c"))
    until(simulator, lambda found: found.get("weight", 0) > 50)
    simulator.edit(scaling={"min": TOO_MANY}, model=model("d"))
    until(simulator, lambda found: found["reason"] == "Unschedulable")
    stable = simulator.names("ControllerRevision")[0]
    assert simulator.rollout["state"] == "Pending"
    for message in told(simulator):
        assert f"pods of {stable} are missing" in message
        assert "or ask for fewer pods in spec.scaling" in message
    simulator.edit(scaling={"min": PODS})
    until(simulator, state("Promoted"))


def test_a_return_in_place_names_what_is_missing() -> None:
    simulator = full({"capacity": "inPlace"}, replicas=PODS, devices=2 * PODS)
    simulator.settle()
    simulator.devices = PODS
    simulator.edit(scaling={"min": TOO_MANY})
    around(simulator)
    old = simulator.names("ControllerRevision")[0]
    simulator.annotate(rollback_to=old)
    for _ in range(8):
        around(simulator)
    assert f"The pods of {old} replace those of" in simulator.rollout["message"]
    assert f"2 of 2 pods of {old} are missing: pod {old}" in simulator.rollout["message"]
    assert "or ask for fewer pods in spec.scaling" in simulator.rollout["message"]
    simulator.edit(scaling={"min": PODS})
    until(simulator, state("RolledBack"))
