"""Nothing evades the deadline within which one more pod must get ready."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tailbound.api.conditions import Reason
from tailbound.reconcile.model import RefusedWrite

from tests.support.simulated.rollouts import begun, replicas
from tests.support.simulated.simulator import Simulator

DEADLINE = {"progressDeadline": "60s"}
ReadyAt = Callable[[int, int], bool]
"""Whether the n-th pod of the new revision is ready in this round."""


def watch(simulator: Simulator, ready_at: ReadyAt, *, rounds: int) -> int:
    """Two seconds a round; the number of the round in which the new revision is rejected."""
    for number in range(rounds):
        simulator.work()
        for index, pod in enumerate([pod for pod in simulator.pods if "-r2-" in pod]):
            simulator.make_ready(pod, ready_at(number, index))
        simulator.traffic(100)
        simulator.now += timedelta(seconds=1)
        simulator.reconcile()
        if simulator.rollout["state"] == "RolledBack":
            return number
    raise AssertionError(simulator.rollout)


FLAPPING: dict[str, ReadyAt] = {
    "every-other-look": lambda number, _: number % 2 == 0,
    "one-look-in-five": lambda number, _: number % 5 == 0,
    "all-but-one-look-in-five": lambda number, _: number % 5 != 0,
    "each-in-turn": lambda number, index: (number + index) % 3 == 0,
}


@pytest.mark.parametrize("ready_at", FLAPPING.values(), ids=FLAPPING)
@pytest.mark.parametrize("rollout", [{"strategy": "canary"}, {}], ids=["canary", "blueGreen"])
def test_a_pod_that_gets_ready_again_and_again_is_rejected(
    ready_at: ReadyAt, rollout: dict[str, Any]
) -> None:
    simulator = begun({**rollout, **DEADLINE}, replicas=1)
    watch(simulator, ready_at, rounds=200)
    assert simulator.rollout["reason"] in {"DeadlineExceeded", "Lost"}


def test_one_pod_without_capacity_does_not_stop_the_deadline_of_those_that_run() -> None:
    simulator = begun({**DEADLINE}, replicas=4)
    simulator.devices = 7
    assert watch(simulator, lambda _, __: False, rounds=40) <= 35


def test_a_pod_that_finds_a_place_and_loses_it_uses_the_deadline_up() -> None:
    simulator = begun({**DEADLINE}, replicas=1)

    def never(number: int, _: int) -> bool:
        simulator.devices = 1 if number % 4 == 0 else 2
        simulator.placed = {pod for pod in simulator.placed if "-r1-" in pod}
        return False

    assert watch(simulator, never, rounds=60) <= 50


@pytest.mark.parametrize("rollout", [{}, {"strategy": "canary"}], ids=["blueGreen", "canary"])
def test_a_deployment_that_is_refused_does_not_stop_the_deadline(rollout: dict[str, Any]) -> None:
    simulator = begun({**DEADLINE, **rollout}, replicas=2)
    simulator.reconcile(crash_after=1)
    name = simulator.names("ControllerRevision")[-1]
    refused = (RefusedWrite("Deployment", name, Reason.QUOTA_EXCEEDED, "exceeded quota: objects"),)
    looks = 0
    while simulator.rollout["state"] != "RolledBack":
        simulator.refused_writes = refused
        for gateway in simulator.gateways:
            simulator.sync(gateway)
        simulator.now += timedelta(seconds=1)
        simulator.reconcile()
        assert (replicas(simulator), simulator.weights()) == ({"r1": 2}, {"r1": 100})
        looks += 1
        assert looks < 40
    assert looks >= 25
    assert simulator.rollout["reason"] == "QuotaExceeded"
    assert "exceeded quota: objects" in simulator.rollout["message"]
    assert simulator.marked("rejected-at") == {name}


def test_only_time_without_capacity_is_left_out() -> None:
    simulator = begun({**DEADLINE}, replicas=4)
    simulator.devices = 7
    with pytest.raises(AssertionError):
        watch(simulator, lambda _, index: index < 3, rounds=60)
    assert simulator.rollout["reason"] == "Unschedulable"
    simulator.devices = 8
    assert 25 <= watch(simulator, lambda _, index: index < 3, rounds=60) <= 35
    assert replicas(simulator)["r1"] == 4
