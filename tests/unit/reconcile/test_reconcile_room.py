"""Rollouts in a simulated cluster whose nodes are full."""

from datetime import timedelta
from typing import Any

import pytest

from tests.unit.reconcile.simulator import Simulator, hardware_class, service
from tests.unit.reconcile.test_reconcile_rollouts import CANARY, SLA, around, model, replicas, state, until

GPU: dict[str, Any] = {"resources": [{"name": "nvidia.com/gpu", "count": 1}]}


def full(rollout: dict[str, Any], *, replicas: int, devices: int) -> Simulator:
    """A service that serves on a cluster of so many devices, and whose spec was just changed."""
    simulator = Simulator(
        service=service(sla=SLA, rollout=rollout, scaling={"min": replicas}),
        hardware_classes={"gpu-l4": hardware_class("gpu-l4", **GPU)},
        devices=devices,
    )
    simulator.settle()
    simulator.edit(model=model("b"))
    return simulator


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


def test_a_later_step_waits_for_room_with_the_weight_that_it_has() -> None:
    simulator = full(CANARY, replicas=4, devices=5)
    until(simulator, lambda rollout: rollout.get("step") == 1 and rollout["reason"] == "Unschedulable")
    simulator.now += timedelta(hours=1)
    around(simulator)
    assert (simulator.rollout["state"], simulator.weights()) == ("Analysing", {"r1": 90, "r2": 10})


def test_a_revision_that_finds_no_room_is_told_without_a_write_at_every_look() -> None:
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


def around_one(simulator: Simulator, **slow: float) -> dict[str, Any]:
    around(simulator, **slow)
    return simulator.rollout


@pytest.mark.parametrize("capacity", ["inPlace", "auto"])
@pytest.mark.parametrize("strategy", ["blueGreen", "canary"])
@pytest.mark.parametrize("pods", [2, 3, 4, 7])
def test_in_place_a_rollout_needs_no_spare_device(capacity: str, strategy: str, pods: int) -> None:
    simulator = full({"strategy": strategy, "capacity": capacity}, replicas=pods, devices=pods)
    stages = walk(simulator)
    assert simulator.rollout["state"] == "Promoted"
    assert all(stage["r1"] >= 1 for _, stage in stages if "r1" in stage)
    assert max(stage.get("r2", 0) for _, stage in stages) >= pods - 1
    simulator.settle()
    assert (simulator.weights(), replicas(simulator)) == ({"r2": 100}, {"r2": pods})


def test_in_place_the_weight_climbs_with_the_pods_that_carry_it() -> None:
    simulator = full({"capacity": "inPlace"}, replicas=4, devices=4)
    weights = [weights.get("r2", 0) for weights, _ in walk(simulator)]
    assert sorted(set(weights)) == [0, 33, 66, 100]
    assert weights == sorted(weights)


def test_auto_comes_beside_where_there_is_room() -> None:
    simulator = full({"capacity": "auto"}, replicas=3, devices=6)
    assert all(pods["r1"] == 3 for _, pods in walk(simulator))


@pytest.mark.parametrize("capacity", ["inPlace", "auto"])
def test_the_only_pod_of_a_service_is_not_given_up(capacity: str) -> None:
    simulator = full({"capacity": capacity}, replicas=1, devices=1)
    until(simulator, lambda rollout: rollout["reason"] == "Unschedulable")
    simulator.now += timedelta(hours=1)
    around(simulator)
    assert (simulator.rollout["state"], replicas(simulator)["r1"]) == ("Starting", 1)


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
        simulator.run_controllers()
        for pod in [pod for pod in simulator.pods if "-r1-" in pod]:
            simulator.make_ready(pod)
        for name in simulator.gateways:
            simulator.sync(name)
        simulator.reconcile()
    assert (simulator.rollout["state"], replicas(simulator)) == ("Starting", {"r1": 2, "r2": 1})
    simulator.now += timedelta(minutes=11)
    simulator.reconcile()
    assert (simulator.rollout["state"], simulator.rollout["reason"]) == ("RolledBack", "DeadlineExceeded")
    assert replicas(simulator)["r1"] == 3


def test_a_return_to_an_older_revision_says_that_it_waits_for_room() -> None:
    simulator = full({}, replicas=2, devices=4)
    simulator.settle()
    old, new = simulator.names("ControllerRevision")
    simulator.devices = 2
    simulator.annotate(rollback_to=old)
    until(simulator, lambda rollout: "waits for room" in rollout["message"])
    assert "nvidia.com/gpu 1 (HardwareClass gpu-l4)" in simulator.rollout["message"]
    assert simulator.serving() == [new]
    simulator.devices = 4
    until(simulator, state("RolledBack"))
    assert simulator.serving() == [old]
