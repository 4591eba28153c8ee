"""Rollouts of one service, poll by poll, driven through the product's own account of an objective.

A trial draws the requests of both revisions and asks the product's verdict as they come. What the product
does is not copied. It is asked after each poll with a bad request of the candidate, as none other can condemn
it, and after every fifth of the others; polls without a request change nothing and are passed over.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from tailbound.api.rollout import AnalysisPolicy
from tailbound.judge.account import Account, account_about, judge
from tailbound.judge.evidence import Tally
from tailbound.judge.verdict import Objective, Outcome, latency_objective
from tailbound.judge.windows import Span

from e2e.bench.rollout.scenarios import SEED, Counts

P99: Final = latency_objective(0.99)
POLL_SECONDS: Final = 2.0
_ALL: Final = 100
_ASKED_EVERY: Final = 5


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
    """Pods of the candidate."""


@dataclass(frozen=True)
class Trial:
    """A kind of rollout that many runs are drawn of."""

    name: str
    draw: Callable[[np.random.Generator], Drawn]
    steps: tuple[Step, ...] = (Step(0, 5),)
    policy: AnalysisPolicy = AnalysisPolicy.BOTH
    objective: Objective = P99
    tests: int = 2
    """Latency and errors share alpha, as they do in a service that promises both."""
    warmup: int = 0


@dataclass(frozen=True)
class Result:
    """How a run went, by number of the poll; None where it never came to that."""

    rolled_back: int | None
    held: int | None
    passed: tuple[int | None, ...]
    """The first poll at which each step had passed."""


def run(trial: Trial, seed: int) -> Result:
    """One rollout, drawn with this seed."""
    drawn = trial.draw(np.random.default_rng([SEED, seed, *trial.name.encode()]))
    columns = (drawn.canary, drawn.canary_bad, drawn.stable, drawn.stable_bad)
    account, at, held = account_about(trial.objective), -1, None
    passed: list[int | None] = [None] * len(trial.steps)
    for number, (canary, bad, stable, stable_bad) in enumerate(
        zip(*(counts.tolist() for counts in columns), strict=True)
    ):
        if at + 1 < len(trial.steps) and number == trial.steps[at + 1].poll:
            at += 1
            account = _stepped(trial, account, at)
        if not canary and not stable:
            continue
        serves = trial.steps[at].weight < _ALL
        polled = Tally(canary, bad), Tally(stable, stable_bad)
        span = Span((number - 1) * POLL_SECONDS, number * POLL_SECONDS)
        account = account.after(*polled, span, stable_serves=serves)
        if not bad and number % _ASKED_EVERY:
            continue
        outcome = judge(trial.objective, account, trial.policy, trial.tests, stable_serves=serves).outcome
        if outcome is Outcome.ROLL_BACK:
            return Result(number, held, tuple(passed))
        held = number if held is None and outcome is Outcome.HOLD else held
        if outcome is Outcome.PASS and passed[at] is None:
            passed[at] = number
    return Result(None, held, tuple(passed))


def _stepped(trial: Trial, account: Account, at: int) -> Account:
    """The account as a step begins, with the new pods of that step."""
    step, before = trial.steps[at], trial.steps[at - 1].pods if at else 0
    account = account.next_step() if at else account
    return account.with_pods(step.pods - before, step.pods, trial.warmup)
