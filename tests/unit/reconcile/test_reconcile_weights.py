"""Weight follows ready pods of both sides: what stable lacks is not the canary's to carry."""

from datetime import timedelta
from typing import Any

import pytest

from tests.support.copies import remembered
from tests.support.simulated.objects import model
from tests.support.simulated.rollouts import around, begun, replicas, state, until
from tests.support.simulated.simulator import Simulator

THREE_OF_FOUR: dict[str, Any] = {"strategy": "canary", "steps": [{"weight": 75}]}


@remembered
def at_75() -> Simulator:
    """The second revision has 75 percent of the requests, on three of four pods."""
    simulator = begun(THREE_OF_FOUR)
    while simulator.service["status"]["traffic"]["backends"][-1]["weight"] != 75:
        around(simulator)
    around(simulator)
    return simulator


def one_unready(simulator: Simulator, number: str = "r1", count: int = 1) -> None:
    """Pods of a revision are not ready, and the operator has seen it."""
    pods = sorted(pod for pod in simulator.pods if f"-{number}-" in pod)
    for pod in pods[:count]:
        simulator.make_ready(pod, ready=False)


def look(simulator: Simulator) -> dict[str, int]:
    """Pods come as Deployments ask for them, gateways follow, and the operator looks."""
    simulator.run_controllers()
    for name in simulator.gateways:
        simulator.sync(name)
    simulator.traffic(400)
    simulator.reconcile()
    return simulator.weights()


@pytest.mark.parametrize("way", ["revert", "abort", "a newer spec", "rejection"])
def test_what_stable_can_carry_leaves_the_canary_at_once_and_the_rest_as_pods_come(way: str) -> None:
    simulator = at_75()
    first, second = simulator.names("ControllerRevision")
    one_unready(simulator, count=2)
    assert look(simulator) == {"r1": 25, "r2": 75}
    if way == "revert":
        simulator.edit(model=model("a"))
    elif way == "a newer spec":
        simulator.edit(model=model("c"))
    elif way == "abort":
        simulator.annotate(abort=second)
    else:
        simulator.crash(next(pod for pod in simulator.pods if pod.startswith(second)), restarts=3)
    assert [look(simulator) for _ in range(3)] == [{"r1": 50, "r2": 50}] * 3
    promised = simulator.condition("Promoted")
    assert promised[0] == ("False" if way in ("abort", "rejection") else "Unknown")
    assert simulator.condition("Ready")[0] != "True"
    assert simulator.rollout["state"] in ("Promoting", "Pending", "RolledBack")
    assert replicas(simulator)["r2"] == 3, "what has requests keeps its pods"
    for left in (25, 0):
        waiting = next(
            pod for pod, body in simulator.pods.items() if not body["status"].get("ready") and first in pod
        )
        simulator.make_ready(waiting)
        assert look(simulator).get("r2", 0) == left
    simulator.settle()
    assert set(replicas(simulator)) == ({"r1", "r3"} if way == "a newer spec" else {"r1"})


def test_a_stable_pod_that_never_comes_back_keeps_no_request_on_what_was_given_up() -> None:
    simulator = at_75()
    one_unready(simulator)
    simulator.edit(model=model("a"))
    assert look(simulator) == {"r1": 75, "r2": 25}
    plan = simulator.reconcile()
    assert plan.requeue_after is not None
    simulator.now += plan.requeue_after
    assert look(simulator) == {"r1": 100}
    assert simulator.condition("Promoted")[0] == "Unknown", "gateways have not applied it yet"
    look(simulator)
    assert simulator.condition("Promoted") == ("True", "Promoted")
    simulator.settle()
    assert set(replicas(simulator)) == {"r1"}


def test_a_return_to_an_older_revision_moves_what_its_ready_pods_carry() -> None:
    simulator = begun({}, sla=None)
    until(simulator, state("Promoted"))
    simulator.settle()
    simulator.annotate(rollback_to=simulator.names("ControllerRevision")[0])
    look(simulator)
    look(simulator)
    seen = []
    for pod in sorted(pod for pod in simulator.pods if "-r1-" in pod):
        simulator.make_ready(pod)
        seen.append(look(simulator)["r1"])
    assert seen == [25, 50, 75, 100]
    assert replicas(simulator) == {"r1": 4, "r2": 4}


def test_in_place_a_new_revision_that_loses_pods_has_as_much_on_each_as_stable() -> None:
    simulator = begun({"capacity": "inPlace", "scaleDownDelay": "10m"}, sla=None)
    simulator.devices = 4
    until(simulator, lambda found: found["weight"] == 100)
    one_unready(simulator, "r2", count=2)
    assert [look(simulator) for _ in range(2)] == [{"r1": 50, "r2": 50}] * 2


@remembered
def at_100(rollout: dict[str, Any]) -> Simulator:
    """The second revision has all requests, and stable is kept as the way back."""
    simulator = begun({"scaleDownDelay": "30s", "progressDeadline": "1m", **rollout}, sla=None)
    until(simulator, lambda found: found["weight"] == 100 and "stepStartedAt" in found)
    return simulator


@pytest.mark.parametrize("strategy", ["blueGreen", "canary"])
@pytest.mark.parametrize("recovers", [True, False])
def test_stable_stays_until_the_new_revision_carries_all_requests(strategy: str, recovers: bool) -> None:
    simulator = at_100({"strategy": strategy})
    one_unready(simulator, "r2", count=3)
    for _ in range(20):
        assert look(simulator) == {"r1": 75, "r2": 25}
        simulator.now += timedelta(seconds=2)
    assert replicas(simulator) == {"r1": 4, "r2": 4}
    assert simulator.condition("Promoted") == ("Unknown", "RollingOut")
    if recovers:
        around(simulator)
        assert simulator.weights() == {"r2": 100}
        assert replicas(simulator) == {"r1": 4, "r2": 4}, "the time of the way back begins again"
        until(simulator, state("Promoted"))
        assert simulator.weights() == {"r2": 100}
        return
    simulator.now += timedelta(minutes=1)
    assert look(simulator) == {"r1": 100}
    assert (simulator.rollout["state"], simulator.rollout["reason"]) == ("RolledBack", "DeadlineExceeded")


def test_pods_that_stable_lost_meanwhile_are_shared_out_by_what_is_ready() -> None:
    simulator = at_100({})
    one_unready(simulator, "r2", count=2)
    one_unready(simulator, "r1", count=3)
    assert [look(simulator) for _ in range(2)] == [{"r1": 25, "r2": 75}] * 2


def test_a_stable_revision_without_a_ready_pod_takes_back_what_each_one_that_comes_carries() -> None:
    simulator = at_75()
    one_unready(simulator, count=4)
    assert look(simulator) == {"r2": 100}
    seen = []
    for pod in sorted(pod for pod in simulator.pods if "-r1-" in pod):
        simulator.make_ready(pod)
        seen.append(look(simulator)["r2"])
    assert seen == [75, 75, 75, 75]
    simulator.edit(model=model("a"))
    assert look(simulator) == {"r1": 100}
