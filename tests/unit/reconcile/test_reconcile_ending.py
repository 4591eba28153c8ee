"""Pods whose node is gone, and of which nobody says that they have ended, hold up nothing for ever."""

from datetime import timedelta
from typing import Any

import pytest

from tests.support.simulated.objects import model, service
from tests.support.simulated.serving import OTHER_MODEL
from tests.unit.reconcile.trials import Trial

RECREATE: dict[str, Any] = {"strategy": "recreate"}
WAYS: dict[str, dict[str, Any]] = {
    "recreate": RECREATE,
    "in-place": {"capacity": "inPlace"},
    "in-place-canary": {"capacity": "inPlace", "strategy": "canary", "steps": [{"weight": 50}]},
}


def cut_off(rollout: dict[str, Any], devices: int, pods: int = 2) -> tuple[Trial, str]:
    """A service one of whose pods is on a node that is gone; so many places for pods are left with it."""
    times = {"scaleDownDelay": "4s", "minStepTime": "2s", "progressDeadline": "3m"}
    trial = Trial(service=service(rollout={**times, **rollout}, scaling={"min": pods}), devices=devices)
    trial.go(6)
    lost = next(iter(trial.pods))
    trial.cut_off_node(lost)
    trial.edit(model=OTHER_MODEL)
    return trial, lost


@pytest.mark.parametrize("rollout", WAYS.values(), ids=WAYS)
def test_a_pod_that_nobody_ends_holds_up_no_rollout(rollout: dict[str, Any]) -> None:
    trial, lost = cut_off(rollout, devices=3)
    trial.go(60, seconds=5)
    assert (trial.rollout["state"], trial.weights()) == ("Promoted", {"r2": 100}), trial.rollout
    assert lost in trial.pods
    assert trial.plan().requeue_after is None


def test_a_clock_that_was_set_back_makes_no_outage_longer() -> None:
    trial, lost = cut_off(RECREATE, devices=3)
    while "deletionTimestamp" not in trial.pods[lost]["metadata"]:
        trial.go_round()
    trial.now -= timedelta(hours=1)
    trial.go(10)
    assert trial.weights() == {"r2": 100}
    assert lost in trial.pods


def test_it_holds_its_place_until_it_should_have_ended() -> None:
    trial, lost = cut_off(RECREATE, devices=3)
    while "deletionTimestamp" not in trial.pods[lost]["metadata"]:
        trial.go_round()
    trial.go(20)
    assert not any("-r2-" in pod for pod in trial.pods)
    assert timedelta(seconds=0) < (trial.plan().requeue_after or timedelta()) <= timedelta(seconds=60)


@pytest.mark.parametrize("rollout", WAYS.values(), ids=WAYS)
def test_where_its_place_is_missing_it_is_named_with_the_remedy(rollout: dict[str, Any]) -> None:
    trial, lost = cut_off(rollout, devices=2)
    trial.devices = 1 if rollout == RECREATE else 2
    trial.go(22, seconds=5)
    told = trial.rollout["message"]
    assert f"pod {lost} should have ended by" in told, told
    assert "on node node-1" in told
    assert f"kubectl delete pod {lost} --force -n risk" in told
    assert f"kubectl delete pod {lost} --force -n risk" in trial.message("Promoted")
    del trial.pods[lost]
    trial.go(40, seconds=5)
    assert (trial.rollout["state"], trial.weights()) == ("Promoted", {"r2": 100}), trial.rollout


def test_a_stopped_service_names_it() -> None:
    trial, lost = cut_off(RECREATE, devices=3)
    trial.edit(stopped=True)
    trial.go(30, seconds=5)
    assert f"kubectl delete pod {lost} --force -n risk" in trial.message("Ready")


def test_a_return_to_a_deployment_that_is_not_gone_names_it() -> None:
    trial, lost = cut_off({}, devices=9)
    trial.go(40, seconds=5)
    assert trial.rollout["state"] == "Promoted"
    trial.edit(model=model("a"))
    trial.go(30, seconds=5)
    assert f"kubectl delete pod {lost} --force -n risk" in trial.message("Ready")
    del trial.pods[lost]
    trial.go(30, seconds=5)
    assert trial.weights() == {"r1": 100}
