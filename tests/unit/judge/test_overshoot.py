"""The credit of the absolute test is exactly as safe as it says: recomputed from the test's own boundary."""

from math import log

import pytest
from tailbound.judge import evidence
from tailbound.judge.evidence import OVERSHOOT_CREDIT, Tally, absolute, credited

from e2e.bench.rollout.exact import Boundary, floor, stopping

ALPHAS = (0.0025, 0.00375, 0.0075, 0.01, 0.05)
FRACTIONS = (0.0015, 0.005, 0.01, 0.02, 0.05, 0.1)


def false_rollback(alpha: float, allowed: float, credit: float) -> float:
    """Chance, bounded over an unlimited future, to condemn a candidate that is exactly as bad as allowed."""
    horizon = int(40 / allowed)
    found = stopping(Boundary.of(allowed, log(1 / alpha) - credit, horizon), allowed)
    return found.chance + found.open_ended


@pytest.mark.parametrize("allowed", FRACTIONS)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_credit_keeps_false_rollback_within_alpha(alpha: float, allowed: float) -> None:
    assert credited(alpha, allowed)
    assert false_rollback(alpha, allowed, OVERSHOOT_CREDIT) <= alpha


def test_credit_keeps_alpha_at_the_smallest_fraction_it_is_given_to() -> None:
    assert false_rollback(0.0025, 0.001, OVERSHOOT_CREDIT) <= 0.0025


def test_a_larger_credit_would_be_found_out() -> None:
    assert false_rollback(0.0025, 0.01, OVERSHOOT_CREDIT + 0.3) > 0.0025


@pytest.mark.parametrize(
    ("alpha", "allowed"), [(0.0024, 0.01), (0.051, 0.01), (0.01, 0.0009), (0.01, 0.11), (0.01, 0.5)]
)
def test_nothing_outside_the_computed_range_is_credited(alpha: float, allowed: float) -> None:
    assert not credited(alpha, allowed)


@pytest.mark.parametrize("allowed", [0.001, 0.01, 0.1, 0.5])
@pytest.mark.parametrize("judged", [5, 40, 300, 5000])
def test_more_bad_requests_never_leave_the_stopping_region(allowed: float, judged: int) -> None:
    values = [absolute(Tally(judged, bad), allowed) for bad in range(judged + 1)]
    assert values == sorted(values)
    assert evidence.AT_LEAST_BAD == 5


def test_mean_at_five_percent_is_within_a_third_of_the_floor() -> None:
    found = stopping(Boundary.of(0.01, log(1 / 0.01) - OVERSHOOT_CREDIT, 2000), 0.05)
    assert found.chance > 0.9999
    assert found.mean <= 1.3 * floor(0.01, 0.01, 0.05)
