"""One bad moment condemns nobody; what is bad from its first requests on, or for long, is condemned."""

import pytest
from tailbound.rollout.account import account_of, judge
from tailbound.rollout.evidence import Tally
from tailbound.rollout.verdict import Outcome, Policy, latency_objective

P99 = latency_objective(0.99)


def rolled_back(fractions: list[float], *, stable: float = 0.0) -> int | None:
    """The poll of 100 requests, every two seconds, that rolls back a candidate that has all requests."""
    account = account_of(P99.allowed)
    for number in range(30):
        account = account.after(Tally(), Tally(100, 100 * stable), 2.0 * number, stable_serves=True)
    for number, fraction in enumerate(fractions):
        at = 60 + 2.0 * number
        account = account.after(Tally(100, 100 * fraction), Tally(), at, stable_serves=False)
        if judge(P99, account, Policy.BOTH, 2, stable_serves=False).outcome is Outcome.ROLL_BACK:
            return number
    return None


@pytest.mark.parametrize("start", [3, 4, 8, 20])
def test_ten_bad_seconds_after_good_ones_condemn_nobody(start: int) -> None:
    assert rolled_back([0.01] + [0.0] * (start - 1) + [0.5] * 5 + [0.0] * 30) is None


@pytest.mark.parametrize(
    ("fractions", "at_most"),
    [
        pytest.param([0.5] * 10, 3, id="from-the-first-request-on"),
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


def test_far_worse_than_a_breaching_stable_was_is_found() -> None:
    assert rolled_back([0.5] * 10, stable=0.05) is not None
