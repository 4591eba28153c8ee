"""Rollouts that depend on Prometheus, in the simulated cluster: what its absence holds up, and what not."""

from datetime import timedelta
from typing import Any

import pytest
from tailbound.objects.unknown import Unknown
from tailbound.telemetry.prometheus import Series, Value

from tests.support.copies import remembered
from tests.support.simulated.gateways import START
from tests.support.simulated.rollouts import CANARY, SLA, around, begun, state, until
from tests.support.simulated.simulator import Simulator

DOWN = Unknown("Prometheus is not reached (ConnectionError)")
ACCURACY = {"name": "accuracy", "query": "accuracy{r='$revision'}", "min": 0.9, "interval": "2s"}


def with_metric(*, sla: Any = SLA, accuracy: float | None = 0.95) -> Simulator:
    """A canary that is watched for its accuracy as well."""
    simulator = begun({**CANARY, "minStepTime": "1s", "analysis": {"metrics": [ACCURACY]}}, sla=sla)
    answer(simulator, accuracy)
    return simulator


def answer(simulator: Simulator, accuracy: float | None, stable: float = 0.99) -> None:
    """What Prometheus says of both revisions from now on; None: it is down."""

    def asked(query: str) -> tuple[Series, ...] | Unknown:
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
    for _ in range(20):
        around(simulator)
    assert (simulator.rollout["state"], simulator.rollout["step"]) == ("Paused", 0)
    answer(simulator, 0.99)
    until(simulator, state("Promoted"), rounds=400)


def test_without_prometheus_the_gateways_counters_still_roll_back() -> None:
    simulator = with_metric(accuracy=None)
    until(simulator, lambda rollout: rollout["reason"] == "NoData")
    until(simulator, state("RolledBack"), r2=0.2)
    assert simulator.rollout["reason"] == "Slow"


NAN = (Series({}, (), "NaN"),)
WITHOUT_VALUES = {
    "empty, over": ((), "the query gives no value", "20s", "1h"),
    "nan, going on": (NAN, "the query gives NaN", "1h", "20s"),
    "infinite, over": ((Series({}, (), "+Inf"),), "the query gives +Inf", "20s", "1h"),
}


@pytest.mark.parametrize(("answer", "why", "most", "timeout"), WITHOUT_VALUES.values(), ids=WITHOUT_VALUES)
def test_a_metric_without_values_is_named_at_once_and_never_promoted_by_time(
    answer: tuple[Series, ...], why: str, most: str, timeout: str
) -> None:
    limits = {"minStepTime": "1s", "maxStepTime": most, "onInconclusive": "promote"}
    simulator = begun({**CANARY, **limits, "analysis": {"metrics": [ACCURACY], "dataTimeout": timeout}})
    simulator.prometheus = lambda _: answer
    until(simulator, lambda rollout: bool(rollout.get("stepStartedAt")))
    around(simulator)
    around(simulator)
    assert f"metric accuracy: {why}" in simulator.rollout["message"]
    assert found(simulator)["missing"].startswith(why)
    assert "mean" not in found(simulator)
    for _ in range(25):
        around(simulator)
    rollout = simulator.rollout
    assert (rollout["state"], rollout["reason"], rollout["step"]) == ("Paused", "NoData", 0)
    assert why in rollout["message"]
    answer_again = 0.99
    simulator.edit(rollout={**simulator.service["spec"]["rollout"], "maxStepTime": "1h"})
    until_promoted(simulator, answer_again)


def until_promoted(simulator: Simulator, accuracy: float) -> None:
    """The values are there, and the canary passes by them."""
    answer(simulator, accuracy)
    until(simulator, state("Promoted"), rounds=400)
    assert found(simulator)["mean"] == pytest.approx(accuracy)


def failures(simulator: Simulator, selected: str) -> None:
    """Prometheus counts half of the canary's requests as failed, and has no series for another selector."""

    def asked(query: str) -> tuple[Series, ...]:
        seconds = (simulator.now - START).total_seconds()
        counted = {"total": 100 * seconds, "stable_total": 100 * seconds}
        if selected == "failed":
            counted |= {"bad": 50 * seconds, "stable_bad": 0.0}
        return tuple(
            Series({"tailbound_part": part}, (Value(seconds, number),)) for part, number in counted.items()
        )

    simulator.prometheus = asked


def counted_failures(selected: str) -> dict[str, Any]:
    """A metric of the failed requests, whose selector may be misspelt."""
    total = "requests{r='$revision'}"
    bad = f"requests{{r='$revision',class='{selected}'}}"
    return {"name": "failures", "bad": bad, "total": total, "max": 0.05, "interval": "2s"}


@pytest.mark.parametrize("by_time", ["pause", "promote"])
def test_a_selector_that_matches_nothing_promotes_nobody_and_is_named(by_time: str) -> None:
    limits = {"minStepTime": "1s", "maxStepTime": "80s", "onInconclusive": by_time}
    simulator = begun({**CANARY, **limits, "analysis": {"metrics": [counted_failures("fail")]}}, sla=None)
    failures(simulator, "fail")
    until(
        simulator, lambda rollout: "the query for bad has matched no series" in rollout["message"], rounds=15
    )
    for _ in range(50):
        around(simulator)
    rollout = simulator.rollout
    assert (rollout["state"], rollout["reason"], rollout["step"]) == ("Paused", "NoData", 0)
    simulator.edit(
        rollout={
            **simulator.service["spec"]["rollout"],
            "maxStepTime": "1h",
            "analysis": {"metrics": [counted_failures("failed")]},
        }
    )
    failures(simulator, "failed")
    until(simulator, state("RolledBack"))
    assert simulator.rollout["reason"] == "MetricBreached"


def test_a_metric_is_not_missed_before_the_canary_gets_requests() -> None:
    simulator = with_metric(sla=None)
    simulator.prometheus = lambda _: ()
    for _ in range(70):
        simulator.now += timedelta(seconds=2)
        simulator.reconcile()
    assert simulator.rollout["state"] == "Starting"


@remembered
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
