"""One bad moment condemns nobody; what is bad from its first requests on, or for long, is condemned."""

import pytest
from tailbound.api.rollout import AnalysisPolicy
from tailbound.judge.account import account_about, judge
from tailbound.judge.evidence import Tally
from tailbound.judge.verdict import Objective, Outcome, error_objective, latency_objective
from tailbound.judge.windows import Span

P99, FAILURES = latency_objective(0.99), error_objective(0.01)


def ending(at: float) -> Span:
    """The two seconds before."""
    return Span(at - 2.0, at)


def rolled_back(fractions: list[float], *, stable: float = 0.0, objective: Objective = P99) -> int | None:
    """The poll of 100 requests, every two seconds, that rolls back a candidate that has all requests."""
    account = account_about(objective)
    for number in range(30):
        account = account.after(Tally(), Tally(100, 100 * stable), ending(2.0 * number), stable_serves=True)
    for number, fraction in enumerate(fractions):
        at = 60 + 2.0 * number
        account = account.after(Tally(100, 100 * fraction), Tally(), ending(at), stable_serves=False)
        if (
            judge(objective, account, AnalysisPolicy.BOTH, 2, stable_serves=False).outcome
            is Outcome.ROLL_BACK
        ):
            return number
    return None


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("start", [0, 1, 3, 8, 20])
def test_ten_bad_seconds_of_a_candidate_with_all_requests_condemn_nobody(start: int, share: float) -> None:
    assert rolled_back([0.01] * start + [share / 2] + [share] * 4 + [share / 2] + [0.0] * 30) is None


@pytest.mark.parametrize(
    ("fractions", "at_most"),
    [
        pytest.param([0.05] * 20, 16, id="a-little-from-the-first-request-on"),
        pytest.param([0.5] * 20, 11, id="from-the-first-request-on"),
        pytest.param([0.0] * 10 + [0.5] * 20, 10 + 14, id="after-good-seconds"),
    ],
)
def test_what_goes_on_being_bad_is_found(fractions: list[float], at_most: int) -> None:
    found = rolled_back(fractions)
    assert found is not None
    assert found <= at_most


@pytest.mark.parametrize("fraction", [0.02, 0.05])
def test_as_bad_as_stable_was_is_not_worse(fraction: float) -> None:
    assert rolled_back([fraction] * 150, stable=0.05) is None


def test_what_fails_from_its_first_request_on_is_found_at_once() -> None:
    found = rolled_back([1.0] * 10, objective=FAILURES)
    assert found is not None
    assert found <= 2


def test_far_worse_than_a_breaching_stable_was_is_found() -> None:
    assert rolled_back([0.5] * 20, stable=0.05) is not None
