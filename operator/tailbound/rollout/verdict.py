"""What the evidence says at one poll: roll back, hold, pass, or wait for more.

Pure: the counts go in, and a finding with its numbers comes out. What follows from a finding (weights, pauses,
time limits) is the state machine's.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from math import log
from typing import Final

from tailbound.rollout.evidence import (
    AT_LEAST_BAD,
    CREDITED_ALPHAS,
    OVERSHOOT_CREDIT,
    Relative,
    Tally,
    absolute,
    late_onset,
    passing,
)

ALPHA: Final = 0.01
"""Chance at most that a healthy canary is ever rolled back by the evidence, however long it is watched."""
BETA: Final = 0.05
"""Chance at most that a step passes a canary that is as bad as unacceptable."""
RELATIVE_RATIO: Final = 1.5
"""How many times worse than stable a canary may be before the relative test speaks against it."""
_LATE_SHARE: Final = 0.25
"""The part of alpha kept for canaries that turn bad after the first step."""


class Policy(StrEnum):
    """Which comparison condemns a canary: with the SLA, with stable, or only both together."""

    ABSOLUTE = "absolute"
    RELATIVE = "relative"
    BOTH = "both"


class Outcome(StrEnum):
    """What one poll's evidence asks for."""

    ROLL_BACK = "RollBack"
    HOLD = "Hold"
    PASS = "Pass"  # noqa: S105 - an outcome, not a password
    WAIT = "Wait"


@dataclass(frozen=True)
class Objective:
    """One thing that the SLA promises, as a bound on the fraction of bad requests."""

    name: str
    allowed: float
    """The fraction that the SLA allows: 0.01 for a P99 target."""
    unacceptable: float
    """The fraction that a passing step must prove the canary to be below."""


@dataclass(frozen=True)
class Evidence:
    """All that is known about one objective. Counts are deflated for bursts already."""

    canary: Tally = Tally()
    stable: Tally = Tally()
    step_starts: tuple[Tally, ...] = (Tally(),)
    """The canary's cumulative counts at which each step began."""
    relative: Relative = Relative(RELATIVE_RATIO)
    improves: Relative = Relative(1.0)
    """The relative test with the arms exchanged: evidence that stable is the worse one."""

    def after(self, canary: Tally, stable: Tally) -> "Evidence":
        """The evidence after one more poll."""
        return replace(
            self,
            canary=self.canary + canary,
            stable=self.stable + stable,
            relative=self.relative.after(canary, stable),
            improves=self.improves.after(stable, canary),
        )

    def next_step(self) -> "Evidence":
        """The evidence as a new step begins: what was proven for passing starts again, what speaks against stays."""
        return replace(self, step_starts=(*self.step_starts, self.canary))


@dataclass(frozen=True)
class Thresholds:
    """Evidence at which each test speaks, as ln E; from alpha shared among the objectives."""

    absolute: float
    late: float
    relative: float
    passing: float


def thresholds(objectives: int, *, deflated: bool) -> Thresholds:
    """Thresholds for each of `objectives`, so that alpha holds for all of them together."""
    alpha = ALPHA / objectives
    first = alpha * (1 - _LATE_SHARE)
    credit = OVERSHOOT_CREDIT if not deflated and CREDITED_ALPHAS[0] <= first <= CREDITED_ALPHAS[1] else 0.0
    return Thresholds(
        absolute=log(1 / first) - credit,
        late=log(1 / (alpha * _LATE_SHARE)),
        relative=log(1 / alpha),
        passing=log(1 / BETA),
    )


@dataclass(frozen=True)
class Finding:
    """The outcome for one objective, with the numbers behind it (ln E)."""

    objective: Objective
    outcome: Outcome
    absolute: float
    relative: float
    passing: float
    improves_breach: bool = False
    """Passed only because it is proven better than a stable that breaches the SLA."""


def judge(objective: Objective, evidence: Evidence, policy: Policy, limits: Thresholds) -> Finding:
    """One objective at one poll; the first row that matches decides.

    | beyond the SLA | worse than stable | policy   | proven better than stable | proven below unacceptable | outcome   |
    |----------------|-------------------|----------|---------------------------|---------------------------|-----------|
    | yes            | yes               | any      | -                         | -                         | roll back |
    | yes            | no                | absolute | -                         | -                         | roll back |
    | no             | yes               | relative | -                         | -                         | roll back |
    | yes            | no                | other    | yes                       | -                         | pass      |
    | yes            | no                | other    | no                        | -                         | hold      |
    | no             | -                 | other    | -                         | yes                       | pass      |
    | no             | -                 | other    | -                         | no                        | wait      |

    Without stable traffic nothing is compared, and the policy is absolute.
    """
    against_sla, late = (
        absolute(evidence.canary, objective.allowed),
        late_onset(evidence.canary, evidence.step_starts, objective.allowed),
    )
    passed = passing(evidence.canary - evidence.step_starts[-1], objective.unacceptable)
    enough = evidence.canary.bad >= AT_LEAST_BAD
    beyond = enough and (against_sla >= limits.absolute or late >= limits.late)
    worse = enough and evidence.relative.value >= limits.relative
    better = evidence.improves.value >= limits.relative
    effective = policy if evidence.stable.judged > 0 else Policy.ABSOLUTE
    rules = (
        (beyond and worse, Outcome.ROLL_BACK),
        (beyond and effective is Policy.ABSOLUTE, Outcome.ROLL_BACK),
        (worse and effective is Policy.RELATIVE, Outcome.ROLL_BACK),
        (beyond and better, Outcome.PASS),
        (beyond, Outcome.HOLD),
        (passed >= limits.passing, Outcome.PASS),
    )
    outcome = next((outcome for holds, outcome in rules if holds), Outcome.WAIT)
    return Finding(
        objective,
        outcome,
        max(against_sla, late),
        evidence.relative.value,
        passed,
        improves_breach=outcome is Outcome.PASS and beyond,
    )


def combine(findings: tuple[Finding, ...]) -> Outcome:
    """One outcome of all objectives: any rollback wins, then any hold, then any wait; a pass needs them all."""
    for outcome in (Outcome.ROLL_BACK, Outcome.HOLD, Outcome.WAIT):
        if any(finding.outcome is outcome for finding in findings):
            return outcome
    return Outcome.PASS if findings else Outcome.WAIT
