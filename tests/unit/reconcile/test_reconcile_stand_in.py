"""A dead stable revision, and a canary that serves meanwhile, are in nobody's way: a fix takes over."""

from datetime import timedelta
from typing import Any

import pytest

from tests.support.copies import remembered
from tests.support.simulated.objects import model
from tests.support.simulated.rollouts import begun, state
from tests.support.simulated.simulator import Simulator

CANARY: dict[str, Any] = {"strategy": "canary", "steps": [{"weight": 50}], "minStepTime": "2s"}


def pods_of(simulator: Simulator, number: str) -> list[str]:
    return sorted(pod for pod in simulator.pods if f"-{number}-" in pod)


def look(simulator: Simulator, *dead: str, **slow: float) -> None:
    """Two seconds in which every pod gets ready but those of the dead revisions."""
    simulator.work(lambda pod: simulator.make_ready(pod, pod.split("-")[1] not in dead))
    simulator.traffic(1000, **slow)
    simulator.now += timedelta(seconds=1)
    simulator.reconcile()


@remembered
def with_a_canary_in_place_of_stable(rollout: dict[str, Any], sla: Any) -> Simulator:
    """The stable revision has died, and all requests go to the canary beside it."""
    simulator = begun(rollout, replicas=2, sla=sla)
    for _ in range(20):
        look(simulator)
        if simulator.weights() == {"r1": 50, "r2": 50}:
            break
    for _ in range(3):
        look(simulator, "r1")
    assert simulator.weights() == {"r2": 100}
    return simulator


@pytest.mark.parametrize("rejected", [False, True], ids=["canary-unjudged", "canary-rejected"])
@pytest.mark.parametrize("strategy", ["canary", "blueGreen"])
def test_a_fix_takes_over_from_what_serves_in_place_of_a_dead_stable_revision(
    strategy: str, rejected: bool
) -> None:
    simulator = with_a_canary_in_place_of_stable(CANARY | {"minStepTime": "10m"}, None)
    if rejected:
        simulator.annotate(abort=simulator.names("ControllerRevision")[1])
        for _ in range(3):
            look(simulator, "r1")
        assert simulator.weights() == {"r2": 100}, "better than nothing"
    simulator.edit(
        model=model("c"),
        rollout=CANARY if strategy == "canary" else {"strategy": strategy, "scaleDownDelay": "2s"},
    )
    for _ in range(60):
        look(simulator, "r1")
        assert simulator.weights(), "something always serves"
        if simulator.rollout["state"] == "Promoted":
            break
    assert simulator.rollout["revision"].startswith("churn-r3")
    assert state("Promoted")(simulator.rollout)
    assert simulator.weights() == {"r3": 100}


def test_a_bad_fix_goes_back_to_what_served_which_is_not_promoted_by_that() -> None:
    simulator = with_a_canary_in_place_of_stable(
        CANARY | {"minStepTime": "10m"}, {"latency": {"p99": "100ms"}, "errorRate": "1%"}
    )
    second = simulator.names("ControllerRevision")[1]
    simulator.edit(model=model("c"), rollout=CANARY)
    for _ in range(60):
        look(simulator, "r1", r3=0.5)
        if simulator.rollout["state"] == "RolledBack":
            break
    for _ in range(3):
        look(simulator, "r1")
    assert simulator.rollout["revision"].startswith("churn-r3")
    assert simulator.weights() == {"r2": 100}
    assert second not in simulator.marked("stable")


def test_a_stable_revision_that_recovers_is_returned_to() -> None:
    simulator = with_a_canary_in_place_of_stable(CANARY | {"minStepTime": "10m"}, None)
    simulator.edit(model=model("c"), rollout=CANARY | {"minStepTime": "10m"})
    for _ in range(5):
        look(simulator, "r1")
    for _ in range(10):
        look(simulator)
    assert simulator.weights() == {"r1": 50, "r3": 50}
    assert simulator.rollout["from"].startswith("churn-r1")


def test_an_unpromoted_canary_gets_nothing_more_by_an_edit_to_recreate() -> None:
    simulator = begun(CANARY | {"promotion": "manual", "minStepTime": "10m"}, replicas=2, sla=None)
    for _ in range(20):
        look(simulator)
        if simulator.weights() == {"r1": 50, "r2": 50}:
            break
    simulator.edit(rollout={"strategy": "recreate", "promotion": "manual"})
    for _ in range(100):
        look(simulator)
        assert simulator.weights().get("r1", 0) >= 50
    assert simulator.rollout["reason"] == "AwaitingPromotion"
    simulator.annotate(promote=simulator.names("ControllerRevision")[1])
    simulator.settle()
    assert simulator.weights() == {"r2": 100}
