"""Edits of what a candidate is judged by during a rollout: evidence for one bound never proves another."""

from typing import Any

import pytest

from tests.support.copies import remembered
from tests.support.simulated.objects import model, service
from tests.support.simulated.rollouts import around, begun, judged, until
from tests.support.simulated.simulator import Simulator
from tests.unit.reconcile.trials import Trial

STEPS = [{"weight": 5}, {"weight": 50}]
CANARY: dict[str, Any] = {"strategy": "canary", "steps": STEPS}
FAST: dict[str, Any] = {"latency": {"p99": "100ms"}, "errorRate": "1%"}


@remembered
def passed_manually_only() -> Simulator:
    """The canary has passed with half of the requests, and somebody has to promote it."""
    simulator = begun({**CANARY, "promotion": "manual"}, sla=FAST)
    until(simulator, lambda rollout: rollout["reason"] == "AwaitingPromotion")
    return simulator


HARDER: dict[str, dict[str, Any]] = {
    "lower-latency": {"sla": {**FAST, "latency": {"p99": "50ms"}}},
    "another-latency": {"sla": {**FAST, "latency": {"p99": "200ms"}}},
    "fewer-errors": {"sla": {**FAST, "errorRate": "0.5%"}},
    "another-proof-of-few-errors": {
        "rollout": {**CANARY, "promotion": "manual", "analysis": {"minErrorRate": "5%"}}
    },
}
NO_HARDER: dict[str, dict[str, Any]] = {
    "no-latency": {"sla": {"errorRate": "1%"}},
    "no-bound": {"sla": {}},
    "another-policy": {"rollout": {**CANARY, "promotion": "manual", "analysis": {"policy": "relative"}}},
    "a-warm-up": {"rollout": {**CANARY, "promotion": "manual", "analysis": {"warmupRequests": 500}}},
    "another-time": {"rollout": {**CANARY, "promotion": "manual", "minStepTime": "1s", "maxStepTime": "5m"}},
}


@pytest.mark.parametrize("edit", HARDER.values(), ids=HARDER)
def test_what_passed_has_to_pass_again_by_another_bound(edit: dict[str, Any]) -> None:
    simulator = passed_manually_only()
    simulator.edit(**edit)
    around(simulator)
    assert simulator.rollout["passed"] == 0
    assert simulator.weights() == {"r1": 50, "r2": 50}, "and the weight stays"
    assert simulator.rollout["state"] == "Analysing"
    around(simulator)
    until(simulator, lambda rollout: rollout["reason"] == "AwaitingPromotion")
    assert simulator.rollout["passed"] == 50


@pytest.mark.parametrize("edit", NO_HARDER.values(), ids=NO_HARDER)
def test_what_passed_stays_passed_where_nothing_more_is_asked(edit: dict[str, Any]) -> None:
    simulator = passed_manually_only()
    simulator.edit(**edit)
    for _ in range(3):
        around(simulator)
        assert (simulator.rollout["passed"], simulator.rollout["reason"]) == (50, "AwaitingPromotion")


def test_a_bad_one_does_not_pass_a_tighter_bound_with_what_it_showed_before() -> None:
    simulator = begun({**CANARY, "promotion": "manual"}, sla={"errorRate": "5%"})
    until(simulator, lambda rollout: rollout["reason"] == "AwaitingPromotion")
    simulator.edit(sla={"errorRate": "5%", "latency": {"p99": "50ms"}})
    until(simulator, lambda rollout: rollout["state"] == "RolledBack", r2=0.5)
    assert simulator.rollout["reason"] == "Slow"


def test_latencies_count_only_once_every_gateway_counts_by_the_new_target() -> None:
    simulator = begun(CANARY, sla=FAST)
    until(simulator, lambda rollout: rollout.get("weight") == 50 and "stepStartedAt" in rollout)
    simulator.edit(sla={**FAST, "latency": {"p99": "10ms"}})
    for _ in range(20):
        simulator.sync("gateway-a")
        simulator.traffic(1000)
        simulator.reconcile()
        assert judged(simulator) == 0
        assert (simulator.rollout["passed"], simulator.weights()) == (0, {"r1": 50, "r2": 50})
    around(simulator)
    around(simulator)
    assert judged(simulator) > 0
    until(simulator, lambda rollout: rollout["state"] == "RolledBack", r2=0.5)


def test_what_condemns_by_one_bound_condemns_by_no_other() -> None:
    simulator = begun(CANARY, sla={"errorRate": "1%", "latency": {"p99": "10ms"}})
    until(simulator, lambda rollout: rollout.get("weight") == 5 and "stepStartedAt" in rollout)
    for _ in range(2):
        around(simulator, r1=0.5, r2=0.5)
    simulator.edit(sla={"errorRate": "1%", "latency": {"p99": "100ms"}})
    until(simulator, lambda rollout: rollout["state"] == "Promoted")


def test_what_no_bound_holds_up_any_more_goes_on_when_no_request_can_hang_any_more() -> None:
    trial = Trial(service=service(rollout={**CANARY, "minStepTime": "2s"}, sla=FAST))
    trial.go(6)
    trial.requests = 0
    trial.edit(model=model("b"))
    trial.go(20)
    assert (trial.rollout["state"], trial.weights()) == ("Analysing", {"r1": 95, "r2": 5})
    trial.edit(sla={})
    for _ in range(40):
        trial.go(1)
        if trial.weights() == {"r1": 50, "r2": 50}:
            break
    assert (trial.rollout["passed"], trial.weights()) == (5, {"r1": 50, "r2": 50})
