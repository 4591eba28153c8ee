"""What a decision says and keeps: its sentence, the rule that set its number, and its state."""

import json
import re
from dataclasses import asdict, replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tailbound.autoscale.decide import decide
from tailbound.autoscale.decision import ReplicaDecision, ReplicaReason
from tailbound.autoscale.model import Known, LearnedCapacity, Limits, Replicas
from tailbound.autoscale.state import State, restored, worth_saving
from tailbound.objects.unknown import Unknown

from tests.unit.autoscale.observations import (
    LEARNED,
    LIMITS,
    OBJECTIVE,
    blind,
    ready,
    seen,
    steady,
)


def test_a_restart_forecasts_what_it_would_have_without_one() -> None:
    rates = [Known(80.0 + tick, tick * 10.0) for tick in range(60)]
    state = restored(rates, 60.0, OBJECTIVE, LEARNED)
    count = 12
    decision = decide(600, seen(600, 140, ready(count)), OBJECTIVE, LIMITS, state)
    assert decision.reason is not ReplicaReason.UNKNOWN_CAPACITY
    assert isinstance(decision.explanation.forecast, Known)
    assert decision.explanation.forecast.value > 142


@pytest.mark.parametrize(
    ("learned", "saved", "saved_at", "worth"),
    [
        (LEARNED, Unknown("never"), None, True),
        (LEARNED, LEARNED, 0.0, False),
        (replace(LEARNED, per_row=0.051), LEARNED, 0.0, False),
        (replace(LEARNED, per_row=0.06), LEARNED, 0.0, True),
        (replace(LEARNED, per_row=0.06), LEARNED, 500.0, False),
        (replace(LEARNED, correction=0.9), LEARNED, 0.0, True),
    ],
)
def test_capacity_is_saved_seldom(
    learned: LearnedCapacity, saved: LearnedCapacity | Unknown, saved_at: float | None, worth: bool
) -> None:
    assert worth_saving(learned, saved, saved_at, 1000.0) is worth


def test_a_decision_says_why_in_words() -> None:
    decision = steady(160, 20)
    assert "the arrival rate is 160 requests/s" in decision.message()
    assert "one replica serves 15.96, so that" in decision.message()
    lost = decide(900, blind(ready(12)), OBJECTIVE, LIMITS, decision.state)
    assert "the arrival rate is unknown (Prometheus does not answer), the forecast" in lost.message()
    assert "12 are kept while metrics are missing" in lost.message()


def test_a_decision_and_its_state_can_be_written_down() -> None:
    assert json.loads(json.dumps(asdict(steady(160, 20))))["replicas"] > 0


def test_requests_that_waited_for_a_start_call_for_no_further_spare() -> None:
    """A pod starts for the first minute, and for two more the P99 is above the target."""
    before = steady(160, 60)
    state, count, cautions = before.state, before.replicas, []
    for tick in range(60, 78):
        at = tick * 10.0
        pods = Replicas(count, count - 1, 1, 0, (10.0,)) if tick < 66 else ready(count)
        state = decide(at, seen(at, 160, pods, p99=2.5), OBJECTIVE, LIMITS, state).state
        cautions.append(state.caution)
    assert cautions[12] == 0 < cautions[13] < cautions[14]


def fell(rate: float, ticks: int) -> ReplicaDecision:
    """The decision `ticks` after a steady rate of 160 requests a second fell."""
    decision = steady(160, 40)
    for tick in range(40, 40 + ticks):
        at = tick * 10.0
        observation = seen(at, rate, ready(decision.replicas))
        decision = decide(at, observation, OBJECTIVE, LIMITS, decision.state)
    return decision


RULES: dict[str, tuple[ReplicaDecision, str]] = {
    "stabilization": (fell(20, 1), r"\d+ are kept, because \d+ were needed within the last 60 s \(stab"),
    "a-step-down": (fell(20, 6), r"\d+ were needed within the last 60 s .*one step removes 2 of 1\d"),
    "a-pause": (fell(20, 8), r"\d+ are kept, because the last step down was less than 30 s ago"),
    "a-step-up": (
        decide(400, seen(400, 400, ready(2)), OBJECTIVE, LIMITS, steady(20, 40).state),
        r"one step adds 4 to 2",
    ),
    "the-maximum": (steady(160, 20, limits=Limits(1, 5)), r"the maximum is 5"),
    "the-minimum": (steady(10, 20, 5, limits=Limits(5, 9)), r"the minimum is 5"),
    "unknown-capacity": (decide(0, seen(0, 0, ready(3)), OBJECTIVE, LIMITS, State()), r"3 are kept"),
}


@pytest.mark.parametrize(("decision", "rule"), RULES.values(), ids=RULES)
def test_a_number_that_is_not_the_need_names_the_rule_that_set_it(
    decision: ReplicaDecision, rule: str
) -> None:
    assert re.search(rule, decision.message()), decision.message()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 800), min_size=1, max_size=40), st.integers(0, 4), st.integers(0, 40))
def test_every_number_that_differs_from_the_need_has_a_rule(
    rates: list[float], least: int, more: int
) -> None:
    limits, state, count = Limits(least, least + more), State(learned=LEARNED), least
    for tick, rate in enumerate(rates):
        decision = decide(tick * 10.0, seen(tick * 10.0, rate, ready(count)), OBJECTIVE, limits, state)
        needed = decision.explanation.needed
        same = isinstance(needed, Known) and needed.value == decision.replicas
        assert same or decision.explanation.account.rule, decision.message()
        state, count = decision.state, decision.replicas


@pytest.mark.parametrize(("before", "after"), [(10, 50), (100, 20)])
def test_another_share_of_the_requests_is_no_surge_and_no_lull(before: int, after: int) -> None:
    """The forecast is that of a revision which has had this share all along."""
    rates = [Random(tick).gauss(400.0, 6.0) for tick in range(120)]
    state, always = State(learned=LEARNED), State(learned=LEARNED)
    for tick, rate in enumerate(rates):
        share, at = before if tick < 100 else after, tick * 10.0
        state = decide(
            at,
            seen(at, rate * share / 100, ready(20)),
            OBJECTIVE,
            LIMITS,
            state.carrying(share, before if tick <= 100 else after),
        ).state
        always = decide(at, seen(at, rate * after / 100, ready(20)), OBJECTIVE, LIMITS, always).state
        assert tick < 100 or state.forecasts.expected == pytest.approx(always.forecasts.expected, rel=0.02)
        assert not state.forecasts.falling
