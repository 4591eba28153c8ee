"""What a batch costs is learned from batches of whatever sizes there are, and never told much too cheap."""

from collections.abc import Callable
from dataclasses import replace
from math import inf, nan
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tailbound.autoscale.batch_time import BatchTimeModel, Fit, learn, seeded
from tailbound.autoscale.model import BATCH_WINDOW, TICK, BatchSums

BATCH_TIMES = BatchTimeModel(0.2, 0.05)
NOISE = 0.14
"""Relative spread of single batches."""
Seconds = Callable[[float], float]


def sums(sizes: list[int], seconds: Seconds, random: Random | None = None) -> BatchSums:
    """A window of batches on a curve, or scattered about it by chance."""
    times = [
        seconds(size) * (random.lognormvariate(0, NOISE) if random is not None else 1.0) for size in sizes
    ]
    return BatchSums(
        window=30.0,
        requests=sum(sizes),
        batches=len(sizes),
        rows=sum(sizes),
        rows_squared=sum(size * size for size in sizes),
        seconds=sum(times),
        rows_seconds=sum(size * time for size, time in zip(sizes, times, strict=True)),
    )


def learned(fit: Fit, *windows: BatchSums, limit: int = 16) -> tuple[Fit, BatchTimeModel]:
    """What is learned after windows that follow one another."""
    for window in windows:
        fit = learn(fit, window, 0.0 if fit.at is None else fit.at + 60.0, limit)
    assert fit.batch_times is not None
    return fit, fit.batch_times


def near(size: float, limit: int, count: int, random: Random) -> list[int]:
    """Batches of about `size`, as those of a busy replica differ."""
    return [max(1, min(limit, round(random.gauss(size, size**0.5)))) for _ in range(count)]


def idle(limit: int, count: int, random: Random) -> list[int]:
    """Batches of one, but that some find two or three requests waiting."""
    return [min(limit, random.choice((1,) * 8 + (2, 2, 3))) for _ in range(count)]


@settings(max_examples=40, deadline=None)
@given(st.floats(0.001, 5), st.floats(0.0001, 1))
def test_a_line_is_found_in_the_batches_that_lie_on_it(base: float, per_row: float) -> None:
    _, batch_times = learned(Fit(), sums([1, 4, 8, 16] * 200, BatchTimeModel(base, per_row).seconds))
    assert batch_times.seconds(16) == pytest.approx(base + 16 * per_row, rel=0.1)
    assert batch_times.seconds(7) == pytest.approx(base + 7 * per_row, rel=0.03)


@settings(max_examples=200, deadline=None)
@given(
    st.floats(0, 1),
    st.lists(st.integers(1, 32), min_size=1, max_size=60),
    st.integers(1, 40),
    st.integers(0, 100),
)
def test_whatever_batches_were_seen_no_line_is_taken_for_twice_its_capacity(
    share: float, sizes: list[int], windows: int, more: int
) -> None:
    truth, limit = BatchTimeModel(1 - share, share), max(sizes) + more
    _, batch_times = learned(Fit(), *[sums(sizes, truth.seconds)] * windows, limit=limit)
    mean = sum(sizes) / len(sizes)
    assert batch_times.capacity(limit) <= (1 + 1 / mean) * truth.capacity(limit) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("truth", "limit", "few", "ones", "little", "half", "full"),
    [
        (BatchTimeModel(0.25, 0.00), 4, (0.3, 0.8), (0.39, 0.41), (0.75, 1.0), (0.9, 1.0), (0.95, 1.05)),
        (BatchTimeModel(0.20, 0.05), 4, (0.5, 1.1), (0.61, 0.65), (0.88, 1.0), (0.95, 1.05), (0.95, 1.05)),
        (BatchTimeModel(0.10, 0.10), 4, (0.8, 1.3), (0.97, 1.03), (0.95, 1.05), (0.95, 1.05), (0.95, 1.05)),
        (BatchTimeModel(0.00, 0.25), 4, (1.0, 1.8), (1.55, 1.63), (0.95, 1.12), (0.95, 1.05), (0.95, 1.05)),
        (BatchTimeModel(0.20, 0.05), 16, (0.4, 1.1), (0.45, 0.50), (0.55, 1.0), (0.92, 1.05), (0.95, 1.05)),
        (BatchTimeModel(0.10, 0.10), 16, (0.7, 1.4), (0.96, 1.04), (0.92, 1.05), (0.95, 1.05), (0.95, 1.05)),
        (BatchTimeModel(0.00, 0.25), 16, (1.0, 2.2), (1.80, 1.94), (1.0, 1.5), (0.95, 1.05), (0.95, 1.05)),
        (BatchTimeModel(0.20, 0.05), 64, (0.3, 1.1), (0.39, 0.44), (0.4, 1.0), (0.92, 1.05), (0.95, 1.05)),
        (BatchTimeModel(0.00, 0.25), 64, (1.0, 2.3), (1.85, 2.03), (1.0, 1.9), (0.95, 1.05), (0.95, 1.05)),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else None,
)
def test_capacity_over_the_true_one_after_few_batches_or_ones_little_half_or_full_load(
    truth: BatchTimeModel,
    limit: int,
    few: tuple[float, float],
    ones: tuple[float, float],
    little: tuple[float, float],
    half: tuple[float, float],
    full: tuple[float, float],
) -> None:
    for seed in range(4):
        random = Random(seed)
        for (least, most), windows, sizes in (
            (few, 1, idle(limit, 5, random)),
            (ones, 10, [1] * 100),
            (little, 10, idle(limit, 100, random)),
            (half, 10, near(limit / 2, limit, 100, random)),
            (full, 10, [limit] * 100),
        ):
            seen = [sums(sizes, truth.seconds, random) for _ in range(windows)]
            ratio = learned(Fit(), *seen, limit=limit)[1].capacity(limit) / truth.capacity(limit)
            assert least <= ratio <= most, (seed, sizes[:5], ratio)


@pytest.mark.parametrize("limit", [4, 16, 64])
@pytest.mark.parametrize(
    "seconds",
    [lambda rows: 0.2 * max(1.0, rows / 8), lambda rows: 0.1 + 0.1 * (-rows // 4 * -1)],
    ids=["flat up to 8", "in steps of 4"],
)
def test_what_is_no_line_is_taken_for_at_most_twice_its_capacity(limit: int, seconds: Seconds) -> None:
    random = Random(1)
    for sizes in ([1] * 100, idle(limit, 100, random), near(limit / 2, limit, 100, random)):
        seen = [sums(sizes, seconds, random) for _ in range(20)]
        assert learned(Fit(), *seen, limit=limit)[1].capacity(limit) <= 2 * limit / seconds(limit)


def test_fuller_batches_correct_a_shape_that_was_only_supposed_and_not_the_level() -> None:
    random = Random(1)
    seen = [sums(near(4, 16, 100, random), BATCH_TIMES.seconds, random) for _ in range(3)]
    fit, _ = learned(Fit(), *[sums([1] * 100, BATCH_TIMES.seconds, random)] * 5)
    _, batch_times = learned(fit, *seen)
    assert batch_times.capacity(16) == pytest.approx(BATCH_TIMES.capacity(16), rel=0.15)
    assert batch_times.seconds(4) == pytest.approx(BATCH_TIMES.seconds(4), rel=0.05)


@pytest.mark.parametrize("size", [6, 8, 14])
def test_batches_that_all_take_longer_move_the_level_at_once_and_keep_the_shape(size: int) -> None:
    random = Random(1)
    before = [sums(near(8, 16, 200, random), BATCH_TIMES.seconds) for _ in range(10)]
    fit, was = learned(Fit(), *before)
    slower = sums(near(size, 16, 200, random), BatchTimeModel(0.27, 0.0675).seconds)
    _, batch_times = learned(fit, slower)
    assert batch_times.seconds(16) == pytest.approx(1.35 * was.seconds(16), rel=0.02)
    assert batch_times.seconds(1) == pytest.approx(1.35 * was.seconds(1), rel=0.06)


def test_a_tick_after_batches_became_slower_all_of_the_window_is_slower() -> None:
    """The level is then the new one, and is not averaged with batches from before."""
    slower = round(min(1.0, TICK / BATCH_WINDOW) * 60)
    parts = [sums([8] * 60, BATCH_TIMES.seconds) for _ in range(10)]
    mixed = [1.0] * (60 - slower) + [1.35] * slower
    window = replace(parts[0], seconds=sum(mixed) * BATCH_TIMES.seconds(8))
    window = replace(window, rows_seconds=8 * window.seconds)
    _, batch_times = learned(Fit(), *parts, window)
    assert batch_times.seconds(8) == pytest.approx(1.35 * BATCH_TIMES.seconds(8), rel=0.02)


def test_a_night_of_batches_of_one_forgets_no_busy_day() -> None:
    random = Random(1)
    day = [sums(near(8, 16, 400, random), BATCH_TIMES.seconds, random) for _ in range(60)]
    night = [sums([1] * 50, BATCH_TIMES.seconds, random) for _ in range(8 * 60)]
    _, batch_times = learned(Fit(), *day, *night)
    assert batch_times.capacity(16) == pytest.approx(BATCH_TIMES.capacity(16), rel=0.1)


def test_what_was_learned_in_an_earlier_life_counts_for_a_shape_that_cannot_be_told_yet() -> None:
    _, batch_times = learned(seeded(BATCH_TIMES, 16), sums([8] * 2000, BatchTimeModel(0.3, 0.075).seconds))
    assert batch_times.capacity(16) == pytest.approx(BATCH_TIMES.capacity(16) / 1.5, rel=0.02)
    _, batch_times = learned(seeded(BATCH_TIMES, 16), sums([1] * 100, BATCH_TIMES.seconds))
    assert batch_times.capacity(16) == pytest.approx(BATCH_TIMES.capacity(16), rel=0.1)


def test_a_window_without_batches_teaches_nothing() -> None:
    fit = seeded(BATCH_TIMES, 16)
    assert learn(fit, sums([], BATCH_TIMES.seconds), 30.0, 16) == fit
    assert learn(Fit(), sums([], BATCH_TIMES.seconds), 30.0, 16).batch_times is None


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e-300, 1e300, inf, nan])
def test_a_time_that_no_batch_takes_teaches_nothing(seconds: float) -> None:
    """With it, the capacity or its inverse would be no number."""
    fit = learn(Fit(), sums([4, 8], BATCH_TIMES.seconds), 0.0, 16)
    assert learn(fit, replace(sums([4, 8], BATCH_TIMES.seconds), seconds=seconds), 30.0, 16) == fit


def test_the_same_window_counts_once() -> None:
    window = sums([1, 8, 16] * 10, BATCH_TIMES.seconds)
    fit = learn(Fit(), window, 30.0, 16)
    assert learn(fit, window, 30.0, 16) == fit
