"""Metrics of the user's own: what an answer of Prometheus adds to the evidence, and what it never does."""

from typing import Any

import pytest
from tailbound.api.rollout import AnalysisPolicy
from tailbound.judge.account import account_of
from tailbound.judge.betting import BoundTest, that_polls_are_above
from tailbound.judge.evidence import Tally
from tailbound.judge.metric_evidence import LOOKBACK_SECONDS, Answer, Events, Values, Watch, judge
from tailbound.judge.verdict import Outcome
from tailbound.objects.unknown import Unknown
from tailbound.telemetry.prometheus import Series, Value

from tests.unit.judge.metric_answers import (
    ACCURACY_OF_BOTH,
    COUNTED,
    OF_BOTH,
    counters,
    in_rounds,
    metric,
    took,
    value,
    watched,
)

NAN, INFINITE = (Series({}, (), "NaN"),), (Series({}, (), "-Inf"),)


def events(known: Watch) -> Tally:
    """Events of the candidate that are evidence."""
    assert isinstance(known, Events)
    return known.account.evidence.candidate


def values(known: Watch) -> tuple[int, int]:
    """Values of the candidate, and those that came with one of stable."""
    assert isinstance(known, Values)
    return known.means.values, known.means.pairs


def test_values_count_once_in_each_interval() -> None:
    known = watched(metric(), *(value(0.8, at) for at in (100, 100, 129.9, 130, 131, 160)))
    assert values(known) == (3, 0)


@pytest.mark.parametrize(
    ("stable", "pairs"),
    [
        pytest.param(value(0.95), 1, id="a-value"),
        pytest.param((), 0, id="none"),
        pytest.param(value(0.9) + value(0.9), 0, id="several"),
        pytest.param(value(1.9), 0, id="beyond-the-range"),
        pytest.param(Unknown("down"), 0, id="no-answer"),
    ],
)
def test_a_value_is_compared_with_that_of_stable_at_the_same_time(stable: Answer, pairs: int) -> None:
    taken = took(metric(**ACCURACY_OF_BOTH), None, value(0.8), stable=stable)
    assert (values(taken.watch), taken.blind) == ((1, pairs), "")


def test_events_count_once_and_from_the_first_answer_on() -> None:
    known = watched(
        metric(**COUNTED),
        counters(total_a=100, bad_a=10),
        counters(total_a=150, bad_a=12),
        counters(total_a=150, bad_a=12),
        counters(total_a=150, bad_a=12, total_b=30, bad_b=3),
    )
    assert events(known) == Tally(80, 5)


def test_counters_of_a_new_revision_that_are_not_there_yet_have_counted_nothing() -> None:
    made = metric(**COUNTED)
    known = took(made, took(made, None, ()).watch, counters(total_a=40, bad_a=6)).watch
    assert events(known) == Tally(40, 6)


EARLY = counters(total_a=50, stable_total_a=50, stable_bad_a=0)
LATER = counters(total_a=60, stable_total_a=60, stable_bad_a=2)
ALL_SEEN = counters(total_a=0, bad_a=0, stable_total_a=0, stable_bad_a=0)


@pytest.mark.parametrize(
    ("fields", "answers", "missing"),
    [
        pytest.param(OF_BOTH, [()], "total", id="nothing"),
        pytest.param(OF_BOTH, [counters(total_a=50, stable_total_a=50)] * 3, "bad", id="bad-of-neither"),
        pytest.param(OF_BOTH, [counters(bad_a=5, stable_bad_a=5)], "total", id="total-of-neither"),
        pytest.param(OF_BOTH, [counters(total_a=50, stable_bad_a=1)], None, id="bad-of-stable-alone"),
        pytest.param(OF_BOTH, [counters(stable_total_a=9, stable_bad_a=0)], None, id="no-events-yet"),
        pytest.param(OF_BOTH, [EARLY], "bad", id="bad-of-stable-alone-at-zero"),
        pytest.param(OF_BOTH, [EARLY, LATER], "bad", id="bad-of-stable-alone-once-at-zero"),
        pytest.param(OF_BOTH, [counters(total_a=50, bad_a=1)], None, id="bad-of-the-new-one-alone"),
        pytest.param(OF_BOTH, [ALL_SEEN, counters(total_a=9, stable_total_a=9)], None, id="bad-once-seen"),
        pytest.param(COUNTED, [counters(total_a=50)], "bad", id="not-compared"),
        pytest.param({"histogram": "h", "above": 1, "max": 0.1}, [()], "histogram", id="no-histogram"),
    ],
)
def test_a_query_that_never_matched_a_series_is_named_and_not_zero(
    fields: dict[str, Any], answers: list[tuple[Series, ...]], missing: str | None
) -> None:
    made, known = metric(**fields), None
    for number, answer in enumerate(answers):
        taken = took(made, known, answer, now=100 + 60.0 * number)
        known = taken.watch
    named = f"the query for {missing} has matched no series"
    assert (named in taken.blind) if missing else not taken.blind
    assert ("vector(0)" in taken.blind) is (missing == "bad")


@pytest.mark.parametrize(
    ("fields", "answer", "unmatched"),
    [
        pytest.param(OF_BOTH, counters(total_a=5, stable_total_a=5, stable_bad_a=1), True, id="stable-alone"),
        pytest.param(
            OF_BOTH, counters(total_a=5, bad_a=0, stable_total_a=5, stable_bad_a=1), False, id="both"
        ),
        pytest.param(OF_BOTH, counters(total_a=5, stable_total_a=5), False, id="neither"),
        pytest.param(COUNTED, counters(total_a=5), False, id="not-compared"),
    ],
)
def test_bad_events_that_only_stable_names_are_pointed_at(
    fields: dict[str, Any], answer: tuple[Series, ...], unmatched: bool
) -> None:
    made = metric(**fields)
    known = took(made, None, answer).watch
    assert judge(made, known, AnalysisPolicy.BOTH, 1, stable_serves=True).unmatched is unmatched


def test_what_was_served_before_the_first_bad_event_counts_as_good() -> None:
    made = metric(**COUNTED)
    known: Watch | None = None
    for total in (0, 50, 90):
        known = took(made, known, counters(total_a=total)).watch
    taken = took(made, known, counters(total_a=100, bad_a=4))
    assert (events(taken.watch), taken.blind) == (Tally(100, 4), "")


def test_series_of_zero_that_end_are_not_missed() -> None:
    made = metric(**{**COUNTED, "bad": "b or 0 * t"})
    known = watched(made, counters(total_a=10, bad_z=0), counters(total_a=30, bad_a=3))
    assert events(known) == Tally(20, 3)


def test_what_stable_counted_before_it_was_first_seen_is_not_compared() -> None:
    made = metric(**OF_BOTH, interval="1s")
    known = took(made, None, (), now=100).watch
    late = counters(total_a=5, bad_a=0, stable_total_a=9000, stable_bad_a=4000)
    known = took(made, known, late, now=200).watch
    assert isinstance(known, Events)
    assert (events(known), known.compared) == (Tally(5, 0), 0)


def test_counters_that_were_all_gone_for_long_count_from_where_they_return() -> None:
    made = metric(**COUNTED)
    known: Watch = watched(made, counters(total_a=100, bad_a=0))
    for later in (0.0, LOOKBACK_SECONDS):
        known = took(made, known, (), now=200 + later).watch
    known = took(made, known, counters(total_a=110, bad_a=2), now=600).watch
    known = took(made, known, counters(total_a=130, bad_a=2), now=700).watch
    assert events(known) == Tally(20, 0)


@pytest.mark.parametrize(
    ("fields", "before", "answer", "reason"),
    [
        pytest.param(None, value(1), Unknown("down"), "down", id="no-answer"),
        pytest.param(None, value(1), value(1) + value(1), "several values", id="two-values"),
        pytest.param(None, value(1), value(1.5), "outside the metric's range", id="beyond-the-range"),
        pytest.param(COUNTED, counters(total_a=9, bad_a=0), counters(total_a=8), "fell", id="a-counter-fell"),
        pytest.param(COUNTED, counters(total_a=9, bad_a=0), (), "missing", id="a-counter-is-missing"),
        pytest.param(
            COUNTED,
            counters(total_a=9, bad_a=0),
            counters(total_a=10, bad_a=2),
            "more than",
            id="more-bad-than-all",
        ),
        pytest.param(None, None, (), "gives no value", id="no-value"),
        pytest.param(None, value(1), NAN, "gives NaN, which is no number", id="nan"),
        pytest.param(None, None, INFINITE, "gives -Inf, which is no number", id="infinite"),
        pytest.param(
            COUNTED,
            counters(total_a=9, bad_a=0),
            (*counters(total_a=9), Series({"tailbound_part": "bad"}, (), "NaN")),
            "the query for bad gives NaN",
            id="nan-as-counter",
        ),
        pytest.param(
            {**COUNTED, "bad": "increase(b[5m])"},
            None,
            counters(total_a=9, bad_a=0),
            "increase() makes up events",
            id="increase-as-counter",
        ),
        pytest.param(
            {"query": "rate(a[$window])", "max": 0.5}, None, value(0.1), "[$window]", id="unknown-range"
        ),
    ],
)
def test_what_cannot_be_judged_is_no_data(
    fields: dict[str, Any] | None, before: tuple[Series, ...] | None, answer: Any, reason: str
) -> None:
    made = metric(**(fields or {}))
    known = watched(made, before) if before is not None else None
    taken = took(made, known, answer, now=150)
    assert reason in taken.blind
    found = judge(made, taken.watch, AnalysisPolicy.BOTH, 1, stable_serves=True)
    assert found == judge(made, known, AnalysisPolicy.BOTH, 1, stable_serves=True)


def test_a_querier_that_steps_back_and_forth_counts_nothing_twice() -> None:
    made = metric(**COUNTED)
    known: Watch = watched(made, counters(total_a=497, bad_a=0))
    for number in (494, 497, 494, 500):
        known = took(made, known, counters(total_a=number, bad_a=0)).watch
    assert events(known) == Tally(3, 0)


def test_a_pod_that_is_gone_for_good_makes_the_metric_blind_only_while_it_may_come_back() -> None:
    made = metric(**COUNTED)
    known: Watch = watched(made, counters(total_a=100, total_b=50, bad_a=0))
    left = counters(total_a=110)
    for later in (0.0, LOOKBACK_SECONDS - 1):
        taken = took(made, known, left, now=200 + later)
        assert "missing" in taken.blind
        known = taken.watch
    again = took(made, known, counters(total_a=120), now=200 + LOOKBACK_SECONDS)
    assert (events(again.watch), again.blind) == (Tally(0, 0), ""), "counting starts here again"
    more = took(made, again.watch, counters(total_a=125), now=600)
    assert events(more.watch) == Tally(5, 0)


def test_no_value_yet_is_not_a_bad_one() -> None:
    assert values(took(metric(), None, ()).watch) == (0, 0)


@pytest.mark.parametrize("answer", [(), NAN], ids=["none", "nan"])
def test_between_two_values_none_is_needed(answer: tuple[Series, ...]) -> None:
    known = watched(metric(), value(0.95))
    blind = {now: bool(took(metric(), known, answer, now=now).blind) for now in (100.0, 129.0, 130.0)}
    assert blind == {100: False, 129: False, 130: True}


def test_values_count_no_more_often_than_their_query_looks_back() -> None:
    made = metric(query="rate(errors[5m])", max=0.5, interval="30s")
    known = watched(made, *(value(0.1, 30.0 * number) for number in range(21)))
    assert values(known) == (3, 0)


@pytest.mark.parametrize("other", [{"query": "other", "min": 0.9}, {"query": "accuracy", "min": 0.8}])
def test_another_query_or_bound_begins_anew(other: dict[str, Any]) -> None:
    known = watched(metric(), value(0.5))
    assert values(took(metric(**other), known, value(0.9, 130)).watch) == (1, 0)


def test_events_of_both_become_evidence_together_once_the_interval_is_over() -> None:
    made = metric(**OF_BOTH, interval="30s")
    nothing = counters(total_a=0, bad_a=0, stable_total_a=0, stable_bad_a=0)
    known = took(made, None, nothing, now=100).watch
    # Their scrapes come at different times: apart, each of them would meet nothing of the other.
    known = took(made, known, counters(total_a=40, bad_a=4, stable_total_a=0, stable_bad_a=0), now=110).watch
    known = took(made, known, counters(total_a=40, bad_a=4, stable_total_a=60, stable_bad_a=0), now=120).watch
    assert events(known) == Tally(0, 0)
    same = counters(total_a=40, bad_a=4, stable_total_a=60, stable_bad_a=0)
    known = took(made, known, same, now=130).watch
    assert events(known) == Tally(40, 4)
    assert isinstance(known, Events)
    assert known.account.evidence.relative.value > 0
    assert known.compared == 60
    assert took(made, known, same, now=131).watch == known


def test_what_stable_cannot_show_does_not_blind_the_metric() -> None:
    made = metric(**OF_BOTH, interval="1s")
    known = watched(made, counters(total_a=0, bad_a=0, stable_total_a=50, stable_total_b=50))
    taken = took(made, known, counters(total_a=40, stable_total_a=60), now=200)
    assert (events(taken.watch), taken.blind) == (Tally(40, 0), "")
    assert isinstance(taken.watch, Events)
    assert taken.watch.compared == 0
    back = took(made, taken.watch, counters(total_a=50, stable_total_a=70, stable_total_b=55), now=210).watch
    assert isinstance(back, Events)
    assert back.compared == 25


def test_a_histogram_is_judged_by_what_is_above_the_edge() -> None:
    made = metric(histogram="h{r='$revision'}", above=1, max=0.1, interval="1s")

    def answer(below: float, candidate: float, stable: float) -> tuple[Series, ...]:
        counts = (("buckets", "1", below), ("buckets", "+Inf", candidate), ("stable_buckets", "1.0", stable))
        return tuple(
            Series({"tailbound_part": part, "le": edge}, (Value(100.0, number),))
            for part, edge, number in (*counts, ("stable_buckets", "+Inf", stable))
        )

    known = watched(made, answer(10, 10, 50), answer(40, 50, 90))
    assert events(known) == Tally(40, 10)
    assert isinstance(known, Events)
    assert known.compared == 40
    other = metric(histogram="h{r='$revision'}", above=2, max=0.1)
    assert "no bucket of the histogram ends at 2: " in took(other, None, answer(10, 10, 50)).blind


def test_the_first_events_of_new_pods_are_not_judged() -> None:
    made = metric(**COUNTED)
    known = watched(made, counters(total_a=0, bad_a=0)).with_pods(1, 1, 10)
    known = took(made, known, counters(total_a=30, bad_a=4)).watch
    assert events(known) == Tally(20, 0)
    again = took(made, known.with_pods(1, 2, 10), counters(total_a=60, bad_a=14), now=160).watch
    assert events(again) == Tally(20, 0)


def bets(known: Watch) -> BoundTest:
    """What the rounds say as one value each."""
    assert isinstance(known, Events)
    return known.account.polls


def test_a_round_counts_as_one_value() -> None:
    made = metric(**COUNTED)
    known = took(
        made, watched(made, counters(total_a=0, bad_a=0)), counters(total_a=100, bad_a=50), now=160
    ).watch
    assert bets(known).bets == that_polls_are_above(0.1).after(0.5)


def test_evidence_begins_anew_about_another_bound_and_no_event_counts_twice() -> None:
    known = in_rounds(10, metric(**COUNTED), total_a=200, bad_a=100)
    other = metric(**{**COUNTED, "max": 0.2})
    moved = took(other, known, counters(total_a=200, bad_a=100)).watch
    assert isinstance(moved, Events)
    assert moved.account == account_of(0.2)
    assert judge(other, known, AnalysisPolicy.BOTH, 2, stable_serves=True).outcome is Outcome.WAIT


def test_one_burst_condemns_nobody_and_many_do() -> None:
    made = metric(**COUNTED)
    burst = watched(made, counters(total_a=0, bad_a=0), counters(total_a=200, bad_a=100))
    assert judge(made, burst, AnalysisPolicy.BOTH, 2, stable_serves=True).outcome is Outcome.WAIT
    bursts = in_rounds(10, made, total_a=200, bad_a=100)
    assert judge(made, bursts, AnalysisPolicy.BOTH, 2, stable_serves=True).outcome is Outcome.ROLL_BACK
