"""Metrics of the user's own, and what Prometheus answers to them."""

from collections.abc import Mapping
from typing import Any

from tailbound.api.analysis_metric import AnalysisMetric
from tailbound.judge.metric_evidence import Answer, Taken, Watch, taken_in
from tailbound.judge.metrics import Metric, metric_of
from tailbound.telemetry.prometheus import Series, Value

NAMES = {"namespace": "risk", "service": "churn", "revision": "churn-r2", "stable": "churn-r1"}
ACCURACY = {"query": "accuracy", "min": 0.9}
COUNTED = {"bad": "b", "total": "t", "max": 0.1}
OF_BOTH = {"bad": "b{r='$revision'}", "total": "t{r='$revision'}", "max": 0.1}
ACCURACY_OF_BOTH = {"query": "accuracy{r='$revision'}", "min": 0.9}


def metric(**fields: Any) -> Metric:
    """One that is asked for by `fields`; an accuracy of at least 90 percent by default."""
    return metric_of(AnalysisMetric.model_validate({"name": "m", **(fields or ACCURACY)}), NAMES)


def value(number: float, at: float = 100.0) -> tuple[Series, ...]:
    """One value."""
    return (Series({}, (Value(at, number),)),)


def counters(**numbers: float) -> tuple[Series, ...]:
    """Counters by part and pod: bad_a=3; of stable: stable_bad_a=3."""
    return tuple(
        Series({"tailbound_part": name.rpartition("_")[0], "pod": name[-1]}, (Value(100.0, number),))
        for name, number in numbers.items()
    )


def took(
    of: Metric,
    known: Watch | None,
    answer: Answer,
    *,
    stable: Answer = (),
    now: float = 100.0,
    stable_serves: bool = True,
) -> Taken:
    """What is known after one more round."""
    answers: Mapping[str, Answer] = {of.stable_expression: stable, of.expression: answer}
    return taken_in(of, known, answers, now, stable_serves=stable_serves)


def watched(of: Metric, *answers: tuple[Series, ...], every: float = 60.0) -> Watch:
    """What is known after these answers, one each minute."""
    known: Watch | None = None
    for number, answer in enumerate(answers):
        taken = took(of, known, answer, now=100 + number * every)
        assert not taken.blind, taken.blind
        known = taken.watch
    assert known is not None
    return known


def in_rounds(rounds: int, made: Metric, **numbers: float) -> Watch:
    """Counters that rise from zero to these numbers, as much in each round."""
    rising = (
        {name: number * done / rounds for name, number in numbers.items()} for done in range(rounds + 1)
    )
    return watched(made, *(counters(**each) for each in rising))
