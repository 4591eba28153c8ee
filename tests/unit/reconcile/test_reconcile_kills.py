"""The operator dies after every number of writes of a whole change, and the end is always the same.

The simulated API server stands for the real one: tests/integration/controller/test_crash.py holds the writes
of a creation and a rollover against those that the real one gets, and kills before a creation, a status and a
deletion there.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import pytest

from tests.support.simulated.objects import model, service
from tests.support.simulated.rollouts import SLA, judged
from tests.support.simulated.simulator import Simulator

MOST_ROUNDS: Final = 300
QUIET_ROUNDS: Final = 8
CANARY: Final = {
    "strategy": "canary",
    "steps": [{"weight": 50}],
    "promotion": "manual",
    "minStepTime": "1s",
    "scaleDownDelay": "1s",
    "analysis": {"warmupRequests": 0},
}
IN_PLACE: Final = {"capacity": "inPlace", "scaleDownDelay": "0s", "minStepTime": "1s"}


@dataclass
class Mortal(Simulator):
    """A service in a cluster that works, and an operator that may die at any write."""

    traffic_of_a_round: Callable[["Mortal"], None] = field(default=lambda _: None)

    def run(self, killed: list["Mortal"] | None = None) -> None:
        """The cluster works until nothing changes any more.

        To `killed` a copy is added for each write, of a child or of the status: as an operator that died
        before it left the cluster.
        """
        quiet = 0
        for _ in range(MOST_ROUNDS):
            self.work()
            self.traffic_of_a_round(self)
            before = None if killed is None else copy.deepcopy(self)
            plan = self.reconcile()
            self.now += timedelta(seconds=1)
            writes = len(plan.writes) + (plan.status is not None)
            if killed is not None and before is not None:
                killed += [before.dead_after(done) for done in range(writes)]
            quiet = 0 if writes else quiet + 1
            if quiet == QUIET_ROUNDS:
                return
        raise AssertionError(f"still changing after {MOST_ROUNDS} rounds: {self.service.get('status')}")

    def dead_after(self, writes: int) -> "Mortal":
        """A copy whose operator died in its next decision after so many writes, and remembers nothing."""
        left = copy.deepcopy(self)
        left.reconcile(crash_after=writes)
        left.polls, left.queries = False, ()
        left.now += timedelta(seconds=1)
        return left

    def outcome(self) -> dict[str, Any]:
        """What must not depend on where the operator died."""
        rollout = self.rollout
        return {
            "objects": sorted(self.objects),
            "replicas": {
                name: self.objects["Deployment", name]["spec"]["replicas"]
                for name in self.names("Deployment")
            },
            "marks": [
                sorted(each["metadata"].get("annotations", {})) for each in self.of("ControllerRevision")
            ],
            "weights": self.weights(),
            "rollout": {key: rollout.get(key) for key in ("revision", "state", "reason", "step", "weight")},
            "conditions": {each["type"]: each["reason"] for each in self.service["status"]["conditions"]},
        }


def serving(rollout: dict[str, Any], pods: int = 2, **fields: Any) -> Mortal:
    simulator = Mortal(service=service(rollout=rollout, scaling={"min": pods}, **fields))
    simulator.run()
    return simulator


def creation() -> Mortal:
    return Mortal(service=service(scaling={"min": 2}, rollout={"scaleDownDelay": "1s"}))


def rollover() -> Mortal:
    simulator = serving({"scaleDownDelay": "1s"})
    simulator.edit(model=model("b"))
    return simulator


def one_burst(simulator: Mortal) -> None:
    """800 requests at each gateway once half of them go to the candidate."""
    if simulator.weights() == {"r1": 50, "r2": 50}:
        for gateway in simulator.gateways.values():
            if not any("-r2-" in revision for revision in gateway.counted) and len(gateway.backends) == 2:
                gateway.serve(800, {}, simulator.ready_revisions())


def slow_candidate(simulator: Mortal) -> None:
    simulator.traffic(1000, r2=0.2)


def good() -> Mortal:
    simulator = serving(CANARY, sla=SLA)
    simulator.traffic_of_a_round = one_burst
    simulator.edit(model=model("b"))
    return simulator


def slow() -> Mortal:
    simulator = serving(CANARY, sla=SLA)
    simulator.traffic_of_a_round = slow_candidate
    simulator.edit(model=model("b"))
    return simulator


def in_place() -> Mortal:
    simulator = serving(IN_PLACE, pods=3)
    simulator.devices = 3
    simulator.edit(model=model("b"))
    return simulator


def return_in_place() -> Mortal:
    simulator = serving(IN_PLACE)
    simulator.devices = 2
    simulator.edit(model=model("b"))
    simulator.run()
    simulator.annotate(rollback_to=f"{simulator.names('ControllerRevision')[0]}/1")
    return simulator


CHANGES: Final = {
    "creation": (creation, {"r1": 100}, "Promoted"),
    "rollover": (rollover, {"r2": 100}, "Promoted"),
    "good-canary": (good, {"r1": 50, "r2": 50}, "Paused"),
    "slow-canary": (slow, {"r1": 100}, "RolledBack"),
    "in-place": (in_place, {"r2": 100}, "Promoted"),
    "return-in-place": (return_in_place, {"r1": 100}, "RolledBack"),
}


@pytest.mark.parametrize(("change", "weights", "state"), CHANGES.values(), ids=CHANGES)
def test_every_kill_ends_where_no_kill_ends(
    change: Callable[[], Mortal], weights: dict[str, int], state: str
) -> None:
    calm = change()
    killed: list[Mortal] = []
    calm.run(killed)
    expected = calm.outcome()
    assert (expected["weights"], expected["rollout"]["state"]) == (weights, state)
    for writes, mortal in enumerate(killed):
        mortal.run()
        assert mortal.outcome() == expected, f"killed after {writes} writes"
        if change is good:
            assert judged(mortal) == 800, f"killed after {writes} writes"
    assert len(killed) > 5
