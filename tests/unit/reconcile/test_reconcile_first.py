"""A first revision that a later spec came before, and that serves all the same: a rollout begins from it."""

from typing import Any

import pytest

from tests.support.copies import remembered
from tests.support.simulated.objects import model, service
from tests.unit.reconcile.trials import Trial

CANARY: dict[str, Any] = {"strategy": "canary", "steps": [{"weight": 50}, {"weight": 75}]}
ROLLOUTS: dict[str, dict[str, Any]] = {
    "blue-green": {},
    "manual": {"promotion": "manual"},
    "canary": CANARY,
    "in-place": {"capacity": "inPlace"},
}


@remembered
def replaced(rollout: dict[str, Any], *hung: str) -> Trial:
    """Four seconds after a first revision is ready, whose spec was another one's before that."""
    trial = Trial(service=service(scaling={"min": 2}, rollout={"progressDeadline": "30s", **rollout}))
    trial.hung = {"r1", *hung}
    trial.go(3)
    trial.edit(model=model("b"))
    trial.go(1)
    trial.hung.discard("r1")
    trial.go(2)
    return trial


@pytest.mark.parametrize("rollout", ROLLOUTS.values(), ids=ROLLOUTS)
def test_what_serves_is_promoted_and_no_longer_said_to_be_given_up(rollout: dict[str, Any]) -> None:
    trial = replaced(rollout, "r2")
    first, newest = trial.names("ControllerRevision")
    assert (trial.rollout["revision"], trial.rollout["from"]) == (newest, first)
    assert trial.marked("stable") == trial.marked("promoted-at") == {first}
    assert trial.marked("superseded-at") == set()
    trial.go(20)
    assert (trial.rollout["state"], trial.serving()) == ("RolledBack", [first])
    assert trial.marked("rejected-at") == {newest}


def test_a_canary_keeps_its_steps_where_it_has_as_much_as_a_base_without_marks() -> None:
    trial = replaced(CANARY)
    first, newest = trial.names("ControllerRevision")
    weights = set()
    for _ in range(80):
        trial.go(1)
        for stored in trial.of("ControllerRevision"):
            stored["metadata"]["annotations"].pop("tailbound.dev/stable", None)
            stored["metadata"]["annotations"].pop("tailbound.dev/promoted-at", None)
            trial.touch(stored)
        assert trial.rollout["from"] == first
        weights.add(trial.weights().get("r2", 0))
        if trial.rollout["state"] == "Promoting":
            break
    assert weights - {0} == {50, 75}
    assert trial.rollout["revision"] == newest
