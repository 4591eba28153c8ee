"""Bursts are found where they are, not where they are not, and are forgotten once they are over."""

import numpy as np
import pytest
from tailbound.judge.evidence import Tally
from tailbound.judge.overdispersion import STRETCH, Bursts, Spread


def watched(sizes: list[int], bad: list[int]) -> Spread:
    spread = Spread()
    for judged, worst in zip(sizes, bad, strict=True):
        spread = spread.after(Tally(judged, worst))
    return spread


def in_batches(batch: int, polls: int, seed: int) -> Spread:
    """Polls of 900 requests, 1 % bad, whole batches at a time."""
    random = np.random.default_rng(seed)
    return watched([900] * polls, [int(k) * batch for k in random.binomial(900 // batch, 0.01, polls)])


@pytest.mark.parametrize(
    ("sizes", "bad", "reason"),
    [
        pytest.param([], [], "0 of 30 pairs", id="nothing"),
        pytest.param([100] * 30, [1] * 30, "29 of 30 pairs", id="too-few-polls"),
        pytest.param([0] * 500, [0] * 500, "0 of 30 pairs", id="polls-without-requests"),
        pytest.param([4, 0] * 40, [0] * 80, "19 of 30 pairs", id="blocks-of-few-requests"),
        pytest.param([100] * 40, [0] * 40, "0 of 20 bad", id="no-bad-request"),
        pytest.param([5] * 40, [5] * 40, "every request", id="nothing-but-bad-requests"),
    ],
)
def test_too_little_is_not_measured(sizes: list[int], bad: list[int], reason: str) -> None:
    factor = watched(sizes, bad).factor
    assert (factor.value, factor.measured, factor.independent) == (1.0, False, False)
    assert reason in factor.reason


@pytest.mark.parametrize("seed", range(5))
def test_bursts_of_ten_are_measured_as_ten(seed: int) -> None:
    factor = in_batches(10, 300, seed).factor
    assert factor.bursts
    assert not factor.independent
    assert 7 < factor.value < 18


def test_independent_requests_are_hardly_ever_taken_for_bursts() -> None:
    factors = [in_batches(1, 300, seed).factor for seed in range(60)]
    assert sum(factor.bursts for factor in factors) <= 10
    assert max(factor.value for factor in factors) < 2


def test_a_drift_and_a_lasting_change_are_no_bursts() -> None:
    random = np.random.default_rng(3)
    fractions = [0.002 + 0.02 * number / 300 for number in range(300)]
    for values in (fractions, [0.005] * 150 + [0.05] * 150):
        bad = [int(x) for x in random.binomial(100, values)]
        assert watched([100] * 300, bad).factor.value < 1.6


@pytest.mark.parametrize(
    ("candidate", "stable", "bursts"), [(10, 1, True), (1, 10, True), (1, 1, False)], ids=str
)
def test_bursts_of_either_revision_are_seen(candidate: int, stable: int, bursts: bool) -> None:
    factor = Bursts(in_batches(candidate, 100, 5), in_batches(stable, 100, 6)).factor
    assert factor.bursts is bursts


def test_an_incident_is_forgotten_once_it_is_over() -> None:
    random = np.random.default_rng(4)
    bursts, polls = Bursts(), [100] * 300
    bad = [int(x) for x in random.binomial(100, [0.01] * 40 + [0.5] * 5 + [0.01] * 255)]
    seen = []
    for judged, worst in zip(polls, bad, strict=True):
        bursts = bursts.after(Tally(judged, worst), Tally(900, 9))
        bursts = bursts.again() if bursts.over else bursts
        seen.append(bursts.factor)
    assert seen[44].bursts
    assert seen[-1].independent
    assert [factor.independent for factor in seen].index(True, 45) < 45 + STRETCH + 40
