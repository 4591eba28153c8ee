"""All that is known about one bound on a fraction of requests or of events, and what it says."""

from dataclasses import dataclass, field, replace

from tailbound.api.rollout import AnalysisPolicy
from tailbound.judge.alone import Recent
from tailbound.judge.betting import BoundTest, that_above, that_polls_are_above
from tailbound.judge.evidence import AT_LEAST_BAD, Tally, passing
from tailbound.judge.overdispersion import Bursts, Factor
from tailbound.judge.verdict import (
    MOST_ALONE,
    RELATIVE_RATIO,
    EValues,
    Evidence,
    Finding,
    Measure,
    Objective,
    Thresholds,
    decide,
    thresholds,
    without_promise,
)
from tailbound.judge.warmup import Warmup
from tailbound.judge.windows import Sides, Span


@dataclass(frozen=True)
class Account:
    """What both revisions' polls have shown. Stored with the counters that they were computed from."""

    polls: BoundTest
    """What the candidate's polls say as one value each."""
    counts: BoundTest
    """What its requests say as one value each, which counts only while they are seen to be independent."""
    evidence: Evidence = field(default_factory=Evidence)
    bursts: Bursts = field(default_factory=Bursts)
    warmup: Warmup = field(default_factory=Warmup)
    recent: Recent = field(default_factory=Recent)
    alone: BoundTest | None = None
    """The test of `polls` for what the candidate showed with all requests, against what stable showed."""
    pods: int = 1
    """Ready pods of the candidate."""

    def with_pods(self, new: int, ready: int, each: int) -> "Account":
        """The account after `new` pods of the candidate have come, of `ready` in all; see `Warmup`."""
        return replace(self, warmup=self.warmup.with_pods(new, ready, each), pods=ready)

    def after(self, candidate: Tally, stable: Tally, span: Span, *, stable_serves: bool) -> "Account":
        """What is known after a poll. Counts of the warm-up are not judged."""
        warmup, judged = self.warmup.after(candidate)
        poll, evidence = judged.poll, self.evidence
        if not judged.against_only:
            evidence = evidence.after(poll, stable)
        elif poll.judged > 0:
            evidence = evidence.against(poll, stable)
        recent = self.recent.after(stable, span.at)
        alone = self._alone(recent, stable_serves=stable_serves)
        sides = Sides(stable=stable_serves, pods=self.pods)
        known = Account(
            self.polls.after_poll(poll, span, sides),
            self.counts.after_counts(poll, span, sides),
            evidence,
            self.bursts.after(poll, stable),
            warmup,
            recent,
            None if alone is None else alone.after_poll(poll, span, sides),
            self.pods,
        )
        return known._measured_again() if known.bursts.over else known

    def _alone(self, recent: Recent, *, stable_serves: bool) -> BoundTest | None:
        """What the candidate is compared with once stable serves no more: what that was."""
        if stable_serves or recent.total.judged <= 0:
            return None
        if self.alone is not None:
            return self.alone
        bursts = self.bursts.stable.factor.value
        bound = recent.bound(self.polls.bets.null, RELATIVE_RATIO, bursts)
        return BoundTest(that_polls_are_above(bound), failures=self.polls.failures)

    def _measured_again(self) -> "Account":
        factor = self.bursts.factor.value
        return replace(
            self,
            evidence=self.evidence.settle(factor),
            counts=self.counts.divided(factor),
            bursts=self.bursts.again(),
        )

    def next_step(self) -> "Account":
        """The account when a step begins: only evidence against the candidate is kept."""
        return replace(
            self,
            evidence=self.evidence.next_step(),
            polls=self.polls.next_step(),
            counts=self.counts.next_step(),
        )

    @property
    def factor(self) -> Factor:
        """How far requests are bad together."""
        return self.bursts.factor

    @property
    def counted(self) -> Tally:
        """What was judged of the candidate, divided for bursts."""
        return self.evidence.deflated(self.factor.value).candidate

    def numbers(self, unacceptable: float, policy: AnalysisPolicy) -> EValues:
        """What it says about the bound.

        | what is seen of bursts | beyond the bound | worse than stable |
        |---|---|---|
        | none: independent | counts | counts |
        | bursts | polls, and no more than counts | counts divided by the factor |
        | too little | polls, and no more than counts | counts; alone decisive, divided by the largest burst |

        Worse than stable is alone decisive with the policy relative.
        """
        factor = self.factor
        decisive = policy is AnalysisPolicy.RELATIVE and not factor.measured
        divided = self.evidence.deflated(self.bursts.largest if decisive else factor.value)
        relative = divided.relative.value
        against = (self.counts,) if factor.independent else (self.polls, self.counts)
        step = self.evidence.deflated(self.bursts.passing_factor)
        return EValues(
            absolute=min(each.absolute for each in against),
            late=min(each.late for each in against),
            relative=relative if self.alone is None else max(relative, self.alone.absolute),
            improves=divided.improves.value,
            passing=passing(step.candidate - step.step_starts[-1], unacceptable),
            enough=self.evidence.candidate.bad >= AT_LEAST_BAD,
        )

    def limits(self, tests: int, policy: AnalysisPolicy) -> Thresholds:
        """The thresholds that the numbers are to reach, as one of `tests` tests."""
        return thresholds(self.polls.bets.null, tests, policy, independent=self.factor.independent)

    @property
    def fails_more(self) -> bool:
        """Whether more requests of this step were bad than are allowed, and than of stable's last minutes."""
        evidence, stable = self.evidence, self.recent.total
        step = evidence.candidate - evidence.step_starts[-1]
        seen = step if step.judged > 0 else evidence.candidate
        bound = MOST_ALONE
        if stable.judged > 0:
            bound = max(self.polls.bets.null, RELATIVE_RATIO * stable.bad / stable.judged)
        return seen.bad > bound * seen.judged

    def comparable(self, *, stable_serves: bool) -> bool:
        """Whether a breach could be stable's as well."""
        return stable_serves or self.alone is not None


def account_of(allowed: float, *, failures: bool = False) -> Account:
    """Nothing yet, about a fraction that may be at most `allowed`. `failures`: it is of failed requests."""
    return Account(
        BoundTest(that_polls_are_above(allowed), failures=failures),
        BoundTest(that_above(allowed), failures=failures),
    )


def account_about(objective: Objective) -> Account:
    """Nothing yet, about an objective."""
    return account_of(objective.allowed, failures=objective.measure is Measure.ERRORS)


def judge(
    objective: Objective, account: Account, policy: AnalysisPolicy, tests: int, *, stable_serves: bool
) -> Finding:
    """One objective at one poll, one of `tests` that share alpha, as `decide` says."""
    policy = policy if objective.stated else AnalysisPolicy.BOTH
    numbers = account.numbers(objective.unacceptable, policy)
    limits = account.limits(tests, policy)
    comparable = account.comparable(stable_serves=stable_serves)
    outcome = decide(numbers, policy, limits, comparable=comparable)
    if not objective.stated:
        outcome = without_promise(outcome, fails_more=account.fails_more)
    return Finding(objective, outcome, numbers, limits)
