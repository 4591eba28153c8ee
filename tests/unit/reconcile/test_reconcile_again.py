"""Rejected revisions that are tried again by themselves, and those that are not."""

from datetime import timedelta
from typing import Any

import pytest

from tests.support.copies import remembered
from tests.support.simulated.cluster_state import number_of
from tests.support.simulated.objects import STARTING
from tests.support.simulated.rollouts import CANARY, around, begun, state, until
from tests.support.simulated.simulator import Simulator

NO_ACCOUNT = 'pods "churn-r2" is forbidden: serviceaccount "reader" not found'
RETRY = "kubectl tailbound retry churn -n risk"


@remembered
def rejected(rollout: dict[str, Any]) -> Simulator:
    """A rollout to a revision whose pods were refused until its deadline was over."""
    simulator = begun({**rollout, "progressDeadline": "20s"}, replicas=2)
    simulator.denied = {"r2": NO_ACCOUNT}
    until(simulator, state("RolledBack"))
    around(simulator)
    return simulator


@pytest.mark.parametrize("rollout", [{}, CANARY], ids=["blue-green", "canary"])
def test_a_cause_outside_of_the_revision_is_tried_again_at_longer_intervals(rollout: dict[str, Any]) -> None:
    simulator = rejected(rollout)
    for minutes in (1, 2, 4):
        assert simulator.condition("Stalled") == ("False", "NotStalled")
        for kind in ("Ready", "Promoted"):
            assert "it is tried again by itself at 2026-" in simulator.message(kind)
            assert RETRY in simulator.message(kind)
        wake = simulator.reconcile().requeue_after
        assert wake is not None
        assert timedelta(minutes=minutes) - timedelta(seconds=10) < wake <= timedelta(minutes=minutes)
        simulator.now += wake - timedelta(seconds=3)
        around(simulator)
        assert simulator.rollout["state"] == "RolledBack"
        simulator.now += timedelta(seconds=3)
        until(simulator, state("Starting", "Analysing", "Promoting"), rounds=5)
        until(simulator, state("RolledBack"))
        around(simulator)
    simulator.denied = {}
    simulator.now += timedelta(minutes=8)
    until(simulator, state("Promoted"))
    assert simulator.weights() == {"r2": 100}


def test_what_the_evidence_rejected_waits_for_a_user() -> None:
    simulator = begun(CANARY)
    until(simulator, state("RolledBack"), r2=0.5)
    for _ in range(3):
        simulator.now += timedelta(hours=1)
        around(simulator)
    assert simulator.rollout["state"] == "RolledBack"
    assert simulator.condition("Stalled") == ("True", "RolledBack")
    for kind in ("Ready", "Promoted", "Stalled"):
        assert RETRY in simulator.message(kind)
        assert "by itself" not in simulator.message(kind)


def test_recreate_is_not_tried_again_as_each_try_is_an_outage() -> None:
    simulator = rejected({"strategy": "recreate"})
    simulator.now += timedelta(hours=1)
    around(simulator)
    assert simulator.rollout["state"] == "RolledBack"
    assert "by itself" not in simulator.message("Ready")


def test_a_download_that_goes_on_uses_no_deadline_up() -> None:
    simulator = begun({"progressDeadline": "20s"}, replicas=1)
    running = {"name": "fetch", "ready": False, "state": {"running": {}}, "lastState": {}}
    for _ in range(60):
        simulator.run_controllers()
        for name in simulator.gateways:
            simulator.sync(name)
        for pod, body in simulator.pods.items():
            if number_of(pod) == "r2":
                simulator.pods[pod] = {**body, "status": {**STARTING, "initContainerStatuses": [running]}}
        simulator.now += timedelta(seconds=2)
        simulator.reconcile()
    assert simulator.rollout["state"] in ("Starting", "Promoting")
    running["lastState"] = {"terminated": {"exitCode": 1, "message": ""}}
    for _ in range(30):
        simulator.now += timedelta(seconds=2)
        simulator.reconcile()
    assert simulator.rollout["state"] == "RolledBack"
