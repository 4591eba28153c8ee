"""Rollouts that depend on Prometheus, in the simulated cluster: what its absence holds up, and what not."""

from datetime import timedelta
from typing import Any

import pytest
from tailbound.telemetry.prometheus import Series, Unavailable, Value

from tests.unit.reconcile.gateways import START
from tests.unit.reconcile.rollouts import CANARY, SLA, around, begun, state, until
from tests.unit.reconcile.simulator import Simulator

DOWN = Unavailable("Prometheus is not reached (ConnectionError)")
ACCURACY = {"name": "accuracy", "query": "accuracy{r='$revision'}", "min": 0.9, "interval": "2s"}


def with_metric(*, sla: Any = SLA, accuracy: float | None = 0.95) -> Simulator:
    """A canary that is watched for its accuracy as well."""
    simulator = begun({**CANARY, "minStepTime": "1s", "analysis": {"metrics": [ACCURACY]}}, sla=sla)
    answer(simulator, accuracy)
    return simulator


def answer(simulator: Simulator, accuracy: float | None, stable: float = 0.99) -> None:
    """What Prometheus says of both revisions from now on; None: it is down."""

    def asked(query: str) -> tuple[Series, ...] | Unavailable:
        at = (simulator.now - START).total_seconds()
        if accuracy is None:
            return DOWN
        return (Series({}, (Value(at, accuracy if "-r2-" in query else stable),)),)

    simulator.prometheus = asked


def found(simulator: Simulator) -> dict[str, Any]:
    """The verdict on the metric."""
    (metric,) = simulator.rollout["metrics"]
    return dict(metric)


@pytest.mark.parametrize("sla", [SLA, None])
def test_a_canary_that_keeps_the_bound_is_promoted(sla: Any) -> None:
    simulator = with_metric(sla=sla, accuracy=0.99)
    until(simulator, state("Promoted"), rounds=400)
    assert found(simulator)["outcome"] == "Pass"


@pytest.mark.parametrize("sla", [SLA, None])
def test_a_canary_that_breaches_the_bound_is_rolled_back_in_words(sla: Any) -> None:
    simulator = with_metric(sla=sla, accuracy=0.5)
    until(simulator, state("RolledBack"))
    assert simulator.rollout["reason"] == "MetricBreached"
    message = simulator.rollout["message"]
    assert "metric accuracy is 0.5 over " in message
    assert "must be at least 0.9" in message
    assert "worse than stable" in message


def test_a_bound_that_both_revisions_breach_holds_the_rollout_until_it_is_over() -> None:
    simulator = with_metric(accuracy=0.5)
    answer(simulator, 0.5, stable=0.5)
    until(simulator, lambda rollout: rollout["reason"] == "SharedBreach")
    assert "breaches the bound of metric accuracy" in simulator.rollout["message"]
    assert found(simulator)["outcome"] == "Hold"
    answer(simulator, 0.5)
    until(simulator, state("RolledBack"))


def test_with_the_policy_absolute_the_bound_alone_rolls_back() -> None:
    simulator = begun({**CANARY, "analysis": {"metrics": [ACCURACY], "policy": "absolute"}}, sla=None)
    answer(simulator, 0.5, stable=0.5)
    until(simulator, state("RolledBack"))
    assert "worse than stable" not in simulator.rollout["message"]


def test_with_the_policy_relative_a_worse_revision_is_rolled_back_within_its_bound() -> None:
    simulator = begun({**CANARY, "analysis": {"metrics": [ACCURACY], "policy": "relative"}}, sla=None)
    answer(simulator, 0.9, stable=1.0)
    until(simulator, state("RolledBack"), rounds=400)
    assert "worse than stable" in simulator.rollout["message"]


def test_without_prometheus_nothing_is_promoted_and_the_message_says_so() -> None:
    simulator = with_metric(accuracy=None)
    until(simulator, lambda rollout: rollout["reason"] == "NoData")
    assert f"metric accuracy: {DOWN.reason}" in simulator.rollout["message"]
    for _ in range(60):
        around(simulator)
    assert (simulator.rollout["state"], simulator.rollout["step"]) == ("Paused", 0)
    answer(simulator, 0.99)
    until(simulator, state("Promoted"), rounds=400)


def test_without_prometheus_the_gateways_counters_still_roll_back() -> None:
    simulator = with_metric(accuracy=None)
    until(simulator, lambda rollout: rollout["reason"] == "NoData")
    until(simulator, state("RolledBack"), r2=0.2)
    assert simulator.rollout["reason"] == "Slow"


def test_a_metric_that_gives_no_value_holds_the_promotion() -> None:
    simulator = with_metric()
    simulator.prometheus = lambda _: ()
    for _ in range(100):
        around(simulator)
    assert (simulator.rollout["state"], simulator.rollout["step"]) == ("Analysing", 0)


def scraped() -> Simulator:
    """A canary whose requests Prometheus counts, at its first step."""
    simulator = begun({**CANARY, "minStepTime": "1s", "analysis": {"source": "prometheus"}})
    until(simulator, lambda rollout: bool(rollout.get("stepStartedAt")))
    return simulator


def test_unscraped_gateways_freeze_the_verdict_until_they_are_scraped_again() -> None:
    simulator = scraped()
    simulator.unscraped = DOWN.reason
    until(simulator, lambda rollout: rollout["reason"] == "NoData", r2=0.2)
    assert DOWN.reason in simulator.rollout["message"]
    simulator.unscraped = ""
    until(simulator, state("RolledBack"), r2=0.2)
    assert simulator.rollout["reason"] == "Slow"


def test_a_pass_waits_for_what_may_not_have_been_scraped_yet() -> None:
    def first_step(source: str) -> timedelta:
        simulator = begun({**CANARY, "minStepTime": "1s", "analysis": {"source": source}})
        until(simulator, lambda rollout: bool(rollout.get("stepStartedAt")))
        since = simulator.now
        until(simulator, lambda rollout: rollout["step"] == 1)
        return simulator.now - since

    assert first_step("prometheus") - first_step("gateway") >= timedelta(seconds=28)
