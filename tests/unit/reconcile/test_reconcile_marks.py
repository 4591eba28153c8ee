"""Pods go after the mark: what is still marked as the stable revision keeps its Deployment."""

from datetime import timedelta
from typing import Any

import pytest
from tailbound.api.conditions import Reason

from tests.support.copies import remembered
from tests.support.simulated.objects import model, service
from tests.support.simulated.rollouts import replicas
from tests.unit.reconcile.trials import Trial

CANARY: dict[str, Any] = {"strategy": "canary", "steps": [{"weight": 50}], "minStepTime": "2s"}


@remembered
def edited(rollout: dict[str, Any], pods: int) -> Trial:
    """A service that serves, whose new revision has its record and nothing more."""
    trial = Trial(service=service(rollout={**rollout, "scaleDownDelay": "4s"}, scaling={"min": pods}))
    trial.go(6)
    trial.edit(model=model("b"))
    trial.reconcile()
    return trial


@pytest.mark.parametrize("reason", [Reason.RUNTIME_INVALID, Reason.QUOTA_EXCEEDED])
@pytest.mark.parametrize("rollout", [{}, CANARY], ids=["blueGreen", "canary"])
def test_the_stable_revision_keeps_its_pods_while_the_mark_cannot_be_moved(
    rollout: dict[str, Any], reason: Reason
) -> None:
    trial = edited(rollout, pods=2)
    trial.refuses = {"ControllerRevision": reason}
    for _ in range(40):
        trial.go_round(seconds=5)
        assert replicas(trial)["r1"] == 2
    assert trial.condition("Conflict")[0] == "True"
    assert "ControllerRevision" in trial.message("Conflict")
    trial.mend()
    trial.heals()
    assert replicas(trial) == {"r2": 2}


def test_a_lost_revision_keeps_its_pods_until_the_one_before_it_has_taken_over() -> None:
    trial = edited({"progressDeadline": "30s"}, pods=1)
    trial.settle()
    trial.hung.add("r2")
    while trial.weights() != {"r1": 100}:
        trial.go_round()
    trial.hung.add("r1")
    trial.go(3)
    assert replicas(trial) == {"r1": 1, "r2": 1}
    trial.now += timedelta(minutes=1)
    trial.hung.remove("r1")
    trial.go(5)
    assert (replicas(trial), trial.marked("stable")) == ({"r1": 1}, set(trial.names("Deployment")))
