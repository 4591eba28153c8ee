"""The product's verdict for many rollouts at once: the same arithmetic on arrays, held to it by a test."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import log

import numpy as np
from tailbound.rollout.betting import that_polls_are_above
from tailbound.rollout.bursts import LARGEST, Dispersion, Factor
from tailbound.rollout.evidence import AT_LEAST_BAD, GRID, Tally, alternatives
from tailbound.rollout.verdict import RELATIVE_RATIO, Objective, Policy, thresholds

from e2e.bench.rollout.scenarios import Counts, Floats, Traffic

NEVER = -1
Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


@dataclass(frozen=True)
class Verdicts:
    """By rollout, the first poll of each verdict, or `NEVER`, however long it was watched."""

    rolled_back: Counts
    held: Counts


def factors(traffic: Traffic) -> list[Factor]:
    """How bursty each rollout's stable was before it, by the product's own measure."""
    found = []
    for judged, bad in zip(traffic.history, traffic.history_bad, strict=True):
        dispersion = Dispersion()
        for n, x in zip(judged.tolist(), bad.tolist(), strict=True):
            dispersion = dispersion.after(Tally(n, x))
        found.append(dispersion.factor())
    return found


@dataclass(frozen=True, eq=False)
class Signals:
    """By rollout and poll, what `verdict.judge` looks at."""

    beyond: Flags
    worse: Flags
    better: Flags


@lru_cache(maxsize=1)
def signals(traffic: Traffic, objective: Objective, policy: Policy, objectives: int) -> Signals:
    """The evidence on `objective`, as one of `objectives`, against its thresholds."""
    measured = factors(traffic)
    limits = [
        thresholds(objective.allowed, objectives, policy, independent=factor.independent)
        for factor in measured
    ]
    divisor = np.array([[factor.value] for factor in measured])
    canary, bad = traffic.canary / divisor, traffic.canary_bad / divisor
    stable, stable_bad = traffic.stable / divisor, traffic.stable_bad / divisor

    against_sla = absolute(canary, bad, objective.allowed)
    late = _late(absolute, canary, bad, traffic.steps, objective.allowed)
    measured_rows = np.array([[factor.measured] for factor in measured])
    steps, allowed = traffic.steps, objective.allowed
    bursts, bad_bursts = canary / LARGEST, bad / LARGEST
    unmeasured = _mixture([polls(canary, bad, allowed), absolute(bursts, bad_bursts, allowed)])
    against_sla = np.where(measured_rows, against_sla, np.minimum(against_sla, unmeasured))
    unmeasured = _mixture(
        [
            _late(polls, canary, bad, steps, allowed),
            _late(absolute, bursts, bad_bursts, steps, allowed),
        ]
    )
    late = np.where(measured_rows, late, np.minimum(late, unmeasured))
    enough = bad.cumsum(axis=1) >= AT_LEAST_BAD
    beyond = (against_sla >= np.array([[limit.absolute] for limit in limits])) | (late >= limits[0].late)
    against_stable = relative(canary, bad, stable, stable_bad, RELATIVE_RATIO)
    if policy is Policy.RELATIVE:
        unmeasured = relative(bursts, bad_bursts, stable / LARGEST, stable_bad / LARGEST, RELATIVE_RATIO)
        against_stable = np.where(measured_rows, against_stable, np.minimum(against_stable, unmeasured))
    worse = against_stable >= limits[0].relative
    better = relative(stable, stable_bad, canary, bad, 1.0) >= limits[0].relative
    return Signals(enough & beyond, enough & worse, better)


def verdicts(traffic: Traffic, objective: Objective, policy: Policy, objectives: int) -> Verdicts:
    """Verdicts under `policy`, with stable serving to the end."""
    found = signals(traffic, objective, policy, objectives)
    back = found.beyond & found.worse
    if policy is Policy.ABSOLUTE:
        back = found.beyond
    if policy is Policy.RELATIVE:
        back = found.worse
    return Verdicts(first(back), first(found.beyond & ~back & ~found.better))


def absolute(judged: Floats, bad: Floats, allowed: float) -> Floats:
    """`evidence.absolute` after every poll."""
    judged, bad = judged.cumsum(axis=1), bad.cumsum(axis=1)
    return _mixture([_ratio(judged, bad, fraction, allowed) for fraction in alternatives(allowed)])


def polls(judged: Floats, bad: Floats, allowed: float) -> Floats:
    """`betting.Against` of the polls' fractions, after every poll."""
    fraction = np.where(judged > 0, bad / np.maximum(judged, 1e-9), allowed)
    logs = []
    for mean in that_polls_are_above(allowed).alternatives:
        payoff = fraction * mean / allowed + (1 - fraction) * (1 - mean) / (1 - allowed)
        logs.append(np.log(payoff).cumsum(axis=1))
    return _mixture(logs)


def relative(canary: Floats, bad: Floats, stable: Floats, stable_bad: Floats, ratio: float) -> Floats:
    """`evidence.Relative` after every poll."""
    both = (canary > 0) & (stable > 0)
    share = np.where(both, canary / np.maximum(canary + stable, 1e-9), 0.5)
    null = ratio * share / (ratio * share + 1 - share)
    logs = []
    for k in GRID:
        other = ratio * k * share / (ratio * k * share + 1 - share)
        step = bad * np.log(other / null) + stable_bad * np.log((1 - other) / (1 - null))
        logs.append(np.where(both, step, 0.0).cumsum(axis=1))
    return _mixture(logs)


def first(flags: Flags) -> Counts:
    """By row, the first column that is true, or `NEVER`."""
    return np.where(flags.any(axis=1), flags.argmax(axis=1), NEVER)


def _late(
    of: Callable[[Floats, Floats, float], Floats],
    canary: Floats,
    bad: Floats,
    steps: tuple[int, ...],
    allowed: float,
) -> Floats:
    """`evidence.over_later_steps` of one test after every poll; a step begins before its number's poll."""
    total = np.zeros(canary.shape)
    for number, start in enumerate(steps[1:], start=1):
        since = of(canary[:, start:], bad[:, start:], allowed)
        begun = np.exp(total[:, start:]) - 1 / number + 1 / (number + 1)
        total[:, start:] = np.logaddexp(np.log(begun), since - log(number * (number + 1)))
    return total


def _ratio(judged: Floats, bad: Floats, numerator: float, denominator: float) -> Floats:
    return bad * log(numerator / denominator) + (judged - bad) * log((1 - numerator) / (1 - denominator))


def _mixture(logs: list[Floats]) -> Floats:
    total: Floats = np.logaddexp.reduce(logs, axis=0) - log(len(logs))
    return total
