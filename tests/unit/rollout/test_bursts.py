"""Bursts are found where they are, not where they are not, and never beyond what can be known."""

import numpy as np
import pytest
from tailbound.rollout.bursts import Dispersion, Factor
from tailbound.rollout.evidence import Tally


def watched(sizes: list[int], bad: list[int]) -> Dispersion:
    dispersion = Dispersion()
    for judged, worst in zip(sizes, bad, strict=True):
        dispersion = dispersion.after(Tally(judged, worst))
    return dispersion


def in_batches(batch: int, polls: int, seed: int) -> Dispersion:
    """Polls of 900 requests, 1 % bad, whole batches at a time."""
    random = np.random.default_rng(seed)
    return watched([900] * polls, [int(k) * batch for k in random.binomial(900 // batch, 0.01, polls)])


@pytest.mark.parametrize(
    ("sizes", "bad", "reason"),
    [
        pytest.param([], [], "0 of 30 polls", id="no history"),
        pytest.param([100] * 29, [1] * 29, "29 of 30 polls", id="too few polls"),
        pytest.param([0] * 500, [0] * 500, "0 of 30 polls", id="polls without requests"),
        pytest.param([100] * 40, [0] * 40, "0 of 20 bad", id="no bad request"),
        pytest.param([5] * 40, [5] * 40, "every request", id="nothing but bad requests"),
    ],
)
def test_too_little_history_is_not_measured(sizes: list[int], bad: list[int], reason: str) -> None:
    factor = watched(sizes, bad).factor()
    assert (factor.value, factor.measured, factor.independent) == (1.0, False, False)
    assert reason in factor.reason


@pytest.mark.parametrize("seed", range(20))
def test_bursts_of_ten_are_measured_as_ten(seed: int) -> None:
    factor = in_batches(10, 300, seed).factor()
    assert factor.measured
    assert not factor.independent
    assert 7 < factor.value < 13


def test_independent_requests_are_hardly_ever_taken_for_bursts() -> None:
    factors = [in_batches(1, 300, seed).factor() for seed in range(300)]
    assert sum(not factor.independent for factor in factors) <= 15
    assert max(factor.value for factor in factors) < 1.5


def test_factor_is_never_above_the_largest_batch() -> None:
    assert in_batches(10, 300, 1).factor(largest_batch=4) == Factor(4.0, True, "no batch was larger than 4")


def test_a_largest_batch_above_the_dispersion_changes_nothing() -> None:
    dispersion = in_batches(10, 300, 1)
    assert dispersion.factor(largest_batch=64) == dispersion.factor()


def test_sums_are_the_dispersion_index() -> None:
    sizes, bad = [100, 50, 80] * 20, [9, 0, 1] * 20
    fraction = sum(bad) / sum(sizes)
    pearson = sum(
        (x - n * fraction) ** 2 / (n * fraction * (1 - fraction)) for n, x in zip(sizes, bad, strict=True)
    )
    assert watched(sizes, bad).factor().value == pytest.approx(pearson / (len(sizes) - 1))
