"""Metrics of the user's own: what an answer of Prometheus adds to the evidence, and what it never does."""

from typing import Any

import pytest
from tailbound.api.analysis_metric import AnalysisMetric
from tailbound.rollout.metrics import Metric, Watch, judge, metric_of, taken_in
from tailbound.rollout.verdict import Outcome
from tailbound.telemetry.prometheus import Series, Unavailable, Value

NAMES = {"namespace": "risk", "service": "churn", "revision": "churn-r2", "stable": "churn-r1"}


def metric(**fields: Any) -> Metric:
    """One that is asked for by `fields`; an accuracy of at least 90 percent by default."""
    fields = fields or {"query": "accuracy", "min": 0.9}
    return metric_of(AnalysisMetric.model_validate({"name": "m", **fields}), NAMES)


COUNTED = {"bad": "b", "total": "t", "max": 0.1}


def value(number: float, at: float = 100.0) -> tuple[Series, ...]:
    """One value."""
    return (Series({}, (Value(at, number),)),)


def counters(at: float = 100.0, **numbers: float) -> tuple[Series, ...]:
    """Counters by part and pod: bad_a=3."""
    return tuple(
        Series({"tailbound_part": name.split("_")[0], "pod": name.split("_")[1]}, (Value(at, number),))
        for name, number in numbers.items()
    )


def watched(of: Metric, *answers: tuple[Series, ...]) -> Watch:
    """What is known after these answers."""
    known: Watch | None = None
    for answer in answers:
        taken = taken_in(of, known, answer)
        assert isinstance(taken, Watch), taken
        known = taken
    assert known is not None
    return known


@pytest.mark.parametrize(
    ("fields", "expression"),
    [
        (
            {
                "query": 'avg(a{revision="$revision",svc=~"$service$"}) / avg(a{revision="$stable"})',
                "max": 0.5,
            },
            'avg(a{revision="churn-r2",svc=~"churn$"}) / avg(a{revision="churn-r1"})',
        ),
        ({"query": "a{namespace='$namespace',x='$other'}", "max": 0.5}, "a{namespace='risk',x='$other'}"),
        (
            {"bad": "b{r='$revision'}", "total": "t", "max": 0.1},
            'label_replace((b{r=\'churn-r2\'}), "tailbound_part", "bad", "", "") or '
            'label_replace((t), "tailbound_part", "total", "", "")',
        ),
    ],
)
def test_queries_get_the_names_of_the_rollout(fields: dict[str, Any], expression: str) -> None:
    assert metric(**fields).expression == expression


@pytest.mark.parametrize(
    ("fields", "number", "badness", "allowed"),
    [
        pytest.param({"query": "q", "max": 0.2}, 0.5, 0.5, 0.2, id="max"),
        pytest.param({"query": "q", "min": 0.9}, 0.8, 0.2, 0.1, id="min"),
        pytest.param({"query": "q", "max": 30, "range": {"low": 20, "high": 40}}, 25, 0.25, 0.5, id="range"),
        pytest.param(
            {"query": "q", "min": 30, "range": {"low": 20, "high": 40}}, 25, 0.75, 0.5, id="min of it"
        ),
    ],
)
def test_every_bound_is_one_of_badness(
    fields: dict[str, Any], number: float, badness: float, allowed: float
) -> None:
    made = metric(**fields)
    assert made.badness(number) == pytest.approx(badness)
    assert made.allowed == pytest.approx(allowed)
    known = watched(made, value(number))
    assert known.judged == 1
    assert known.bad == pytest.approx(badness)
    assert judge(made, known, 1).mean == pytest.approx(number)


def test_values_count_once_in_each_interval() -> None:
    accuracy = metric()
    known = watched(accuracy, *(value(0.8, at) for at in (100, 100, 129.9, 130, 131, 160)))
    assert known.judged == 3


def test_events_count_once_and_from_the_first_answer_on() -> None:
    known = watched(
        metric(**COUNTED),
        counters(total_a=100, bad_a=10),
        counters(total_a=150, bad_a=12),
        counters(total_a=150, bad_a=12),
        counters(total_a=150, bad_a=12, total_b=30, bad_b=3),
    )
    assert (known.judged, known.bad) == (80, 5)


def test_counters_that_are_not_there_yet_have_counted_nothing() -> None:
    known = watched(metric(**COUNTED), (), counters(total_a=40, bad_a=6))
    assert (known.judged, known.bad) == (40, 6)


@pytest.mark.parametrize(
    ("fields", "before", "answer", "reason"),
    [
        pytest.param(None, value(1), Unavailable("down"), "down", id="no answer"),
        pytest.param(None, value(1), value(1) + value(1), "several values", id="two values"),
        pytest.param(None, value(1), value(1.5), "outside the metric's range", id="beyond the range"),
        pytest.param(COUNTED, counters(total_a=9), counters(total_a=8), "fell", id="a counter fell"),
        pytest.param(COUNTED, counters(total_a=9), (), "missing", id="a counter is missing"),
        pytest.param(
            COUNTED, counters(total_a=9), counters(total_a=10, bad_a=2), "more than", id="more bad than all"
        ),
    ],
)
def test_what_cannot_be_judged_is_no_data(
    fields: dict[str, Any] | None, before: tuple[Series, ...], answer: Any, reason: str
) -> None:
    made = metric(**(fields or {}))
    found = taken_in(made, watched(made, before), answer)
    assert isinstance(found, Unavailable)
    assert reason in found.reason


def test_no_value_yet_is_not_a_bad_one() -> None:
    assert watched(metric(), ()).judged == 0


def test_another_query_begins_anew() -> None:
    known = watched(metric(), value(0.5))
    other = taken_in(metric(query="other", min=0.9), known, value(0.9))
    assert isinstance(other, Watch)
    assert other.judged == 1


@pytest.mark.parametrize(
    ("fields", "answers", "outcome"),
    [
        pytest.param(None, [], Outcome.WAIT, id="nothing"),
        pytest.param(None, [value(0.5, at) for at in range(0, 120, 30)], Outcome.WAIT, id="four bad values"),
        pytest.param(None, [value(0.5, at) for at in range(0, 600, 30)], Outcome.ROLL_BACK, id="a low mean"),
        pytest.param(None, [value(0.99, at) for at in range(0, 900, 30)], Outcome.PASS, id="a high mean"),
        pytest.param(COUNTED, [(), counters(total_a=4, bad_a=4)], Outcome.WAIT, id="four bad events"),
        pytest.param(COUNTED, [(), counters(total_a=50, bad_a=25)], Outcome.ROLL_BACK, id="many bad events"),
        pytest.param(COUNTED, [(), counters(total_a=200)], Outcome.PASS, id="many good events"),
    ],
)
def test_the_verdict_takes_enough_of_them(
    fields: dict[str, Any] | None, answers: list[tuple[Series, ...]], outcome: Outcome
) -> None:
    made = metric(**(fields or {}))
    assert judge(made, watched(made, *answers) if answers else None, 2).outcome is outcome


def test_proof_for_passing_begins_anew_at_each_step_and_what_speaks_against_stays() -> None:
    made = metric(**COUNTED)
    known = watched(made, (), counters(total_a=100, bad_a=4)).next_step()
    finding = judge(made, known, 1)
    assert finding.passing == 0
    assert finding.against != 0
