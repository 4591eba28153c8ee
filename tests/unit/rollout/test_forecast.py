"""Forecasts agree with what a rollout's own rules allow."""

from datetime import timedelta
from typing import Any

import pytest
from tailbound.api.rollout import AnalysisPolicy, RolloutSpec
from tailbound.judge.analysis import Terms
from tailbound.judge.verdict import Outcome, error_objective, latency_objective
from tailbound.rollout import forecast as module
from tailbound.rollout.forecast import Forecast, Traffic, forecast

from tests.support.effort import effort

TERMS = Terms((latency_objective(0.99), error_objective(0.01)), AnalysisPolicy.BOTH, 10)
CANARY = {"strategy": "canary", "steps": [{"weight": 10}, {"weight": 50}]}


@pytest.fixture(autouse=True)
def few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer drawn rollouts than a person gets; the draws are the same each day."""
    monkeypatch.setattr(module, "RUNS", effort(20, module.RUNS))


def of(spec: dict[str, Any], slow: float, *, per_second: float = 100, terms: Terms = TERMS) -> Forecast:
    candidate, stable = Traffic(per_second, slow, 0.001), Traffic(per_second, 0.003, 0.001)
    timeout = timedelta(seconds=2)
    return forecast(RolloutSpec.model_validate(spec), terms, timeout, candidate, stable, seed=1)


def known(seconds: float | None) -> float:
    assert seconds is not None
    return seconds


def test_a_good_candidate_passes_every_step_and_no_step_faster_than_it_may() -> None:
    found = of(CANARY, 0.003)
    assert found.share(Outcome.PASS) > 0.95
    assert all(known(found.step(number, 0.5)) >= 30 for number in range(3))
    assert known(found.seconds(Outcome.PASS, 0.5)) >= 90
    assert known(found.seconds(Outcome.PASS, 0.9)) >= known(found.seconds(Outcome.PASS, 0.5))


def test_the_worse_it_is_the_sooner_it_is_rolled_back() -> None:
    times = [known(of(CANARY, slow).seconds(Outcome.ROLL_BACK, 0.5)) for slow in (0.02, 0.05, 0.1)]
    assert times == sorted(times, reverse=True)
    assert of(CANARY, 0.1).share(Outcome.ROLL_BACK) == 1


def test_ten_times_the_requests_take_a_fraction_of_the_time() -> None:
    few, many = (
        known(of(CANARY, 0.05, per_second=rate).seconds(Outcome.ROLL_BACK, 0.5)) for rate in (10, 100)
    )
    assert few > 4 * many


def test_metrics_share_the_chance_of_a_false_alarm() -> None:
    metrics = [{"name": f"m{number}", "query": "vector(0)", "max": 0.5} for number in range(8)]
    alone, beside = (
        known(of({**CANARY, "analysis": {"metrics": each}}, 0.05).seconds(Outcome.ROLL_BACK, 0.5))
        for each in ([], metrics)
    )
    assert beside > alone


def test_a_switch_is_judged_for_as_long_as_the_old_pods_stay() -> None:
    assert of({}, 0.003).seconds(Outcome.PASS, 0.9) == 30
    assert known(of({}, 0.1).seconds(Outcome.ROLL_BACK, 0.9)) <= 30


@pytest.mark.parametrize(("wanted", "end"), [("pause", Outcome.WAIT), ("promote", Outcome.PASS)])
def test_too_few_requests_are_inconclusive(wanted: str, end: Outcome) -> None:
    found = of({**CANARY, "maxStepTime": "1m", "onInconclusive": wanted}, 0.003, per_second=1)
    assert found.share(end) == 1


def test_without_an_objective_only_time_counts() -> None:
    found = of(CANARY, 0.5, terms=Terms((), AnalysisPolicy.BOTH, 10))
    assert found.share(Outcome.PASS) == 1
    assert 90 <= known(found.seconds(Outcome.PASS, 0.9)) <= 96


def test_a_stable_that_is_as_bad_is_a_shared_cause() -> None:
    bad = Traffic(100, 0.05, 0.0)
    spec = RolloutSpec.model_validate({**CANARY, "maxStepTime": "2m"})
    found = forecast(spec, TERMS, timedelta(seconds=2), bad, bad, seed=1)
    assert found.share(Outcome.HOLD) > 0.9
