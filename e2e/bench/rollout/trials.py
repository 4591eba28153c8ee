"""Rollouts of one service, poll by poll, driven through the product's own account of an objective.

A trial draws the requests of both revisions, one poll after the other, and asks the product's verdict after
each. Drawing is vectorised over the polls of a run; what the product does is not copied.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from tailbound.rollout.account import Account, account_of, judge
from tailbound.rollout.evidence import Tally
from tailbound.rollout.verdict import Objective, Outcome, Policy, latency_objective

from e2e.bench.rollout.scenarios import SEED, Counts

P99: Final = latency_objective(0.99)
POLL_SECONDS: Final = 2.0


@dataclass(frozen=True, eq=False)
class Drawn:
    """Requests and bad ones of both revisions by poll."""

    canary: Counts
    canary_bad: Counts
    stable: Counts
    stable_bad: Counts


@dataclass(frozen=True)
class Step:
    """A stage of a rollout."""

    poll: int
    """Number of the poll at which it begins."""
    weight: int
    """Percent of the requests that the candidate gets."""
    pods: int = 1
    """Of the candidate."""


@dataclass(frozen=True)
class Trial:
    """A kind of rollout that many runs are drawn of."""

    name: str
    draw: Callable[[np.random.Generator], Drawn]
    steps: tuple[Step, ...] = (Step(0, 5),)
    policy: Policy = Policy.BOTH
    objective: Objective = P99
    tests: int = 2
    warmup: int = 0
    poll_seconds: float = POLL_SECONDS


@dataclass(frozen=True)
class Result:
    """How a run went, by number of the poll; None where it never came to that."""

    rolled_back: int | None
    held: int | None
    passed: tuple[int | None, ...]
    """By step, the first poll at which it had passed."""


def run(trial: Trial, seed: int) -> Result:
    """One rollout."""
    random = np.random.default_rng([SEED, seed, *trial.name.encode()])
    drawn = trial.draw(random)
    numbers = zip(
        *(counts.tolist() for counts in (drawn.canary, drawn.canary_bad, drawn.stable, drawn.stable_bad)),
        strict=True,
    )
    account, at, held = account_of(trial.objective.allowed), 0, None
    passed: list[int | None] = [None] * len(trial.steps)
    for number, (canary, bad, stable, stable_bad) in enumerate(numbers):
        if at + 1 < len(trial.steps) and number == trial.steps[at + 1].poll:
            at += 1
            account = account.next_step()
        step = trial.steps[at]
        if number == step.poll:
            pods = step.pods - (trial.steps[at - 1].pods if at else 0)
            account = account.with_pods(pods, step.pods, trial.warmup)
        outcome, account = _judged(
            trial, account, (Tally(canary, bad), Tally(stable, stable_bad)), number, step.weight
        )
        if outcome is Outcome.ROLL_BACK:
            return Result(number, held, tuple(passed))
        if outcome is Outcome.HOLD and held is None:
            held = number
        if outcome is Outcome.PASS and passed[at] is None:
            passed[at] = number
    return Result(None, held, tuple(passed))


def _judged(
    trial: Trial, account: Account, polled: tuple[Tally, Tally], number: int, weight: int
) -> tuple[Outcome, Account]:
    serves = weight < 100
    known = account.after(*polled, number * trial.poll_seconds, stable_serves=serves)
    found = judge(trial.objective, known, trial.policy, trial.tests, stable_serves=serves)
    return found.outcome, known
