"""Requests that pods refuse because they would be late, as the verdict sees them."""

from dataclasses import dataclass

import pytest
from tailbound.api.rollout import AnalysisPolicy
from tailbound.judge.account import Account, account_of, judge
from tailbound.judge.counters import Classes
from tailbound.judge.evidence import Tally
from tailbound.judge.verdict import Measure, Objective, Outcome, error_objective, latency_objective
from tailbound.judge.windows import Span

P99, ERRORS = latency_objective(0.99), error_objective(0.001)
POLLS = 400


def outcome(objective: Objective, candidate: Classes, stable: Classes) -> Outcome:
    """The verdict after so many polls that were all alike."""
    account: Account = account_of(objective.allowed)
    tallies = objective.measure.tally(candidate), objective.measure.tally(stable)
    for poll in range(POLLS):
        account = account.after(*tallies, Span(2.0 * poll - 2, 2.0 * poll), stable_serves=True)
    return judge(objective, account, AnalysisPolicy.BOTH, 2, stable_serves=True).outcome


def test_a_refused_request_is_late_and_says_nothing_of_errors() -> None:
    counted = Classes(good=90, shed=10)
    assert Measure.LATENCY.tally(counted) == Tally(100, 10)
    assert Measure.ERRORS.tally(counted) == Tally(90, 0)


@dataclass(frozen=True)
class Case:
    """Requests of one poll, and what comes of many such polls."""

    candidate: Classes
    stable: Classes
    by_latency: Outcome
    by_errors: Outcome


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            Case(Classes(good=80, shed=20), Classes(good=80, shed=20), Outcome.HOLD, Outcome.PASS),
            id="an-overload-of-both-is-nobodys-fault",
        ),
        pytest.param(
            Case(Classes(good=80, shed=20), Classes(good=80, slow=20), Outcome.HOLD, Outcome.PASS),
            id="who-refuses-is-as-late-as-who-lets-wait",
        ),
        pytest.param(
            Case(Classes(good=80, shed=20), Classes(good=100), Outcome.ROLL_BACK, Outcome.PASS),
            id="one-that-refuses-alone-is-too-slow",
        ),
        pytest.param(
            Case(Classes(good=100), Classes(good=80, shed=20), Outcome.PASS, Outcome.PASS),
            id="one-that-has-not-to-refuse-is-better",
        ),
        pytest.param(
            Case(
                Classes(good=70, shed=20, failed=10),
                Classes(good=80, shed=20),
                Outcome.HOLD,
                Outcome.ROLL_BACK,
            ),
            id="its-errors-are-seen-all-the-same",
        ),
    ],
)
def test_what_is_refused_condemns_the_revision_that_refuses_and_no_other(case: Case) -> None:
    assert outcome(P99, case.candidate, case.stable) is case.by_latency
    assert outcome(ERRORS, case.candidate, case.stable) is case.by_errors
