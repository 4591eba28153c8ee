"""What is judged of metrics of the user's own: their outcomes, and what stable has to do with them."""

from typing import Any

import pytest
from tailbound.api.rollout import AnalysisPolicy
from tailbound.judge.evidence import Tally
from tailbound.judge.metric_evidence import Events, Values, Watch, judge
from tailbound.judge.verdict import Outcome

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

GOOD, POOR = 0.99, 0.5


def sampled(candidate: float, stable: float | None, number: int = 40) -> Values:
    """The evidence after so many values of both revisions."""
    made = metric(**ACCURACY_OF_BOTH)
    known: Watch | None = None
    for at in range(0, 30 * number, 30):
        beside = () if stable is None else value(stable, at)
        known = took(made, known, value(candidate, at), stable=beside).watch
    assert isinstance(known, Values)
    return known


def counted(candidate: Tally, stable: Tally, rounds: int = 10) -> Watch:
    """Events of both revisions, in so many rounds."""
    numbers = {"total_a": candidate.judged, "bad_a": candidate.bad}
    of_stable = {"stable_total_a": stable.judged, "stable_bad_a": stable.bad}
    return in_rounds(rounds, metric(**OF_BOTH, interval="1s"), **numbers, **of_stable)


FINE, WORSE, BAD = Tally(2000, 20), Tally(2000, 120), Tally(200, 100)


@pytest.mark.parametrize(
    ("fields", "known", "policy", "outcome"),
    [
        pytest.param(ACCURACY_OF_BOTH, sampled(POOR, GOOD), "both", "RollBack", id="mean-its-own-breach"),
        pytest.param(ACCURACY_OF_BOTH, sampled(POOR, POOR), "both", "Hold", id="mean-a-shared-breach"),
        pytest.param(ACCURACY_OF_BOTH, sampled(POOR, POOR), "absolute", "RollBack", id="mean-absolute"),
        pytest.param(ACCURACY_OF_BOTH, sampled(0.92, GOOD, 200), "relative", "RollBack", id="mean-worse"),
        pytest.param(ACCURACY_OF_BOTH, sampled(0.92, GOOD, 200), "both", "Pass", id="mean-within-its-bound"),
        pytest.param(ACCURACY_OF_BOTH, sampled(POOR, None), "both", "RollBack", id="mean-stable-unknown"),
        pytest.param(ACCURACY_OF_BOTH, sampled(GOOD, GOOD), "both", "Pass", id="mean-good"),
        pytest.param(ACCURACY_OF_BOTH, sampled(POOR, GOOD, 4), "absolute", "Wait", id="mean-four-values"),
        pytest.param(OF_BOTH, counted(BAD, FINE), "both", "RollBack", id="events-its-own-breach"),
        pytest.param(OF_BOTH, counted(BAD, BAD), "both", "Hold", id="events-a-shared-breach"),
        pytest.param(OF_BOTH, counted(BAD, BAD), "absolute", "RollBack", id="events-absolute"),
        pytest.param(
            OF_BOTH,
            counted(Tally(20000, 1200), Tally(20000, 200), 40),
            "relative",
            "RollBack",
            id="events-worse",
        ),
        pytest.param(OF_BOTH, counted(WORSE, FINE), "relative", "Pass", id="events-worse-in-a-burst-or-two"),
        pytest.param(OF_BOTH, counted(WORSE, FINE), "both", "Pass", id="events-within-its-bound"),
        pytest.param(OF_BOTH, counted(BAD, Tally()), "both", "RollBack", id="events-stable-has-none"),
        pytest.param(OF_BOTH, counted(FINE, FINE), "both", "Pass", id="events-good"),
        pytest.param(OF_BOTH, counted(Tally(4, 4), FINE), "both", "Wait", id="events-four-bad-ones"),
        pytest.param(OF_BOTH, None, "both", "Wait", id="nothing"),
    ],
)
def test_the_verdict_is_that_of_the_objectives(
    fields: dict[str, Any], known: Watch | None, policy: str, outcome: str
) -> None:
    found = judge(metric(**fields), known, AnalysisPolicy(policy), 2, stable_serves=True)
    assert found.outcome is Outcome(outcome)
    assert not found.improves_breach


@pytest.mark.parametrize("known", [sampled(POOR, 0.1), counted(Tally(400, 100), Tally(400, 300))])
def test_what_breaches_its_bound_less_than_stable_rolls_out(known: Watch) -> None:
    made = metric(**(OF_BOTH if isinstance(known, Events) else ACCURACY_OF_BOTH))
    found = judge(made, known, AnalysisPolicy.BOTH, 2, stable_serves=True)
    assert (found.outcome, found.improves_breach) == (Outcome.PASS, True)


def test_nobody_else_is_blamed_for_a_mean_once_stable_gets_no_requests() -> None:
    found = judge(
        metric(**ACCURACY_OF_BOTH), sampled(POOR, POOR), AnalysisPolicy.BOTH, 2, stable_serves=False
    )
    assert found.outcome is Outcome.ROLL_BACK


@pytest.mark.parametrize(("bad", "outcome"), [(100, Outcome.HOLD), (10, Outcome.ROLL_BACK)])
def test_events_are_compared_with_those_of_stable_once_that_gets_no_requests(
    bad: int, outcome: Outcome
) -> None:
    made = metric(**OF_BOTH, interval="1s")
    known: Watch = counted(Tally(200, bad), Tally(200, bad))
    beside = {"stable_total_a": 200, "stable_bad_a": bad}
    for number in range(1, 11):
        answer = counters(total_a=200 + 20 * number, bad_a=bad + 10 * number, **beside)
        known = took(made, known, answer, now=1000 + 60 * number, stable_serves=False).watch
    assert judge(made, known, AnalysisPolicy.BOTH, 2, stable_serves=False).outcome is outcome


@pytest.mark.parametrize("policy", list(AnalysisPolicy))
def test_what_cannot_be_asked_of_both_is_judged_by_its_bound_alone(policy: AnalysisPolicy) -> None:
    made = metric(**COUNTED)
    bad = in_rounds(10, made, total_a=50, bad_a=25)
    assert judge(made, bad, policy, 2, stable_serves=True).outcome is Outcome.ROLL_BACK
    good = watched(made, counters(total_a=0, bad_a=0), counters(total_a=200, bad_a=0))
    assert judge(made, good, policy, 2, stable_serves=True).outcome is Outcome.PASS


def test_proof_for_passing_begins_anew_at_each_step_and_what_speaks_against_stays() -> None:
    for known in (counted(Tally(100, 4), FINE), sampled(0.85, GOOD)):
        made = metric(**(OF_BOTH if isinstance(known, Events) else ACCURACY_OF_BOTH))
        before = judge(made, known, AnalysisPolicy.BOTH, 1, stable_serves=True).numbers
        after = judge(made, known.next_step(900), AnalysisPolicy.BOTH, 1, stable_serves=True).numbers
        assert before.passing != after.passing == 0
        assert before.absolute == after.absolute != 0
        assert before.relative == after.relative != 0
