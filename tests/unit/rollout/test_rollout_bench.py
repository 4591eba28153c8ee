"""The benchmark is what it says: the product's own verdict on arrays, and the other rules as they are."""

from dataclasses import replace

import numpy as np
import pytest
from tailbound.rollout.betting import Against, that_polls_are_above
from tailbound.rollout.bursts import Dispersion
from tailbound.rollout.evidence import Tally
from tailbound.rollout.forecast import Traffic as Arrivals
from tailbound.rollout.verdict import (
    Evidence,
    Outcome,
    Policy,
    judge,
    latency_objective,
    thresholds,
)

from e2e.bench.rollout import peers, rule
from e2e.bench.rollout.promotion import pace
from e2e.bench.rollout.scenarios import HEALTHY, LATE, UNHEALTHY, Counts, Scenario, Traffic

P99 = latency_objective(0.99)
EVERY = {scenario.name: scenario for scenario in (*HEALTHY, *UNHEALTHY, LATE)}


def judged(traffic: Traffic, run: int, policy: Policy) -> tuple[int, int]:
    """First polls of rollback and of holding, by the product's verdict poll by poll."""
    factor = rule.factors(traffic)[run]
    limits = thresholds(P99.allowed, 2, policy, independent=factor.independent)
    evidence, polls = Evidence(), Against(that_polls_are_above(P99.allowed))
    rolled_back = held = rule.NEVER
    for number in range(traffic.canary.shape[1]):
        if number in traffic.steps[1:]:
            evidence, polls = evidence.next_step(), polls.next_step()
        canary = Tally(int(traffic.canary[run, number]), int(traffic.canary_bad[run, number]))
        stable = Tally(int(traffic.stable[run, number]), int(traffic.stable_bad[run, number]))
        evidence, polls = evidence.after(canary, stable), polls.after_poll(canary)
        outcome = judge(
            P99,
            evidence.deflated(factor.value),
            policy,
            limits,
            stable_serves=True,
            polls=None if factor.measured else polls,
        ).outcome
        if outcome is Outcome.ROLL_BACK and rolled_back == rule.NEVER:
            rolled_back = number
        if outcome is Outcome.HOLD and held == rule.NEVER:
            held = number
    return rolled_back, held


@pytest.mark.parametrize(
    ("name", "policy", "history"),
    [
        ("both 1 %, the edge of the SLA", Policy.BOTH, True),
        ("shared incident", Policy.BOTH, True),
        ("weights 5 to 50 %, both drift .3 to 2 %", Policy.ABSOLUTE, True),
        ("bursts of 10, both 1 %", Policy.BOTH, True),
        ("both 1 %, one request per poll", Policy.RELATIVE, True),
        ("canary 5 %, stable .5 %", Policy.BOTH, True),
        ("canary 5 %, stable .5 %", Policy.BOTH, False),
        ("canary 5 %, stable .5 %", Policy.RELATIVE, False),
        ("canary 5 % from step 3 on, stable .5 %", Policy.BOTH, True),
        ("canary 5 % from step 3 on, stable .5 %", Policy.BOTH, False),
    ],
)
def test_arrays_say_what_the_product_says(name: str, policy: Policy, history: bool) -> None:
    traffic = EVERY[name].traffic(2)
    traffic = traffic if history else without_history(traffic)
    found = rule.verdicts(traffic, P99, policy, 2)
    for run in range(2):
        assert (found.rolled_back[run], found.held[run]) == judged(traffic, run, policy)


@pytest.mark.parametrize("scenario", HEALTHY, ids=lambda scenario: scenario.name)
def test_healthy_rollouts_are_rolled_back_at_most_alpha_of_the_time(scenario: Scenario) -> None:
    found = rule.verdicts(scenario.traffic(300), P99, Policy.BOTH, 2)
    assert (found.rolled_back != rule.NEVER).mean() <= 0.01


def without_history(traffic: Traffic) -> Traffic:
    """The same where stable was not watched before."""
    return replace(traffic, history=traffic.stable[:, :0], history_bad=traffic.stable_bad[:, :0])


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("scenario", [each for each in HEALTHY if each.batch > 1], ids=lambda each: each.name)
def test_bursts_that_were_never_measured_roll_nobody_back(scenario: Scenario, policy: Policy) -> None:
    found = rule.verdicts(without_history(scenario.traffic(300)), P99, policy, 2)
    assert (found.rolled_back != rule.NEVER).mean() <= 0.01


@pytest.mark.parametrize(
    ("scenario", "polls"),
    [
        pytest.param(UNHEALTHY[0], 200, id="2 %"),
        pytest.param(UNHEALTHY[1], 25, id="5 %"),
        pytest.param(UNHEALTHY[2], 9, id="10 %"),
        pytest.param(UNHEALTHY[3], 3, id="50 %"),
    ],
)
def test_bad_canaries_are_found_without_a_history_within_so_many_polls(
    scenario: Scenario, polls: int
) -> None:
    found = rule.verdicts(without_history(scenario.traffic(200)), P99, Policy.BOTH, 2).rolled_back
    assert (found != rule.NEVER).mean() >= 0.99
    assert np.median(found) + 1 <= polls


def polls_until(traffic: Traffic, run: int, policy: Policy) -> int:
    """Polls to a rollback where bursts are measured while the rollout goes on; `NEVER` if there is none."""
    evidence, polls, dispersion = Evidence(), Against(that_polls_are_above(P99.allowed)), Dispersion()
    for number in range(traffic.canary.shape[1]):
        canary = Tally(int(traffic.canary[run, number]), int(traffic.canary_bad[run, number]))
        stable = Tally(int(traffic.stable[run, number]), int(traffic.stable_bad[run, number]))
        if not dispersion.factor().measured:
            dispersion = dispersion.after(stable)
        factor = dispersion.factor()
        evidence, polls = evidence.after(canary, stable), polls.after_poll(canary)
        finding = judge(
            P99,
            evidence.deflated(factor.value),
            policy,
            thresholds(P99.allowed, 2, policy, independent=factor.independent),
            stable_serves=True,
            polls=None if factor.measured else polls,
        )
        if finding.outcome is Outcome.ROLL_BACK:
            return number + 1
    return rule.NEVER


def test_a_canary_worse_than_stable_is_found_at_the_latest_when_stable_has_shown_its_bursts() -> None:
    traffic = UNHEALTHY[1].traffic(25)
    needed = [polls_until(traffic, run, Policy.RELATIVE) for run in range(25)]
    assert rule.NEVER not in needed
    assert np.median(needed) <= 60


def test_absolute_verdict_alone_keeps_alpha_at_the_edge() -> None:
    found = rule.verdicts(HEALTHY[0].traffic(500), P99, Policy.ABSOLUTE, 2)
    assert (found.rolled_back != rule.NEVER).mean() <= 0.01


@pytest.mark.parametrize(
    ("scenario", "median", "p90"),
    [
        pytest.param(UNHEALTHY[0], 1800, 3500, id="2 %"),
        pytest.param(UNHEALTHY[1], 220, 400, id="5 %"),
        pytest.param(UNHEALTHY[2], 70, 130, id="10 %"),
        pytest.param(UNHEALTHY[3], 20, 20, id="50 %"),
    ],
)
def test_bad_canaries_are_found_within_these_requests(scenario: Scenario, median: int, p90: int) -> None:
    traffic = scenario.traffic(200)
    polls = rule.verdicts(traffic, P99, Policy.BOTH, 2).rolled_back
    assert (polls != rule.NEVER).mean() >= 0.99
    requests = (polls[polls != rule.NEVER] + 1) * 10
    assert np.quantile(requests, 0.5) <= median
    assert np.quantile(requests, 0.9) <= p90


def test_a_healthy_canary_is_proven_within_these_requests() -> None:
    assert pace((P99,), Arrivals(50, slow=0.005, failed=0.0)).requests <= 400
    assert pace((P99,), Arrivals(50, slow=0.0, failed=0.0)).requests <= 210


def windows(canary: list[int], bad: list[int]) -> Traffic:
    """One rollout, one poll per window, with a stable that is never slow."""
    one: Counts = np.array([canary])
    ninety = np.full_like(one, 90)
    none = np.zeros_like(one)
    return Traffic(one, np.array([bad]), ninety, none, none, none, 1)


GOOD, BAD, EMPTY = (100, 1), (100, 2), (0, 0)


@pytest.mark.parametrize(
    ("checks", "rolled_back"),
    [
        pytest.param([BAD] * 5, 4, id="five in a row"),
        pytest.param([BAD, GOOD] * 5, 8, id="a good check takes none back"),
        pytest.param([BAD] * 4 + [GOOD] * 10 + [BAD], rule.NEVER, id="promoted after ten good ones"),
        pytest.param([EMPTY] * 5, 4, id="no values is a failed check"),
    ],
)
def test_flagger(checks: list[tuple[int, int]], rolled_back: int) -> None:
    traffic = windows([n for n, _ in checks], [x for _, x in checks])
    assert peers.flagger(traffic, 0.01, 5).rolled_back[0] == rolled_back


@pytest.mark.parametrize(
    ("measurements", "rolled_back"),
    [
        pytest.param([BAD] * 3, rule.NEVER, id="as many as the limit"),
        pytest.param([BAD, GOOD, BAD, GOOD, BAD, BAD], 5, id="one more, not in a row"),
        pytest.param([EMPTY, BAD, BAD, BAD, BAD], rule.NEVER, id="inconclusive pauses first"),
        pytest.param([GOOD] * 20 + [BAD] * 9, rule.NEVER, id="nothing is measured after the count"),
    ],
)
def test_argo(measurements: list[tuple[int, int]], rolled_back: int) -> None:
    traffic = windows([n for n, _ in measurements], [x for _, x in measurements])
    assert peers.argo(traffic, 0.01, 3).rolled_back[0] == rolled_back


@pytest.mark.parametrize(
    ("bad", "rolled_back"),
    [
        pytest.param([0] * 20, rule.NEVER, id="all observations tied"),
        pytest.param([5, 4, 6, 5, 7] * 4, 4, id="every window is worse"),
        pytest.param([1] + [0] * 19, rule.NEVER, id="one window of twenty is worse"),
    ],
)
def test_kayenta(bad: list[int], rolled_back: int) -> None:
    assert peers.kayenta(windows([100] * 20, bad)).rolled_back[0] == rolled_back
