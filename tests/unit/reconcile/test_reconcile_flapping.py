"""A step ends in time, whether it can begin or not, and whatever clocks do meanwhile."""

import pytest

from tests.support.copies import remembered
from tests.support.simulated.objects import model, service
from tests.unit.reconcile.trials import Trial


@remembered
def flapping(on_inconclusive: str) -> Trial:
    """One pod each, the stable one ready at every other look, and a canary that is to get 5 percent."""
    rollout = {
        "strategy": "canary",
        "steps": [{"weight": 5}],
        "minStepTime": "10s",
        "maxStepTime": "1m",
        "onInconclusive": on_inconclusive,
    }
    sla = {"latency": {"p99": "100ms"}}
    trial = Trial(service=service(rollout=rollout, sla=sla, scaling={"min": 1}))
    trial.go(6)
    trial.flapping.add("r1")
    trial.edit(model=model("b"))
    return trial


@pytest.mark.parametrize(
    ("on_inconclusive", "state"),
    [("pause", "Paused"), ("promote", "Paused"), ("rollback", "RolledBack")],
)
def test_a_step_that_cannot_begin_ends_and_names_the_pod(on_inconclusive: str, state: str) -> None:
    trial = flapping(on_inconclusive)
    trial.go(60)
    assert (trial.rollout["state"], trial.rollout["reason"]) == (state, "Inconclusive")
    (pod,) = [pod for pod in trial.pods if "-r1-" in pod]
    assert pod in trial.rollout["message"]


def test_a_step_that_begins_late_is_judged_all_the_same() -> None:
    trial = flapping("pause")
    trial.go(60)
    trial.flapping.clear()
    trial.go(3)
    assert (trial.rollout["state"], trial.weights()) == ("Analysing", {"r1": 95, "r2": 5})
    assert trial.rollout["stepHeldBy"] == ""
    trial.go(60)
    assert trial.rollout["step"] == 1
    assert trial.rollout["stepHeldBy"] == ""


def test_a_gateway_that_never_applies_the_weight_ends_the_step() -> None:
    trial = flapping("pause")
    trial.flapping.clear()
    trial.behind.add("gateway-a")
    trial.go(60)
    assert (trial.rollout["state"], trial.rollout["reason"]) == ("Paused", "Inconclusive")
    assert "TrafficApplied" in trial.rollout["message"]
    assert "gateway-a" in trial.message("TrafficApplied")


def test_a_clock_that_is_set_back_makes_no_step_longer() -> None:
    trial = flapping("pause")
    trial.flapping.clear()
    trial.requests = 0
    trial.go(10)
    assert trial.rollout["state"] == "Analysing"
    trial.go(1, seconds=-3600)
    trial.go(60)
    assert (trial.rollout["state"], trial.rollout["reason"]) == ("Paused", "Inconclusive")
