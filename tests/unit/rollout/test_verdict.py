"""Every row of the verdict's truth tables, and its arithmetic."""

from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailbound.rollout.betting import Against, that_polls_are_above
from tailbound.rollout.counters import Classes
from tailbound.rollout.evidence import GRID, OVERSHOOT_CREDIT, Relative, Tally, absolute, late_onset, passing
from tailbound.rollout.verdict import (
    Evidence,
    Finding,
    Measure,
    Objective,
    Outcome,
    Policy,
    combine,
    error_objective,
    judge,
    latency_objective,
    thresholds,
)

P99 = latency_objective(0.99)
LIMITS = thresholds(P99.allowed, 1, Policy.BOTH, independent=True)

FINE, BEYOND, FEW = Tally(4000, 8), Tally(400, 40), Tally(20, 4)
UNDECIDED = Tally(200, 2)
WORSE = Relative(1.5, (9.0,) * len(GRID))
ALIKE = Relative(1.5)
BETTER = Relative(1.0, (9.0,) * len(GRID))
NOT_BETTER = Relative(1.0)


@pytest.mark.parametrize(
    ("canary", "relative", "improves", "policy", "stable_serves", "outcome"),
    [
        pytest.param(BEYOND, WORSE, NOT_BETTER, Policy.BOTH, True, Outcome.ROLL_BACK, id="its own breach"),
        pytest.param(
            BEYOND, WORSE, NOT_BETTER, Policy.ABSOLUTE, True, Outcome.ROLL_BACK, id="absolute, both"
        ),
        pytest.param(
            BEYOND, WORSE, NOT_BETTER, Policy.RELATIVE, True, Outcome.ROLL_BACK, id="relative, both"
        ),
        pytest.param(
            BEYOND, ALIKE, NOT_BETTER, Policy.ABSOLUTE, True, Outcome.ROLL_BACK, id="absolute alone"
        ),
        pytest.param(
            BEYOND, ALIKE, BETTER, Policy.ABSOLUTE, True, Outcome.ROLL_BACK, id="absolute is absolute"
        ),
        pytest.param(FINE, WORSE, NOT_BETTER, Policy.RELATIVE, True, Outcome.ROLL_BACK, id="relative alone"),
        pytest.param(
            FINE, WORSE, NOT_BETTER, Policy.BOTH, True, Outcome.PASS, id="worse, but within the SLA"
        ),
        pytest.param(BEYOND, ALIKE, BETTER, Policy.BOTH, True, Outcome.PASS, id="a fix rolls out"),
        pytest.param(BEYOND, ALIKE, BETTER, Policy.BOTH, False, Outcome.PASS, id="a fix, to the end"),
        pytest.param(BEYOND, ALIKE, NOT_BETTER, Policy.BOTH, True, Outcome.HOLD, id="shared incident"),
        pytest.param(BEYOND, ALIKE, NOT_BETTER, Policy.RELATIVE, True, Outcome.HOLD, id="relative too"),
        pytest.param(
            BEYOND, ALIKE, NOT_BETTER, Policy.BOTH, False, Outcome.ROLL_BACK, id="nothing to compare"
        ),
        pytest.param(FINE, ALIKE, NOT_BETTER, Policy.BOTH, True, Outcome.PASS, id="proven good"),
        pytest.param(UNDECIDED, ALIKE, NOT_BETTER, Policy.BOTH, True, Outcome.WAIT, id="too little to tell"),
        pytest.param(Tally(), ALIKE, NOT_BETTER, Policy.BOTH, True, Outcome.WAIT, id="no requests"),
        pytest.param(
            FEW, WORSE, NOT_BETTER, Policy.BOTH, True, Outcome.WAIT, id="four bad ones condemn nobody"
        ),
        pytest.param(FEW, WORSE, NOT_BETTER, Policy.RELATIVE, True, Outcome.WAIT, id="relative neither"),
    ],
)
def test_judge(
    canary: Tally,
    relative: Relative,
    improves: Relative,
    policy: Policy,
    stable_serves: bool,
    outcome: Outcome,
) -> None:
    evidence = Evidence(canary=canary, relative=relative, improves=improves)
    found = judge(P99, evidence, policy, LIMITS, stable_serves=stable_serves)
    assert found.outcome is outcome
    assert found.improves_breach == (outcome is Outcome.PASS and canary is BEYOND)


def finding(outcome: Outcome) -> Finding:
    return Finding(P99, outcome, Evidence().numbers(0.01, 0.02), LIMITS)


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


def test_a_canary_that_turns_bad_late_is_seen_though_it_was_good_for_long() -> None:
    good = Evidence(canary=Tally(20000, 20), relative=WORSE).next_step()
    bad = good.after(Tally(150, 15), Tally())
    assert absolute(bad.canary, 0.01) < LIMITS.absolute
    found = judge(P99, bad, Policy.BOTH, LIMITS, stable_serves=True)
    assert found.numbers.late >= LIMITS.late
    assert found.outcome is Outcome.ROLL_BACK


def test_late_onset_of_untouched_steps_is_exactly_no_evidence() -> None:
    starts = (Tally(), Tally(10, 1), Tally(10, 1), Tally(10, 1))
    assert late_onset(Tally(10, 1), starts, 0.01) == pytest.approx(0.0)


def test_late_onset_weights_never_exceed_one() -> None:
    for steps in range(1, 50):
        assert sum(1 / (j * (j + 1)) for j in range(1, steps)) + 1 / steps == pytest.approx(1.0)


def expected_factor(canary: int, stable: int, fraction: float, ratio: float) -> float:
    """Mean of one poll's relative factor for a canary exactly `ratio` times as bad, with binomial counts."""
    total = 0.0
    for k in range(len(GRID)):
        chance_up = exp(Relative(ratio).after(Tally(canary, 1), Tally(stable, 0)).logs[k])
        chance_down = exp(Relative(ratio).after(Tally(canary, 0), Tally(stable, 1)).logs[k])
        ours = (1 + ratio * fraction * (chance_up - 1)) ** canary
        total += ours * (1 + fraction * (chance_down - 1)) ** stable
    return total / len(GRID)


@given(st.integers(1, 200), st.integers(1, 2000), st.floats(0.0001, 0.3), st.sampled_from([1.0, 1.5]))
def test_relative_evidence_is_fair_whatever_stable_does(
    canary: int, stable: int, fraction: float, ratio: float
) -> None:
    assert expected_factor(canary, stable, fraction, ratio) <= 1 + 1e-9


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


@pytest.mark.parametrize(("canary", "stable"), [(Tally(), Tally(900, 9)), (Tally(100, 9), Tally())])
def test_poll_in_which_one_arm_served_nothing_compares_nothing(canary: Tally, stable: Tally) -> None:
    assert Relative(1.5).after(canary, stable) == Relative(1.5)


def test_warmup_is_counted_but_not_judged() -> None:
    stable = Tally(300, 3)
    cold = Evidence().after(Tally(30, 9), stable, warmup=50).after(Tally(20, 3), stable, warmup=50)
    assert cold == Evidence(warmed=50)
    warm = cold.after(Tally(10, 1), stable, warmup=50)
    assert warm.canary == Tally(10, 1)


@pytest.mark.parametrize(
    ("poll", "judged"),
    [
        pytest.param(Tally(60, 0), Tally(50, 0), id="nothing bad"),
        pytest.param(Tally(60, 8), Tally(50, 0), id="no more bad ones than the warm-up may have had"),
        pytest.param(Tally(60, 30), Tally(50, 20), id="more bad ones than that"),
    ],
)
def test_poll_in_which_the_warmup_ends_speaks_against_the_canary_and_never_for_it(
    poll: Tally, judged: Tally
) -> None:
    stable = Tally(300, 3)
    found = Evidence().after(poll, stable, warmup=10)
    assert found == Evidence(
        warmed=10,
        canary=judged,
        step_starts=(judged,),
        relative=Relative(1.5).after(judged, stable),
    )
    later = found.after(Tally(40, 0), stable, warmup=10)
    assert later.canary - later.step_starts[-1] == Tally(40, 0)


def test_bursts_divide_the_counts_of_both_arms() -> None:
    burst = Evidence().after(Tally(100, 10), Tally(900, 10)).next_step().deflated(10)
    alone = Evidence().after(Tally(10, 1), Tally(90, 1)).next_step()
    assert (burst.canary, burst.step_starts) == (alone.canary, alone.step_starts)
    assert burst.relative.logs == pytest.approx(alone.relative.logs)
    assert burst.improves.logs == pytest.approx(alone.improves.logs)


@pytest.mark.parametrize(
    ("allowed", "tests", "policy", "independent", "alpha", "credit"),
    [
        pytest.param(0.01, 1, Policy.BOTH, True, 0.01, OVERSHOOT_CREDIT, id="independent requests"),
        pytest.param(0.01, 2, Policy.BOTH, True, 0.005, OVERSHOOT_CREDIT, id="alpha shared by two"),
        pytest.param(0.01, 1, Policy.ABSOLUTE, False, 0.01, 0.0, id="bursts, or never measured"),
        pytest.param(0.01, 4, Policy.BOTH, True, 0.0025, 0.0, id="alpha too small for what was computed"),
        pytest.param(0.5, 1, Policy.BOTH, True, 0.01, 0.0, id="fraction outside what was computed"),
        pytest.param(0.01, 1, Policy.RELATIVE, False, 0.005, 0.0, id="either test condemns by itself"),
    ],
)
def test_thresholds(
    allowed: float, tests: int, policy: Policy, independent: bool, alpha: float, credit: float
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


@pytest.mark.parametrize(("policy", "bounded"), [(Policy.RELATIVE, True), (Policy.BOTH, False)])
def test_where_worse_condemns_alone_a_burst_that_may_be_one_is_not_worse(
    policy: Policy, bounded: bool
) -> None:
    canary, stable = Tally(100, 12), Tally(900, 0)
    evidence = Evidence().after(canary, stable)
    polls = Against(that_polls_are_above(P99.allowed)).after_poll(canary)
    limits = thresholds(P99.allowed, 1, policy, independent=False)
    measured = judge(P99, evidence, policy, limits, stable_serves=True)
    found = judge(P99, evidence, policy, limits, stable_serves=True, polls=polls)
    assert measured.outcome is Outcome.ROLL_BACK
    assert found.outcome is Outcome.WAIT
    assert (found.numbers.relative < limits.relative) is bounded
