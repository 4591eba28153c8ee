"""Rollouts in the simulated cluster, in a few words."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tailbound.reconcile.model import Plan

from tests.support.copies import remembered
from tests.support.simulated.objects import model, service
from tests.support.simulated.simulator import Simulator

SLA = {"latency": {"p99": "100ms"}, "errorRate": "1%"}
CANARY: dict[str, Any] = {"strategy": "canary", "steps": [{"weight": 10}, {"weight": 50}]}


@remembered
def begun(rollout: dict[str, Any] | None = None, *, replicas: int = 4, sla: Any = SLA) -> Simulator:
    """A service that serves, whose spec was just changed."""
    simulator = Simulator(
        service=service(
            sla=sla or {}, rollout=CANARY if rollout is None else rollout, scaling={"min": replicas}
        )
    )
    simulator.settle()
    simulator.edit(model=model("b"))
    return simulator


def around(simulator: Simulator, **slow: float) -> Plan:
    """Two seconds in a cluster where everything works."""
    simulator.work()
    simulator.traffic(1000, **slow)
    simulator.now += timedelta(seconds=1)
    return simulator.reconcile()


def until(
    simulator: Simulator, holds: Callable[[dict[str, Any]], bool], rounds: int = 200, **slow: float
) -> None:
    """Until status.rollout is so."""
    for _ in range(rounds):
        around(simulator, **slow)
        if holds(simulator.rollout):
            return
    raise AssertionError(simulator.rollout)


def state(*wanted: str) -> Callable[[dict[str, Any]], bool]:
    """The rollout is in one of these states."""
    return lambda rollout: rollout["state"] in wanted


def judged(simulator: Simulator) -> float:
    """Requests of the canary that were judged."""
    return float(simulator.rollout["findings"][0]["requests"])


@remembered
def judging(**fields: Any) -> Simulator:
    """At the first step, with some requests judged already."""
    simulator = begun(**fields)
    for _ in range(10):
        around(simulator)
    assert simulator.weights() == {"r1": 90, "r2": 10}
    assert judged(simulator) > 0
    return simulator


def replicas(simulator: Simulator) -> dict[str, int]:
    """Pods that every Deployment asks for, by the number of its revision."""
    return {
        name.split("-")[1]: stored["spec"]["replicas"]
        for (kind, name), stored in simulator.objects.items()
        if kind == "Deployment"
    }


@remembered
def promoted_and_alone() -> Simulator:
    """The new revision has everything, and the old one no pods."""
    simulator = begun({}, sla=None)
    simulator.settle()
    assert replicas(simulator) == {"r2": 4}
    return simulator
