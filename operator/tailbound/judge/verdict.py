"""What the evidence says at one poll: roll back, hold, pass, or wait for more.

Pure: the counts go in, and a finding with its numbers comes out. What follows from a finding (weights,
pauses, time limits) is the state machine's.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import log
from typing import Final, Protocol

from tailbound.api.rollout import AnalysisPolicy
from tailbound.judge.counters import Classes
from tailbound.judge.evidence import (
    OVERSHOOT_CREDIT,
    Relative,
    StoredAsCanary,
    Tally,
    credited,
)

ALPHA: Final = 0.01
"""Chance at most that a healthy candidate is ever rolled back by the evidence, however long it is watched."""
BETA: Final = 0.05
"""Chance at most that a step passes a candidate that is as bad as unacceptable."""
RELATIVE_RATIO: Final = 1.5
"""How many times worse than stable a candidate may be before the relative test speaks against it."""
LATE_SHARE: Final = 0.25
"""The part of alpha kept for candidates that turn bad after the first step."""
LEAST_ERROR_RATE: Final = 0.01
"""Candidates are proven to fail less than this, not twice the SLA's rate: 0.2 % takes small services days."""

UNSTATED_ERROR_RATE: Final = 0.01
"""Fraction of requests that a candidate may fail where the SLA states no error rate, whatever stable does."""
MOST_ALONE: Final = 0.5
"""The bound on that rate where stable has served no request to compare with."""


class Outcome(StrEnum):
    """What one poll's evidence asks for."""

    ROLL_BACK = "RollBack"
    HOLD = "Hold"
    PASS = "Pass"  # noqa: S105 - an outcome, not a password
    WAIT = "Wait"


class Measure(StrEnum):
    """What makes a request bad, and of which requests."""

    LATENCY = "latency"
    ERRORS = "errors"

    def tally(self, classes: Classes) -> Tally:
        """The requests that this measure judges, and the bad ones of them."""
        if self is Measure.LATENCY:
            return Tally(classes.with_latency, classes.late)
        return Tally(classes.answered, classes.errors)


@dataclass(frozen=True)
class Objective:
    """One thing that the SLA promises, as a bound on the fraction of bad requests.

    Raises ValueError for fractions that no test can be made of.
    """

    measure: Measure
    allowed: float
    """The fraction that the SLA allows: 0.01 for a P99 target."""
    unacceptable: float
    """The fraction that a passing step must prove the candidate to be below."""
    stated: bool = True
    """The SLA states it. One that it does not state rejects a candidate that is worse than stable, and asks
    for no proof (`without_promise`)."""

    def __post_init__(self) -> None:
        if not 0 < self.allowed <= 0.5:
            raise ValueError(f"allowed is {self.allowed:g}: give a fraction above 0 and at most 0.5")
        if not self.allowed < self.unacceptable < 1:
            raise ValueError(
                f"unacceptable is {self.unacceptable:g}: give a fraction above {self.allowed:g} and below 1"
            )


def latency_objective(quantile: float) -> Objective:
    """A latency target at `quantile` (0.99 for a P99): at most 1 - quantile of the requests may be slow."""
    allowed = round(1 - quantile, 12)
    return Objective(Measure.LATENCY, allowed, min(2 * allowed, (1 + allowed) / 2))


def error_objective(rate: float, least: float = LEAST_ERROR_RATE) -> Objective:
    """An error rate; `least` is the smallest rate that a pass needs to exclude (`analysis.minErrorRate`)."""
    return Objective(Measure.ERRORS, rate, max(min(2 * rate, (1 + rate) / 2), least))


def unstated_errors() -> Objective:
    """Failures where the SLA states no error rate: a candidate may fail as often as stable does."""
    return replace(error_objective(UNSTATED_ERROR_RATE), stated=False)


@dataclass(frozen=True)
class Evidence:
    """What the counts say about one objective, without the warm-up."""

    candidate: StoredAsCanary = field(default_factory=Tally)
    step_starts: tuple[Tally, ...] = (Tally(),)
    """The candidate's cumulative counts from which on each step is judged."""
    settled: Tally = field(default_factory=Tally)
    """The part of the counts that is divided for bursts already."""
    relative: Relative = field(default_factory=lambda: Relative(RELATIVE_RATIO))
    improves: Relative = field(default_factory=lambda: Relative(1.0))
    """The relative test with the arms exchanged: evidence that stable is the worse one."""

    def after(self, candidate: Tally, stable: Tally) -> "Evidence":
        """The evidence after one more poll. What stable served before the candidate did is not beside it."""
        if candidate.judged <= 0 and self.candidate.judged <= 0:
            return self
        return Evidence(
            self.candidate + candidate,
            self.step_starts,
            self.settled,
            self.relative.after(candidate, stable),
            self.improves.after(stable, candidate),
        )

    def against(self, candidate: Tally, stable: Tally) -> "Evidence":
        """The evidence after a poll that may speak against the candidate and never for it."""
        after = self.candidate + candidate
        return replace(
            self,
            candidate=after,
            step_starts=(*self.step_starts[:-1], after),
            relative=self.relative.after(candidate, stable),
        )

    def deflated(self, factor: float) -> "Evidence":
        """The evidence with the unsettled counts of both revisions divided by `factor`.

        All evidence is linear in the counts, so that bursts may be measured after the counting has begun.
        """
        if factor == 1:
            return self
        return replace(
            self,
            candidate=self._part(self.candidate, factor),
            step_starts=tuple(self._part(start, factor) for start in self.step_starts),
            relative=self.relative.deflated(factor),
            improves=self.improves.deflated(factor),
        )

    def _part(self, counts: Tally, factor: float) -> Tally:
        if counts.judged <= self.settled.judged:
            return counts
        return self.settled + (counts - self.settled).deflated(factor)

    def settle(self, factor: float) -> "Evidence":
        """The evidence divided by `factor` for good: what comes from now on is divided by another one."""
        known = self.deflated(factor)
        return replace(
            known,
            settled=known.candidate,
            relative=self.relative.settle(factor),
            improves=self.improves.settle(factor),
        )

    def next_step(self) -> "Evidence":
        """The evidence as a step begins: proof for passing starts again, what speaks against it stays."""
        return replace(self, step_starts=(*self.step_starts, self.candidate))


@dataclass(frozen=True)
class Thresholds:
    """Evidence at which each test speaks, as ln E."""

    absolute: float
    late: float
    relative: float
    passing: float


def thresholds(allowed: float, tests: int, policy: AnalysisPolicy, *, independent: bool) -> Thresholds:
    """Thresholds of one of `tests` tests of bounds, so that `ALPHA` holds for all of them together.

    With the policies absolute and both nothing is rejected that is not beyond its bound, so that a single
    chance of being wrong is at stake. With relative a breach rejects as well, once stable does not serve:
    each of the two gets half. `independent` says that requests are known to be bad independently of each
    other, not in bursts.
    """
    alpha = ALPHA / tests / (2 if policy is AnalysisPolicy.RELATIVE else 1)
    first = alpha * (1 - LATE_SHARE)
    credit = OVERSHOOT_CREDIT if independent and credited(first, allowed) else 0.0
    return Thresholds(
        absolute=log(1 / first) - credit,
        late=log(1 / (alpha * LATE_SHARE)),
        relative=log(1 / alpha),
        passing=log(1 / BETA),
    )


@dataclass(frozen=True)
class EValues:
    """What each test of one bound says, as ln E."""

    absolute: float
    late: float
    relative: float
    improves: float
    """Evidence that stable is the worse one."""
    passing: float
    enough: bool
    """Whether enough requests were bad to reject a revision."""

    def beyond(self, limits: Thresholds) -> bool:
        """Whether the bound is proven to be breached."""
        return self.enough and (self.absolute >= limits.absolute or self.late >= limits.late)

    def nearly_beyond(self, limits: Thresholds) -> bool:
        """Whether a tenth of what proves a breach is there, which bad requests bring within a few polls."""
        return self.enough and (self.absolute >= limits.absolute / 10 or self.late >= limits.late / 10)


def decide(numbers: EValues, policy: AnalysisPolicy, limits: Thresholds, *, comparable: bool) -> Outcome:
    """One bound at one poll; the first row that matches decides.

    | beyond bound | worse | policy   | proven better | comparable | proven to pass | outcome   |
    |--------------|-------|----------|---------------|------------|----------------|-----------|
    | yes          | yes   | any      | -             | -          | -              | roll back |
    | yes          | no    | absolute | -             | -          | -              | roll back |
    | no           | yes   | relative | -             | -          | -              | roll back |
    | yes          | no    | other    | yes           | -          | -              | pass      |
    | yes          | no    | other    | no            | yes        | -              | hold      |
    | yes          | no    | other    | no            | no         | -              | roll back |
    | no           | -     | other    | -             | -          | yes            | pass      |
    | no           | -     | other    | -             | -          | no             | wait      |

    Worse is worse than stable. `comparable` says whether stable gets requests now, or got some in its last
    minutes. Where it did not (it was broken for long), there is nothing that a breach could be blamed on.
    """
    beyond = numbers.beyond(limits)
    worse = numbers.enough and numbers.relative >= limits.relative
    rules = (
        (beyond and worse, Outcome.ROLL_BACK),
        (beyond and policy is AnalysisPolicy.ABSOLUTE, Outcome.ROLL_BACK),
        (worse and policy is AnalysisPolicy.RELATIVE, Outcome.ROLL_BACK),
        (beyond and numbers.improves >= limits.relative, Outcome.PASS),
        (beyond and comparable, Outcome.HOLD),
        (beyond, Outcome.ROLL_BACK),
        (numbers.passing >= limits.passing, Outcome.PASS),
    )
    return next((outcome for holds, outcome in rules if holds), Outcome.WAIT)


def without_promise(outcome: Outcome, *, fails_more: bool) -> Outcome:
    """The outcome for an objective that the SLA does not state: nothing is held, and no proof is asked for.

    `fails_more`: of the candidate's requests more are bad than may be, and than of stable's.

    | `decide` says | fails more | outcome |
    |---|---|---|
    | roll back | yes | roll back |
    | anything else | yes | wait |
    | any | no | pass |
    """
    if not fails_more:
        return Outcome.PASS
    return outcome if outcome is Outcome.ROLL_BACK else Outcome.WAIT


@dataclass(frozen=True)
class Finding:
    """The outcome for one objective, with the numbers behind it."""

    objective: Objective
    outcome: Outcome
    numbers: EValues
    limits: Thresholds

    @property
    def improves_breach(self) -> bool:
        """Passed only because it is proven better than a stable that breaches the SLA."""
        passed = self.outcome is Outcome.PASS and self.objective.stated
        return passed and self.numbers.beyond(self.limits)


class Judged(Protocol):
    """A finding on an objective or on a metric."""

    @property
    def outcome(self) -> Outcome:
        """What it asks for."""
        ...


def combine(findings: Collection[Judged]) -> Outcome:
    """One outcome of all findings: any rollback wins, then any hold, then any wait."""
    outcomes = [finding.outcome for finding in findings]
    for outcome in (Outcome.ROLL_BACK, Outcome.HOLD, Outcome.WAIT):
        if outcome in outcomes:
            return outcome
    return Outcome.PASS if outcomes else Outcome.WAIT
