"""The product's verdict on drawn traffic, run by run: its own account of an objective, nothing copied."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from tailbound.api.rollout import AnalysisPolicy
from tailbound.judge.account import account_about, judge
from tailbound.judge.evidence import Tally
from tailbound.judge.verdict import Objective, Outcome
from tailbound.judge.windows import Span

from e2e.bench.rollout.scenarios import Counts, Traffic

NEVER = -1
POLL_SECONDS = 2.0
_LOOKS = 5
"""A poll without a bad request of the canary's condemns nobody: of those, one in so many is looked at."""
Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


@dataclass(frozen=True)
class Verdicts:
    """The first poll of each verdict, or `NEVER`, by rollout, until it is rolled back under every policy."""

    rolled_back: Counts
    held: Counts


def verdicts(traffic: Traffic, objective: Objective, policy: AnalysisPolicy, objectives: int) -> Verdicts:
    """Verdicts on `objective`, as one of `objectives`, with stable serving to the end."""
    return _all(traffic, objective, objectives)[policy]


@lru_cache(maxsize=2)
def _all(traffic: Traffic, objective: Objective, objectives: int) -> dict[AnalysisPolicy, Verdicts]:
    found = [_run(traffic, row, objective, objectives) for row in range(len(traffic.canary))]
    return {
        policy: Verdicts(
            np.array([each[policy, Outcome.ROLL_BACK] for each in found]),
            np.array([each[policy, Outcome.HOLD] for each in found]),
        )
        for policy in AnalysisPolicy
    }


def _run(
    traffic: Traffic, row: int, objective: Objective, objectives: int
) -> dict[tuple[AnalysisPolicy, Outcome], int]:
    found = {
        (policy, outcome): NEVER for policy in AnalysisPolicy for outcome in (Outcome.ROLL_BACK, Outcome.HOLD)
    }
    account = account_about(objective)
    polls = zip(
        traffic.canary[row].tolist(),
        traffic.canary_bad[row].tolist(),
        traffic.stable[row].tolist(),
        traffic.stable_bad[row].tolist(),
        strict=True,
    )
    for number, (canary, bad, stable, stable_bad) in enumerate(polls):
        if number in traffic.steps[1:]:
            account = account.next_step()
        span = Span((number - 1) * POLL_SECONDS, number * POLL_SECONDS)
        account = account.after(Tally(canary, bad), Tally(stable, stable_bad), span, stable_serves=True)
        if not bad and number % _LOOKS:
            continue
        for policy in AnalysisPolicy:
            outcome = judge(objective, account, policy, objectives, stable_serves=True).outcome
            if found.get((policy, outcome)) == NEVER:
                found[policy, outcome] = number
        if all(found[policy, Outcome.ROLL_BACK] != NEVER for policy in AnalysisPolicy):
            break
    return found


def first(flags: Flags) -> Counts:
    """The first column that is true, or `NEVER`, by row."""
    return np.where(flags.any(axis=1), flags.argmax(axis=1), NEVER)
