"""A service on a simulated cluster that has only so many devices."""

from typing import Any

from tests.support.copies import remembered
from tests.support.simulated.objects import hardware_class, model, service
from tests.support.simulated.rollouts import SLA, around
from tests.support.simulated.simulator import Simulator

GPU: dict[str, Any] = {"resources": [{"name": "nvidia.com/gpu", "count": 1}]}


@remembered
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


def around_one(simulator: Simulator, **slow: float) -> dict[str, Any]:
    """The rollout after one more look, with these shares of slow requests, by revision."""
    around(simulator, **slow)
    return simulator.rollout


def pods_of(simulator: Simulator, number: str) -> list[str]:
    """The pods of the revision with this number, such as r2."""
    return [pod for pod in simulator.pods if f"-{number}-" in pod]
