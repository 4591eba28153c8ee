"""What the verdict on metrics promises, by simulation: few false alarms, and bad revisions found in time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

import pytest
from tailbound.api.rollout import AnalysisPolicy
from tailbound.judge.account import Account, account_of
from tailbound.judge.evidence import Tally
from tailbound.judge.means import Means, means_about
from tailbound.judge.metric_evidence import judge, taken_in
from tailbound.judge.verdict import Outcome, decide, thresholds
from tailbound.judge.windows import Span

from tests.support.effort import effort
from tests.unit.judge.metric_answers import COUNTED, counters, metric

BOUND, TESTS = 0.1, 1
RUNS = effort(50, 300)
# At one in a hundred each, more come by chance once in thousands of test runs.
MOST_FALSE_ALARMS = effort(3, 12)
STEPS = (20, 40)
Pair = tuple[float, float]


def reading(number: int) -> Span:
    """The half minute that a reading tells of."""
    return Span(30.0 * number, 30.0 * (number + 1))


def ends(known: Means | Account, policy: AnalysisPolicy) -> bool:
    """Whether the candidate is rolled back by what is known."""
    numbers = known.numbers() if isinstance(known, Means) else known.numbers(2 * BOUND, policy)
    limits = thresholds(BOUND, TESTS, policy, independent=False)
    return decide(numbers, policy, limits, comparable=True) is Outcome.ROLL_BACK


def rolled_back(pairs: Iterator[Pair], policies: tuple[AnalysisPolicy, ...]) -> dict[AnalysisPolicy, int]:
    """The number of values after which each policy rolls back; a policy that never does is not in it."""
    known, found = means_about(BOUND, 2 * BOUND), dict[AnalysisPolicy, int]()
    for number, (candidate, stable) in enumerate(pairs, start=1):
        known = (known.next_step() if number in STEPS else known).after(candidate, stable, reading(number))
        for policy in policies:
            if policy not in found and ends(known, policy):
                found[policy] = number
        if len(found) == len(policies):
            break
    return found


def clipped(number: float) -> float:
    """Within the range of badness."""
    return min(1.0, max(0.0, number))


@dataclass(frozen=True)
class Scenario:
    """How the values of both revisions are drawn, and under which policies it is a healthy one."""

    draw: Callable[[Random, int], Pair]
    policies: tuple[AnalysisPolicy, ...] = tuple(AnalysisPolicy)


def _edge(random: Random, _: int) -> Pair:
    return random.uniform(0, 0.2), random.uniform(0, 0.2)


def _events(random: Random, _: int) -> Pair:
    return float(random.random() < BOUND), float(random.random() < BOUND)


def _incident(random: Random, number: int) -> Pair:
    shared = 0.6 if 25 <= number < 45 else 0.05
    return clipped(shared + random.uniform(-0.05, 0.05)), clipped(shared + random.uniform(-0.05, 0.05))


def _drift(random: Random, number: int) -> Pair:
    shared = 0.4 * number / 60
    return clipped(shared * random.uniform(0, 2)), clipped(shared * random.uniform(0, 2))


def _worse_but_within(random: Random, _: int) -> Pair:
    return random.uniform(0.06, 0.1), random.uniform(0, 0.02)


NOT_ALONE = (AnalysisPolicy.BOTH, AnalysisPolicy.RELATIVE)
HEALTHY = {
    "both at the bound": Scenario(_edge),
    "events at the bound": Scenario(_events),
    "an incident that both share": Scenario(_incident, NOT_ALONE),
    "both drift beyond the bound": Scenario(_drift, NOT_ALONE),
    "worse than stable, and within the bound": Scenario(
        _worse_but_within, (AnalysisPolicy.BOTH, AnalysisPolicy.ABSOLUTE)
    ),
}


@pytest.mark.parametrize("scenario", HEALTHY.values(), ids=HEALTHY.keys())
def test_means_of_healthy_revisions_hardly_ever_roll_back(scenario: Scenario) -> None:
    random, alarms = Random(7), dict.fromkeys(scenario.policies, 0)
    for _ in range(RUNS):
        for policy in rolled_back((scenario.draw(random, n) for n in range(60)), scenario.policies):
            alarms[policy] += 1
    assert max(alarms.values()) <= MOST_FALSE_ALARMS, alarms


@pytest.mark.parametrize(
    ("mean", "stable", "absolute", "both"),
    [(0.2, 0.05, 12, 50), (0.3, 0.05, 8, 32), (0.6, 0.05, 6, 17), (1.0, 0.0, 5, 10)],
)
def test_a_mean_beyond_its_bound_is_found_within_so_many_values(
    mean: float, stable: float, absolute: int, both: int
) -> None:
    random, needed = Random(7), list[dict[AnalysisPolicy, int]]()
    for _ in range(25):
        pairs = (
            (min(1.0, mean * random.uniform(0.8, 1.2)), stable * random.uniform(0, 2)) for _ in range(400)
        )
        needed.append(rolled_back(pairs, (AnalysisPolicy.ABSOLUTE, AnalysisPolicy.BOTH)))
    for policy, most in ((AnalysisPolicy.ABSOLUTE, absolute), (AnalysisPolicy.BOTH, both)):
        numbers = sorted(found[policy] for found in needed)
        assert numbers[len(numbers) // 2] <= most, numbers


def test_a_mean_that_gets_bad_at_a_late_step_is_found_sooner_than_by_all_of_its_values() -> None:
    known, values = means_about(BOUND, 2 * BOUND), 0
    for number in range(300):
        known = known.after(0.02, 0.02, reading(number))
    known = known.next_step()
    while not ends(known, AnalysisPolicy.BOTH):
        known, values = known.after(0.6, 0.02, reading(300 + values)), values + 1
    limits = thresholds(BOUND, TESTS, AnalysisPolicy.BOTH, independent=False)
    assert values <= 20
    assert known.numbers().absolute < limits.absolute


def counts(random: Random, of: int, fraction: float) -> Tally:
    """A number of events, each of which is bad with this chance."""
    return Tally(of, sum(random.random() < fraction for _ in range(of)))


@pytest.mark.parametrize(
    ("fractions", "policies"),
    [
        pytest.param(lambda _: (BOUND, BOUND), tuple(AnalysisPolicy), id="both-at-the-bound"),
        pytest.param(
            lambda number: (0.5, 0.5) if 20 <= number < 30 else (0.03, 0.03), NOT_ALONE, id="shared incident"
        ),
        pytest.param(
            lambda _: (0.08, 0.01),
            (AnalysisPolicy.BOTH, AnalysisPolicy.ABSOLUTE),
            id="worse, and within the bound",
        ),
        pytest.param(
            lambda _: (0.14, 0.1), (AnalysisPolicy.RELATIVE,), id="hardly worse, with the policy relative"
        ),
    ],
)
def test_events_of_healthy_revisions_hardly_ever_roll_back(
    fractions: Callable[[int], Pair], policies: tuple[AnalysisPolicy, ...]
) -> None:
    random, alarms = Random(7), dict.fromkeys(policies, 0)
    for _ in range(RUNS):
        known, over = account_of(BOUND), set[AnalysisPolicy]()
        for number in range(60):
            candidate, stable = fractions(number)
            known = known.next_step() if number in STEPS else known
            tallies = counts(random, 10, candidate), counts(random, 20, stable)
            known = known.after(*tallies, reading(number), stable_serves=True)
            over |= {policy for policy in policies if ends(known, policy)}
        for policy in over:
            alarms[policy] += 1
    assert max(alarms.values()) <= MOST_FALSE_ALARMS, alarms


def rounds(random: Random, fraction: float, burst: int, events: int = 20) -> Iterator[tuple[int, int]]:
    """Counters of events that are bad so many at a time, and the bad ones of them, as they rise."""
    total = bad = 0
    while True:
        yield total, bad
        total += events
        bad += burst * sum(random.random() < fraction for _ in range(events // burst))


def rolled_back_in(seed: int, fraction: float, burst: int, most: int) -> int | None:
    """The round in which a counted metric of which nothing was known before rolls back, if it does."""
    made, known = metric(**COUNTED), None
    for number, (total, bad) in zip(range(most), rounds(Random(seed), fraction, burst), strict=False):
        answers = {made.expression: counters(total_a=total, bad_a=bad)}
        known = taken_in(made, known, answers, now=30.0 * number, stable_serves=True).watch
        if judge(made, known, AnalysisPolicy.BOTH, 2, stable_serves=True).outcome is Outcome.ROLL_BACK:
            return number
    return None


def test_events_that_are_bad_in_bursts_roll_back_nobody_at_the_bound() -> None:
    alarms = sum(rolled_back_in(seed, BOUND, 10, 40) is not None for seed in range(RUNS))
    assert alarms <= MOST_FALSE_ALARMS


@pytest.mark.parametrize(("fraction", "most"), [(0.2, 20), (0.3, 12), (0.5, 8)])
def test_events_beyond_the_bound_are_found_within_so_many_rounds(fraction: float, most: int) -> None:
    found = [rolled_back_in(seed, fraction, 1, 100) for seed in range(41)]
    needed = sorted(number for number in found if number is not None)
    assert len(needed) == len(found)
    assert needed[len(needed) // 2] <= most
