"""Rollouts in a simulated cluster whose nodes are full."""

from datetime import timedelta
from typing import Any

from tests.unit.reconcile.simulator import Simulator, hardware_class, service
from tests.unit.reconcile.test_reconcile_rollouts import CANARY, SLA, around, model, state, until

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
