"""The operator dies after every number of writes of a whole change, and the end is always the same.

The simulated API server stands for the real one: tests/integration/controller/test_crash.py holds the writes
of one whole change against those that the real one gets, and kills before one write of each class there.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import pytest
from tailbound.reconcile.model import Plan

from tests.unit.reconcile.objects import model, service
from tests.unit.reconcile.rollouts import SLA, judged
from tests.unit.reconcile.simulator import Simulator

MOST_WRITES: Final = 80
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
    """An operator that dies once, and one that follows it and remembers nothing."""

    left: int | None = None
    """Writes, of children and of status, until it dies; none if it does not, or has died."""
    traffic_of_a_round: Callable[["Mortal"], None] = field(default=lambda _: None)

    def reconcile(self, *, crash_after: int | None = None) -> Plan:
        """One decision, carried out until the operator dies."""
        plan = self.plan()
        writes = len(plan.writes) + (plan.status is not None)
        if self.left is None or writes <= self.left:
            self.left = None if self.left is None else self.left - writes
            return super().reconcile()
        after, self.left = self.left, None
        made = super().reconcile(crash_after=after)
        self.polls, self.queries = False, ()
        return made

    def run(self) -> None:
        """The cluster works until nothing changes any more."""
        quiet = 0
        for _ in range(MOST_ROUNDS):
            self.run_controllers()
            for pod in list(self.pods):
                self.make_ready(pod)
            for name in self.gateways:
                self.sync(name)
            self.traffic_of_a_round(self)
            plan = self.reconcile()
            self.now += timedelta(seconds=1)
            quiet = 0 if plan.writes or plan.status is not None else quiet + 1
            if quiet == QUIET_ROUNDS:
                return
        raise AssertionError(f"still changing after {MOST_ROUNDS} rounds: {self.service.get('status')}")

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
    calm.run()
    expected = calm.outcome()
    assert (expected["weights"], expected["rollout"]["state"]) == (weights, state)
    for writes in range(MOST_WRITES):
        mortal = change()
        mortal.left = writes
        mortal.run()
        assert mortal.outcome() == expected, f"killed after {writes} writes"
        if change is good:
            assert judged(mortal) == 800, f"killed after {writes} writes"
        if mortal.left is not None:
            break
    else:
        pytest.fail(f"still writing after {MOST_WRITES} writes")
    assert writes > 5
