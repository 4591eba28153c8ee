"""The benchmark is what it says: the product's own verdict on arrays, and the other rules as they are."""

import numpy as np
import pytest
from tailbound.api.rollout import AnalysisPolicy
from tailbound.judge.verdict import latency_objective
from tailbound.rollout.forecast import Traffic as Arrivals

from e2e.bench.rollout import peers, rule
from e2e.bench.rollout.promotion import pace
from e2e.bench.rollout.scenarios import HEALTHY, UNHEALTHY, Counts, Scenario, Traffic
from tests.support.effort import effort

P99 = latency_objective(0.99)
RUNS = effort(6, 12)
MOST_OF_RUNS = effort(1, 2)
"""At one in a hundred each, more come by chance once in hundreds of seeds; these are always the same."""


@pytest.mark.parametrize("scenario", HEALTHY, ids=lambda scenario: scenario.name)
def test_healthy_rollouts_are_rolled_back_at_most_alpha_of_the_time(scenario: Scenario) -> None:
    found = rule.verdicts(scenario.traffic(RUNS), P99, AnalysisPolicy.BOTH, 2)
    assert (found.rolled_back != rule.NEVER).sum() <= MOST_OF_RUNS


@pytest.mark.parametrize("policy", [AnalysisPolicy.ABSOLUTE, AnalysisPolicy.RELATIVE])
@pytest.mark.parametrize("scenario", [each for each in HEALTHY if each.batch > 1], ids=lambda each: each.name)
def test_bursts_roll_no_candidate_back_under_either_half_of_the_policy(
    scenario: Scenario, policy: AnalysisPolicy
) -> None:
    found = rule.verdicts(scenario.traffic(RUNS), P99, policy, 2)
    assert (found.rolled_back != rule.NEVER).sum() <= MOST_OF_RUNS


@pytest.mark.parametrize(
    ("scenario", "polls"),
    [
        pytest.param(UNHEALTHY[0], 200, id="2 %"),
        pytest.param(UNHEALTHY[1], 25, id="5 %"),
        pytest.param(UNHEALTHY[2], 9, id="10 %"),
        pytest.param(UNHEALTHY[3], 3, id="50 %"),
    ],
)
def test_bad_canaries_are_found_within_so_many_polls(scenario: Scenario, polls: int) -> None:
    found = rule.verdicts(scenario.traffic(60), P99, AnalysisPolicy.BOTH, 2).rolled_back
    assert (found != rule.NEVER).mean() >= 0.99
    assert np.median(found) + 1 <= polls


def test_a_canary_worse_than_stable_is_found_at_the_latest_when_both_have_shown_their_bursts() -> None:
    found = rule.verdicts(UNHEALTHY[1].traffic(20), P99, AnalysisPolicy.RELATIVE, 2).rolled_back
    assert rule.NEVER not in found
    assert np.median(found) <= 60


def test_absolute_verdict_alone_keeps_alpha_at_the_edge() -> None:
    found = rule.verdicts(HEALTHY[0].traffic(RUNS), P99, AnalysisPolicy.ABSOLUTE, 2)
    assert (found.rolled_back != rule.NEVER).sum() <= MOST_OF_RUNS


def test_a_healthy_canary_is_proven_within_these_requests() -> None:
    assert pace((P99,), Arrivals(50, slow=0.005, failed=0.0)).requests <= 400
    assert pace((P99,), Arrivals(50, slow=0.0, failed=0.0)).requests <= 210


def windows(canary: list[int], bad: list[int]) -> Traffic:
    """One rollout, one poll per window, with a stable that is never slow."""
    one: Counts = np.array([canary])
    ninety = np.full_like(one, 90)
    none = np.zeros_like(one)
    return Traffic(one, np.array([bad]), ninety, none, 1)


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
