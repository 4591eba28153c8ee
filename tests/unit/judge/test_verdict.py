"""Every row of the verdict's truth tables, and its arithmetic."""

from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailbound.api.rollout import AnalysisPolicy
from tailbound.judge.counters import Classes
from tailbound.judge.evidence import (
    GRID,
    OVERSHOOT_CREDIT,
    Relative,
    Tally,
    absolute,
    over_later_steps,
    passing,
)
from tailbound.judge.verdict import (
    EValues,
    Evidence,
    Finding,
    Measure,
    Objective,
    Outcome,
    combine,
    decide,
    error_objective,
    latency_objective,
    thresholds,
)

P99 = latency_objective(0.99)
LIMITS = thresholds(P99.allowed, 1, AnalysisPolicy.BOTH, independent=True)

WORSE, ALIKE, FAR, NONE, PROVEN = 9.0, 0.0, 9.0, -9.0, 9.0


def numbers(
    beyond: float = NONE,
    relative: float = ALIKE,
    improves: float = ALIKE,
    passing: float = NONE,
    *,
    enough: bool = True,
) -> EValues:
    return EValues(beyond, NONE, relative, improves, passing, enough)


@pytest.mark.parametrize(
    ("known", "policy", "comparable", "outcome"),
    [
        pytest.param(numbers(FAR, WORSE), AnalysisPolicy.BOTH, True, Outcome.ROLL_BACK, id="its-own-breach"),
        pytest.param(
            numbers(FAR, WORSE), AnalysisPolicy.ABSOLUTE, True, Outcome.ROLL_BACK, id="absolute-both"
        ),
        pytest.param(
            numbers(FAR, WORSE), AnalysisPolicy.RELATIVE, True, Outcome.ROLL_BACK, id="relative-both"
        ),
        pytest.param(numbers(FAR), AnalysisPolicy.ABSOLUTE, True, Outcome.ROLL_BACK, id="absolute-alone"),
        pytest.param(
            numbers(FAR, improves=PROVEN),
            AnalysisPolicy.ABSOLUTE,
            True,
            Outcome.ROLL_BACK,
            id="absolute-is-absolute",
        ),
        pytest.param(
            numbers(NONE, WORSE), AnalysisPolicy.RELATIVE, True, Outcome.ROLL_BACK, id="relative-alone"
        ),
        pytest.param(
            numbers(NONE, WORSE, passing=PROVEN),
            AnalysisPolicy.BOTH,
            True,
            Outcome.PASS,
            id="worse-within-the-sla",
        ),
        pytest.param(
            numbers(FAR, improves=PROVEN), AnalysisPolicy.BOTH, True, Outcome.PASS, id="a-fix-rolls-out"
        ),
        pytest.param(
            numbers(FAR, improves=PROVEN), AnalysisPolicy.BOTH, False, Outcome.PASS, id="a-fix-to-the-end"
        ),
        pytest.param(numbers(FAR), AnalysisPolicy.BOTH, True, Outcome.HOLD, id="shared-incident"),
        pytest.param(numbers(FAR), AnalysisPolicy.RELATIVE, True, Outcome.HOLD, id="relative-too"),
        pytest.param(numbers(FAR), AnalysisPolicy.BOTH, False, Outcome.ROLL_BACK, id="nothing-to-compare"),
        pytest.param(numbers(passing=PROVEN), AnalysisPolicy.BOTH, True, Outcome.PASS, id="proven-good"),
        pytest.param(numbers(), AnalysisPolicy.BOTH, True, Outcome.WAIT, id="too-little-to-tell"),
        pytest.param(
            numbers(FAR, WORSE, enough=False),
            AnalysisPolicy.BOTH,
            True,
            Outcome.WAIT,
            id="four-reject-no-candidate",
        ),
        pytest.param(
            numbers(FAR, WORSE, enough=False),
            AnalysisPolicy.RELATIVE,
            True,
            Outcome.WAIT,
            id="relative-neither",
        ),
    ],
)
def test_decide(known: EValues, policy: AnalysisPolicy, comparable: bool, outcome: Outcome) -> None:
    assert decide(known, policy, LIMITS, comparable=comparable) is outcome
    found = Finding(P99, outcome, known, LIMITS)
    assert found.improves_breach == (outcome is Outcome.PASS and known.absolute == FAR)


def finding(outcome: Outcome) -> Finding:
    return Finding(P99, outcome, numbers(), LIMITS)


@pytest.mark.parametrize(
    ("outcomes", "together"),
    [
        ((Outcome.PASS, Outcome.ROLL_BACK), Outcome.ROLL_BACK),
        ((Outcome.HOLD, Outcome.ROLL_BACK), Outcome.ROLL_BACK),
        ((Outcome.PASS, Outcome.HOLD), Outcome.HOLD),
        ((Outcome.WAIT, Outcome.HOLD), Outcome.HOLD),
        ((Outcome.PASS, Outcome.WAIT), Outcome.WAIT),
        ((Outcome.PASS, Outcome.PASS), Outcome.PASS),
        ((), Outcome.WAIT),
    ],
)
def test_combine(outcomes: tuple[Outcome, ...], together: Outcome) -> None:
    assert combine(tuple(finding(outcome) for outcome in outcomes)) is together


def test_evidence_since_steps_in_which_nothing_came_is_exactly_none() -> None:
    assert over_later_steps([0.0, 0.0, 0.0]) == pytest.approx(0.0)


def expected_factor(candidate: int, stable: int, fraction: float, ratio: float) -> float:
    """Mean of a poll's relative factor for a candidate exactly `ratio` times as bad, with binomial counts."""
    total = 0.0
    for k in range(len(GRID)):
        chance_up = exp(Relative(ratio).after(Tally(candidate, 1), Tally(stable, 0)).logs[k])
        chance_down = exp(Relative(ratio).after(Tally(candidate, 0), Tally(stable, 1)).logs[k])
        ours = (1 + ratio * fraction * (chance_up - 1)) ** candidate
        total += ours * (1 + fraction * (chance_down - 1)) ** stable
    return total / len(GRID)


@given(st.integers(1, 200), st.integers(1, 2000), st.floats(0.0001, 0.3), st.sampled_from([1.0, 1.5]))
def test_relative_evidence_is_fair_whatever_stable_does(
    candidate: int, stable: int, fraction: float, ratio: float
) -> None:
    assert expected_factor(candidate, stable, fraction, ratio) <= 1 + 1e-9


@given(st.floats(0.0001, 0.5), st.floats(0, 1))
def test_absolute_evidence_is_fair_for_every_allowed_fraction(allowed: float, share: float) -> None:
    fraction = share * allowed
    bad, good = absolute(Tally(1, 1), allowed), absolute(Tally(1, 0), allowed)
    assert fraction * exp(bad) + (1 - fraction) * exp(good) <= 1 + 1e-9


@given(st.floats(0.0001, 0.9), st.floats(0, 1))
def test_pass_evidence_is_fair_for_every_unacceptable_fraction(unacceptable: float, share: float) -> None:
    fraction = unacceptable + share * (1 - unacceptable)
    bad, good = passing(Tally(1, 1), unacceptable), passing(Tally(1, 0), unacceptable)
    assert fraction * exp(bad) + (1 - fraction) * exp(good) <= 1 + 1e-9


def test_requests_wait_until_both_revisions_have_served_some() -> None:
    waiting = Relative(1.5).after(Tally(3, 2), Tally()).after(Tally(2, 2), Tally())
    assert waiting.value == 0
    together = Relative(1.5).after(Tally(5, 4), Tally(10, 1))
    assert waiting.after(Tally(), Tally(10, 1)) == together
    assert together.value > 0


def test_bursts_divide_the_counts_of_both_arms() -> None:
    burst = Evidence().after(Tally(100, 10), Tally(900, 10)).next_step().deflated(10)
    alone = Evidence().after(Tally(10, 1), Tally(90, 1)).next_step()
    assert (burst.candidate, burst.step_starts) == (alone.candidate, alone.step_starts)
    assert burst.relative.logs == pytest.approx(alone.relative.logs)
    assert burst.improves.logs == pytest.approx(alone.improves.logs)


def test_what_is_settled_is_divided_once() -> None:
    early, late = (Tally(100, 10), Tally(900, 10)), (Tally(50, 5), Tally(450, 5))
    known = Evidence().after(*early).settle(10).next_step().after(*late)
    assert known.candidate == Tally(60, 6)
    assert known.deflated(5).candidate == Tally(20, 2)
    assert known.deflated(5).step_starts == (Tally(), Tally(10, 1))
    apart = [Evidence().after(*each).relative.logs for each in (early, late)]
    expected = [one / 10 + other / 5 for one, other in zip(*apart, strict=True)]
    assert known.deflated(5).relative.logs == pytest.approx(expected)


@pytest.mark.parametrize(
    ("allowed", "tests", "policy", "independent", "alpha", "credit"),
    [
        pytest.param(0.01, 1, AnalysisPolicy.BOTH, True, 0.01, OVERSHOOT_CREDIT, id="independent-requests"),
        pytest.param(0.01, 2, AnalysisPolicy.BOTH, True, 0.005, OVERSHOOT_CREDIT, id="alpha-shared-by-two"),
        pytest.param(0.01, 1, AnalysisPolicy.ABSOLUTE, False, 0.01, 0.0, id="bursts-or-never-measured"),
        pytest.param(
            0.01, 4, AnalysisPolicy.BOTH, True, 0.0025, 0.0, id="alpha too small for what was computed"
        ),
        pytest.param(0.5, 1, AnalysisPolicy.BOTH, True, 0.01, 0.0, id="fraction-outside-what-was-computed"),
        pytest.param(
            0.01, 1, AnalysisPolicy.RELATIVE, False, 0.005, 0.0, id="either test condemns by itself"
        ),
    ],
)
def test_thresholds(
    allowed: float, tests: int, policy: AnalysisPolicy, independent: bool, alpha: float, credit: float
) -> None:
    limits = thresholds(allowed, tests, policy, independent=independent)
    assert limits.absolute == pytest.approx(log(1 / (0.75 * alpha)) - credit)
    assert limits.late == pytest.approx(log(1 / (0.25 * alpha)))
    assert limits.relative == pytest.approx(log(1 / alpha))
    assert limits.passing == pytest.approx(log(20))


@pytest.mark.parametrize(
    ("objective", "allowed", "unacceptable"),
    [
        (latency_objective(0.99), 0.01, 0.02),
        (latency_objective(0.5), 0.5, 0.75),
        (error_objective(0.001), 0.001, 0.01),
        (error_objective(0.02), 0.02, 0.04),
    ],
)
def test_objectives(objective: Objective, allowed: float, unacceptable: float) -> None:
    assert (objective.allowed, objective.unacceptable) == pytest.approx((allowed, unacceptable))


@pytest.mark.parametrize(
    ("allowed", "unacceptable", "field"),
    [(0.0, 0.1, "allowed"), (0.6, 0.7, "allowed"), (0.1, 0.1, "unacceptable"), (0.1, 1.0, "unacceptable")],
)
def test_objective_that_cannot_be_tested_is_refused(allowed: float, unacceptable: float, field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field} is .*: give a fraction"):
        Objective(Measure.LATENCY, allowed, unacceptable)


def test_measures_judge_the_requests_that_they_are_about() -> None:
    classes = Classes(good=100, slow=10, timed_out=5, failed=3, abandoned=50)
    assert Measure.LATENCY.tally(classes) == Tally(115, 15)
    assert Measure.ERRORS.tally(classes) == Tally(118, 8)
