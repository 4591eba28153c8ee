"""Rollouts of services without an error rate: failures are judged relative to the stable revision."""

from datetime import timedelta
from typing import Any

import pytest
from tailbound.reconcile.model import Event, Plan

from tests.support.simulated.cluster_state import number_of
from tests.support.simulated.rollouts import CANARY, begun
from tests.support.simulated.simulator import Simulator

LATENCY = {"latency": {"p99": "100ms"}}
HEALTHY: dict[str, float] = {}


def second(simulator: Simulator, requests: int, failing: dict[str, float]) -> Plan:
    """A second in which these fractions of the requests fail, by the number of the revision."""
    simulator.run_controllers()
    for pod in list(simulator.pods):
        simulator.make_ready(pod)
    revisions = simulator.names("ControllerRevision")
    fractions = {name: failing[number_of(name)] for name in revisions if number_of(name) in failing}
    for name, gateway in simulator.gateways.items():
        simulator.sync(name)
        gateway.serve(requests, {}, simulator.ready_revisions(), fractions)
    simulator.now += timedelta(seconds=1)
    return simulator.reconcile()


def ends(simulator: Simulator, requests: int, failing: dict[str, float]) -> list[Event]:
    """Until the rollout is over; the events on the way."""
    events: list[Event] = []
    for _ in range(400):
        events += second(simulator, requests, failing).events
        if simulator.rollout["state"] in ("Promoted", "RolledBack"):
            return events
    raise AssertionError(simulator.rollout)


CASES: dict[str, tuple[dict[str, Any], Any, dict[str, float], str]] = {
    "all-fail-of-a-canary": (CANARY, None, {"r2": 1.0}, "RolledBack"),
    "all-fail-with-blue-green": ({}, None, {"r2": 1.0}, "RolledBack"),
    "more-fail-than-of-stable": (CANARY, None, {"r1": 0.1, "r2": 0.3}, "RolledBack"),
    "stable-fails-as-often": (CANARY, None, {"r1": 0.1, "r2": 0.1}, "Promoted"),
    "stable-fails-more-often": (CANARY, None, {"r1": 0.3, "r2": 0.1}, "Promoted"),
    "none-fails": (CANARY, None, HEALTHY, "Promoted"),
    "fast-failures-beside-a-latency-target": (CANARY, LATENCY, {"r2": 0.3}, "RolledBack"),
    "only-a-latency-target": (CANARY, LATENCY, HEALTHY, "Promoted"),
}


@pytest.mark.parametrize(("rollout", "sla", "failing", "end"), CASES.values(), ids=CASES)
def test_a_release_without_an_error_rate_is_compared_with_stable(
    rollout: dict[str, Any], sla: Any, failing: dict[str, float], end: str
) -> None:
    simulator = begun(rollout, sla=sla)
    ends(simulator, 1000, failing)
    assert simulator.rollout["state"] == end
    if end == "RolledBack":
        assert simulator.rollout["reason"] == "Failing"
        assert "a greater share than of the stable revision" in simulator.rollout["message"]


def test_failures_that_prove_nothing_yet_are_not_passed() -> None:
    simulator = begun(CANARY, sla=None)
    for _ in range(100):
        second(simulator, 20, {"r2": 0.0})
    assert simulator.weights()["r2"] > 10
    few = begun({**CANARY, "analysis": {"warmupRequests": 0}}, sla=None)
    for _ in range(100):
        second(few, 10, {"r1": 0.5, "r2": 1.0})
    assert (few.weights().get("r2", 0), few.rollout["state"]) in {(10, "Analysing"), (0, "RolledBack")}


def told(simulator: Simulator) -> tuple[str, str]:
    return simulator.condition("Judged")


def test_what_is_not_judged_is_reported_with_the_first_rollout() -> None:
    simulator = begun(CANARY, sla=None)
    events = ends(simulator, 1000, HEALTHY)
    assert told(simulator) == ("False", "NotJudged")
    for word in ("spec.sla.latency.p99", "spec.sla.errorRate", "1 %", "1.5 times"):
        assert word in simulator.message("Judged")
    assert [event.reason for event in events].count("NotJudged") == 1
    simulator.edit(sla={**LATENCY, "errorRate": "1%"})
    simulator.settle()
    assert "Judged" not in {each["type"] for each in simulator.service["status"]["conditions"]}


def test_a_promotion_without_a_single_request_says_so() -> None:
    simulator = begun(CANARY, sla=None)
    ends(simulator, 0, HEALTHY)
    assert simulator.rollout["state"] == "Promoted"
    assert "none of its requests was judged" in simulator.rollout["message"]
