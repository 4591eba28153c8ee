"""Bets about a mean: under the hypothesis nobody gets rich, however long it goes on; beside it they do."""

import random
from collections.abc import Callable
from itertools import product
from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailbound.judge.betting import STAKES, Bets, PairedTest, that_above, that_below
from tailbound.judge.evidence import Tally, absolute, passing

from tests.support.effort import effort

ALPHA = 0.01
BOUNDS = st.floats(0.001, 0.9)


@given(BOUNDS, st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_under_the_hypothesis_no_bet_pays_on_average(
    bound: float, one: float, other: float, mix: float
) -> None:
    low, high = sorted((one, other))
    mean = mix * high + (1 - mix) * low
    for bets, is_null in ((that_above(bound), mean <= bound), (that_below(bound), mean >= bound)):
        expected = mix * exp(bets.after(high).log_fortune) + (1 - mix) * exp(bets.after(low).log_fortune)
        if is_null:
            assert expected <= 1 + 1e-9


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=6))
def test_no_stake_on_a_difference_pays_unless_the_first_mean_is_greater(
    pairs: list[tuple[float, float, float]],
) -> None:
    """Whatever both values of a pair share: any joint distribution is a mixture of such pairs."""
    total = sum(weight for _, _, weight in pairs) or 1.0
    first = sum(weight * one for one, _, weight in pairs) / total
    second = sum(weight * other for _, other, weight in pairs) / total
    for number in range(len(STAKES)):
        expected = sum(
            weight * exp(PairedTest().after(one, other).logs[number]) for one, other, weight in pairs
        )
        assert expected / total <= 1 + max(0.0, first - second) + 1e-9


@pytest.mark.parametrize("bound", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("bets_on", [that_above, that_below])
def test_the_greatest_fortune_of_all_paths_keeps_the_promise(
    bound: float, bets_on: Callable[[float], Bets]
) -> None:
    """Ville's inequality, by enumeration: every path of ten values at the edge of the hypothesis."""
    chance = 0.0
    for path in product((0.0, 1.0), repeat=10):
        bets, highest = bets_on(bound), 0.0
        for value in path:
            bets = bets.after(value)
            highest = max(highest, bets.log_fortune)
        if highest >= log(1 / 0.05):
            ones = sum(path)
            chance += bound**ones * (1 - bound) ** (len(path) - ones)
    assert chance <= 0.05


@pytest.mark.parametrize("spread", [0.02, 0.1])
def test_looking_hundreds_of_times_raises_no_false_alarm(spread: float) -> None:
    draw, alarms, runs = random.Random(5), 0, effort(100, 300)
    for _ in range(runs):
        bets = that_above(0.1)
        for _ in range(300):
            bets = bets.after(draw.uniform(0.1 - spread, 0.1 + spread))
            if bets.log_fortune >= log(1 / ALPHA):
                alarms += 1
                break
    assert alarms <= 0.03 * runs  # three times alpha; the draws are always the same


@pytest.mark.parametrize(("mean", "at_most"), [(0.2, 60), (0.3, 20), (0.5, 8), (1.0, 4)])
def test_a_mean_beyond_the_bound_is_found(mean: float, at_most: int) -> None:
    draw, bets, values = random.Random(5), that_above(0.1), 0
    while bets.log_fortune < log(1 / ALPHA):
        bets = bets.after(min(1.0, draw.uniform(0.8 * mean, 1.2 * mean)))
        values += 1
    assert values <= at_most


def test_a_mean_within_the_bound_passes() -> None:
    bets, values = that_below(0.2), 0
    while bets.log_fortune < log(1 / 0.05):
        bets = bets.after(0.02)
        values += 1
    assert values <= 25


@given(st.integers(0, 200), st.integers(0, 50))
def test_for_events_it_is_the_likelihood_ratio_of_the_counters(good: int, bad: int) -> None:
    tally = Tally(good + bad, bad)
    above = that_above(0.02).after(1.0, bad).after(0.0, good).log_fortune
    below = that_below(0.04).after(1.0, bad).after(0.0, good).log_fortune
    assert above == pytest.approx(absolute(tally, 0.02), rel=1e-9, abs=1e-9)
    assert below == pytest.approx(passing(tally, 0.04), rel=1e-9, abs=1e-9)
