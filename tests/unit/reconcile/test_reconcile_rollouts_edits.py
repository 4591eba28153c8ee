"""Edits of spec.rollout while a rollout runs: no proof is skipped, and the weight never jumps down and up."""

from typing import Any

import pytest

from tests.support.copies import remembered
from tests.support.simulated.rollouts import around, begun, until
from tests.support.simulated.simulator import Simulator

STEPS = [{"weight": 5}, {"weight": 25}, {"weight": 50}]


@remembered
def at_half() -> Simulator:
    """The canary has half of the requests, and has not passed with them."""
    simulator = begun({"strategy": "canary", "steps": STEPS})
    until(simulator, lambda rollout: rollout.get("weight") == 50 and "stepStartedAt" in rollout)
    return simulator


def weight(simulator: Simulator) -> int:
    return simulator.weights().get("r2", 0)


EDITS: dict[str, dict[str, Any]] = {
    "fewer-steps": {"strategy": "canary", "steps": [{"weight": 5}]},
    "lower-steps": {"strategy": "canary", "steps": [{"weight": 1}, {"weight": 30}, {"weight": 40}]},
    "default-steps": {"strategy": "canary"},
    "blueGreen": {},
    "blueGreen-manual": {"promotion": "manual"},
    "recreate": {"strategy": "recreate"},
    "manual": {"strategy": "canary", "steps": STEPS, "promotion": "manual"},
    "in-place": {"strategy": "canary", "steps": STEPS, "capacity": "inPlace"},
}


@pytest.mark.parametrize("edited", EDITS.values(), ids=EDITS)
def test_no_edit_skips_the_proof_under_way(edited: dict[str, Any]) -> None:
    simulator = at_half()
    simulator.edit(rollout=edited)
    for _ in range(10):
        around(simulator, r2=0.012)
        assert (weight(simulator), simulator.rollout["state"]) == (50, "Analysing"), simulator.rollout
    passed = until_moved(simulator)
    assert passed["passed"] == 50
    if edited.get("promotion") == "manual":
        assert passed["reason"] == "AwaitingPromotion"
        for _ in range(3):
            around(simulator)
        assert weight(simulator) == 50
        simulator.annotate(promote=simulator.names("ControllerRevision")[1])
    until(simulator, lambda rollout: rollout["state"] == "Promoted")


def until_moved(simulator: Simulator) -> dict[str, Any]:
    until(simulator, lambda rollout: rollout["passed"] == 50)
    return simulator.rollout


@pytest.mark.parametrize("edited", EDITS.values(), ids=EDITS)
def test_a_bad_revision_is_rejected_after_each_edit(edited: dict[str, Any]) -> None:
    simulator = at_half()
    simulator.edit(rollout=edited)
    until(simulator, lambda rollout: rollout["state"] == "RolledBack", r2=0.5)
    assert (simulator.rollout["reason"], simulator.weights()) == ("Slow", {"r1": 100})


def test_higher_steps_are_taken_up_at_once_and_lower_ones_cost_no_weight() -> None:
    simulator = begun({"strategy": "canary", "steps": [{"weight": 5}, {"weight": 50}]})
    until(simulator, lambda rollout: rollout.get("weight") == 5)
    simulator.edit(rollout={"strategy": "canary", "steps": [{"weight": 20}, {"weight": 50}]})
    seen: list[int] = []
    for _ in range(6):
        around(simulator)
        seen.append(weight(simulator))
    assert seen[-1] == 20
    simulator.edit(rollout={"strategy": "canary", "steps": [{"weight": 1}, {"weight": 10}, {"weight": 40}]})
    until_weights(simulator, seen)
    assert set(seen) == {20, 40, 50, 100}, "half of its pods carry half, until all are ready"
    assert seen == sorted(seen)


def until_weights(simulator: Simulator, seen: list[int]) -> None:
    """The weights of every look until the promotion."""
    for _ in range(200):
        around(simulator)
        seen.append(weight(simulator))
        if simulator.rollout["state"] == "Promoted":
            return
    raise AssertionError(simulator.rollout)
