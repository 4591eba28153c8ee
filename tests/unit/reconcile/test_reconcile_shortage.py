"""Rollouts in a simulated cluster whose nodes are full.

Whose pods give way when is in tests/unit/rollout/test_in_place.py and test_rollback_capacity.py, row by row.
"""

from datetime import timedelta

import pytest

from tests.support.copies import remembered
from tests.support.effort import covering
from tests.support.simulated.objects import model
from tests.support.simulated.rollouts import CANARY, around, replicas, state, until
from tests.support.simulated.simulator import Simulator
from tests.unit.reconcile.full_nodes import around_one, full, pods_of


def test_a_canary_without_a_device_waits_for_one_and_says_which() -> None:
    simulator = full(CANARY, replicas=4, devices=4)
    until(simulator, lambda rollout: rollout["reason"] == "Unschedulable")
    message = simulator.rollout["message"]
    assert "nvidia.com/gpu 1 (HardwareClass gpu-l4)" in message
    assert "Insufficient nvidia.com/gpu" in message
    for _ in range(3):
        simulator.now += timedelta(hours=1)
        around(simulator)
    assert (simulator.rollout["state"], simulator.rollout["message"]) == ("Starting", message)
    assert simulator.weights() == {"r1": 100}
    assert simulator.condition("Ready") == ("False", "Unschedulable")
    assert simulator.condition("Promoted") == ("Unknown", "Unschedulable")
    assert simulator.condition("Stalled") == ("False", "NotStalled")
    simulator.devices = 8
    until(simulator, state("Promoted"))
    assert simulator.weights() == {"r2": 100}


def test_a_later_step_waits_for_capacity_with_the_weight_that_it_has() -> None:
    simulator = full(CANARY, replicas=4, devices=5)
    until(simulator, lambda rollout: rollout.get("step") == 1 and rollout["reason"] == "Unschedulable")
    simulator.now += timedelta(hours=1)
    around(simulator)
    assert (simulator.rollout["state"], simulator.weights()) == ("Analysing", {"r1": 90, "r2": 10})


def test_a_revision_that_lacks_capacity_is_reported_without_a_write_at_every_look() -> None:
    simulator = full({}, replicas=2, devices=2)
    until(simulator, lambda rollout: rollout["reason"] == "Unschedulable")
    for _ in range(2):
        simulator.now += timedelta(minutes=20)
        plan = simulator.reconcile()
    assert (plan.writes, plan.status, plan.events) == ((), None, ())


def walk(simulator: Simulator, **slow: float) -> list[tuple[dict[str, int], dict[str, int]]]:
    """Weights and pods of each stage until the rollout is over."""
    seen: list[tuple[dict[str, int], dict[str, int]]] = []
    while not state("Promoted", "RolledBack")(around_one(simulator, **slow)):
        stage = (simulator.weights(), replicas(simulator))
        if not seen or seen[-1] != stage:
            seen.append(stage)
        assert len(seen) < 60, seen
    return seen


@pytest.mark.parametrize(
    ("pods", "strategy", "capacity"), covering((2, 3, 4, 7), ("blueGreen", "canary"), ("inPlace", "auto"))
)
def test_in_place_a_rollout_needs_no_spare_device(pods: int, strategy: str, capacity: str) -> None:
    simulator = full({"strategy": strategy, "capacity": capacity}, replicas=pods, devices=pods)
    stages = walk(simulator)
    assert simulator.rollout["state"] == "Promoted"
    assert all(stage["r1"] >= 1 for _, stage in stages if "r1" in stage)
    assert max(stage.get("r2", 0) for _, stage in stages) >= pods - 1
    shares = [weights.get("r2", 0) for weights, _ in stages]
    assert shares == sorted(shares)
    assert strategy == "canary" or {*shares} == {100 * done // (pods - 1) for done in range(pods)}
    simulator.settle()
    assert (simulator.weights(), replicas(simulator)) == ({"r2": 100}, {"r2": pods})


def test_a_bad_revision_in_place_makes_way_for_the_pods_whose_places_it_took() -> None:
    simulator = full({"strategy": "canary", "capacity": "inPlace"}, replicas=4, devices=4)
    walk(simulator, r2=0.5)
    assert (simulator.rollout["state"], simulator.rollout["reason"]) == ("RolledBack", "Slow")
    assert (simulator.weights(), replicas(simulator)["r1"]) == ({"r1": 100}, 4)
    simulator.settle()
    assert replicas(simulator) == {"r1": 4}
    assert len(simulator.pods) == simulator.ready_pods() == 4


def test_a_revision_in_place_that_never_gets_ready_costs_one_pod_and_is_rejected() -> None:
    simulator = full({"capacity": "inPlace"}, replicas=3, devices=3)
    for _ in range(8):
        simulator.work(lambda pod: simulator.make_ready(pod, ready="-r1-" in pod))
        simulator.reconcile()
    assert (simulator.rollout["state"], replicas(simulator)) == ("Starting", {"r1": 2, "r2": 1})
    simulator.now += timedelta(minutes=11)
    simulator.reconcile()
    assert (simulator.rollout["state"], simulator.rollout["reason"]) == ("RolledBack", "DeadlineExceeded")
    assert replicas(simulator)["r1"] == 3


def test_a_return_to_an_older_revision_says_that_it_waits_for_capacity() -> None:
    simulator = full({}, replicas=2, devices=4)
    simulator.settle()
    old, new = simulator.names("ControllerRevision")
    simulator.devices = 2
    simulator.annotate(rollback_to=old)
    until(simulator, lambda rollout: "waits for capacity" in rollout["message"])
    assert "nvidia.com/gpu 1 (HardwareClass gpu-l4)" in simulator.rollout["message"]
    assert simulator.serving() == [new]
    simulator.devices = 4
    until(simulator, state("RolledBack"))
    assert simulator.serving() == [old]


@remembered
def promoted(capacity: str, *, replicas: int, devices: int | None = None) -> Simulator:
    """The second revision serves for good, with all devices."""
    simulator = full({"capacity": capacity}, replicas=replicas, devices=2 * replicas)
    simulator.settle()
    simulator.devices = replicas if devices is None else devices
    assert simulator.weights() == {"r2": 100}
    return simulator


def go_round(simulator: Simulator, dead: str) -> None:
    """A look at a cluster where everything works but the pods of one revision."""

    def kubelet(pod: str) -> None:
        if f"-{dead}-" in pod:
            simulator.crash(pod, restarts=1)
        else:
            simulator.make_ready(pod)

    simulator.work(kubelet)
    simulator.reconcile()


def lost(simulator: Simulator) -> None:
    """The promoted revision is dead for longer than its deadline."""
    for _ in range(3):
        go_round(simulator, "r2")
    simulator.now += timedelta(minutes=11)
    go_round(simulator, "r2")
    assert simulator.rollout["reason"] == "Lost"


@pytest.mark.parametrize("capacity", ["surge", "inPlace", "auto"])
@pytest.mark.parametrize("pods", [1, 2, 4])
def test_a_lost_revision_makes_way_for_the_one_before_on_full_nodes(capacity: str, pods: int) -> None:
    simulator = promoted(capacity, replicas=pods)
    lost(simulator)
    for _ in range(12):
        go_round(simulator, "r2")
    assert (simulator.rollout["state"], simulator.rollout["reason"]) == ("RolledBack", "Lost")
    assert (simulator.weights(), replicas(simulator)) == ({"r1": 100}, {"r1": pods})
    assert simulator.ready_pods() == pods


def test_a_lost_revision_keeps_a_pod_that_may_recover_and_then_it_serves() -> None:
    simulator = promoted("auto", replicas=4)
    lost(simulator)
    while len(pods_of(simulator, "r2")) > 1:
        go_round(simulator, "r2")
    assert simulator.weights() == {"r2": 100}
    for _ in range(20):
        go_round(simulator, "r1")
    assert (simulator.weights(), replicas(simulator)) == ({"r2": 100}, {"r2": 4})
    assert simulator.condition("Ready") == ("True", "Serving")


def test_with_surge_a_return_waits_for_capacity_and_every_word_says_what_to_do() -> None:
    simulator = promoted("surge", replicas=2)
    simulator.annotate(rollback_to=simulator.names("ControllerRevision")[0])
    for _ in range(4):
        around(simulator)
    assert replicas(simulator) == {"r1": 2, "r2": 2}
    for told in (simulator.rollout["message"], simulator.message("Reconciling")):
        assert "waits for capacity" in told
        assert "nvidia.com/gpu 1 (HardwareClass gpu-l4)" in told
        assert "set spec.rollout.capacity to auto" in told
    simulator.edit(rollout={"capacity": "auto"})
    until(simulator, state("RolledBack"))
    simulator.settle()
    assert (simulator.weights(), replicas(simulator)) == ({"r1": 100}, {"r1": 2})


def returned(simulator: Simulator) -> list[tuple[dict[str, int], dict[str, int]]]:
    """Weights and pods of each stage of a manual return; never is more than one pod missing."""
    old = simulator.names("ControllerRevision")[0]
    whole = replicas(simulator)["r2"]
    simulator.annotate(rollback_to=old)
    seen: list[tuple[dict[str, int], dict[str, int]]] = []
    while not state("RolledBack")(around_one(simulator)):
        seen.append((simulator.weights(), replicas(simulator)))
        assert simulator.ready_pods() >= whole - 1
        assert len(seen) < 60, seen
    return seen


@pytest.mark.parametrize("capacity", ["inPlace", "auto"])
@pytest.mark.parametrize("pods", [2, 3, 4, 7])
def test_a_manual_return_replaces_pods_in_place_one_after_the_other(capacity: str, pods: int) -> None:
    simulator = promoted(capacity, replicas=pods)
    stages = returned(simulator)
    assert all(stage["r2"] >= 1 for _, stage in stages)
    weights = [weights.get("r1", 0) for weights, _ in stages]
    assert weights == sorted(weights)
    simulator.settle()
    assert (simulator.weights(), replicas(simulator)) == ({"r1": 100}, {"r1": pods})


@pytest.mark.parametrize("capacity", ["inPlace", "auto"])
def test_the_only_pod_that_serves_is_not_given_up_for_a_return(capacity: str) -> None:
    simulator = promoted(capacity, replicas=1)
    simulator.annotate(rollback_to=simulator.names("ControllerRevision")[0])
    until(simulator, lambda rollout: "waits for capacity" in rollout["message"])
    assert "The only pod of" in simulator.rollout["message"]
    assert (simulator.weights(), replicas(simulator)["r2"]) == ({"r2": 100}, 1)
    assert simulator.condition("Ready") == ("True", "Serving")
    assert "nvidia.com/gpu 1 (HardwareClass gpu-l4)" in simulator.message("Reconciling")
    simulator.devices = 2
    until(simulator, state("RolledBack"))


@remembered
def changing(pods: int) -> Simulator:
    """The second revision has most of the places, and of the requests."""
    simulator = full({"capacity": "inPlace"}, replicas=pods, devices=pods)
    until(simulator, lambda rollout: rollout.get("weight", 0) > 50)
    assert replicas(simulator)["r1"] < pods - 1
    return simulator


def test_the_stable_spec_gets_its_places_back_one_after_the_other() -> None:
    simulator = changing(4)
    simulator.edit(model=model("a"))
    for _ in range(30):
        around(simulator)
        assert simulator.ready_pods() >= 3
    assert (simulator.weights(), replicas(simulator)) == ({"r1": 100}, {"r1": 4})
    assert simulator.condition("Ready") == ("True", "Serving")


def test_a_third_spec_waits_for_the_stable_revision_to_have_its_places_back() -> None:
    simulator = changing(4)
    simulator.edit(model=model("c"))
    for _ in range(60):
        around(simulator)
        assert simulator.ready_pods() >= 3
        assert set(simulator.weights()) != {"r2", "r3"}
    simulator.settle()
    assert (simulator.weights(), replicas(simulator)) == ({"r3": 100}, {"r3": 4})


@pytest.mark.parametrize("capacity", ["surge", "inPlace", "auto"])
@pytest.mark.parametrize("pods", [1, 2, 4])
def test_dead_pods_make_way_for_a_new_spec_at_once(capacity: str, pods: int) -> None:
    simulator = promoted(capacity, replicas=pods)
    for _ in range(2):
        go_round(simulator, "r2")
    simulator.edit(model=model("c"))
    for _ in range(12):
        go_round(simulator, "r2")
    assert simulator.weights() == {"r3": 100}
    assert replicas(simulator)["r3"] >= max(pods - 1, 1)


def test_the_stable_revision_grows_again_after_a_bad_one_in_place() -> None:
    simulator = full({"strategy": "canary", "capacity": "inPlace"}, replicas=3, devices=3)
    walk(simulator, r2=0.5)
    simulator.devices = 5
    simulator.edit(scaling={"min": 5})
    simulator.settle()
    assert (replicas(simulator), simulator.ready_pods()) == ({"r1": 5}, 5)
