"""How long a rollout takes to its verdicts: the product's own judgement, on requests that are drawn. Pure.

Each run draws the requests of both revisions poll by poll and asks the same evidence that a real rollout
asks. Where few requests come, several polls are taken as one, so that a run costs what its requests cost: its
end is then late by at most the time that `_REQUESTS_AT_ONCE` of them take.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import ceil, inf, sqrt
from random import Random
from typing import Final

from tailbound.api.rollout import RolloutSpec
from tailbound.judge.account import Account, account_about, judge
from tailbound.judge.analysis import Terms, Verdict
from tailbound.judge.counters import Classes
from tailbound.judge.verdict import Measure, Outcome, combine
from tailbound.judge.windows import Span
from tailbound.rollout.sizing import ALL
from tailbound.rollout.states import StepEnd, keeps_old_pods, step_end

RUNS: Final = 60
POLL_SECONDS: Final = 2.0
_REQUESTS_AT_ONCE: Final = 10
_MOST_COUNTED: Final = 50.0


@dataclass(frozen=True)
class Traffic:
    """Requests of a service, and how many of them are bad."""

    per_second: float
    """Requests to all revisions together; above 0."""
    slow: float
    """Fraction over the latency target."""
    failed: float
    """Fraction that fails."""


@dataclass(frozen=True)
class Run:
    """One drawn rollout."""

    steps: tuple[float, ...]
    """Seconds that each step took, up to the last one that passed."""
    end: Outcome
    """PASS: promoted. ROLL_BACK. HOLD: a shared cause, WAIT: no verdict, both until `maxStepTime`."""
    seconds: float
    """Until the end, from the first request on."""
    reached_all: bool = True
    """The candidate has had all requests."""


@dataclass(frozen=True)
class Forecast:
    """Many drawn rollouts."""

    runs: tuple[Run, ...]

    def share(self, end: Outcome) -> float:
        """Fraction of the runs that end so."""
        return sum(run.end is end for run in self.runs) / len(self.runs)

    def seconds(self, end: Outcome, quantile: float) -> float | None:
        """Time to this end, at a quantile of the runs that end so; None if none does."""
        return _quantile([run.seconds for run in self.runs if run.end is end], quantile)

    def with_all(self) -> list[float]:
        """Seconds with all requests of the runs that are rolled back then, the shortest first."""
        back = [run for run in self.runs if run.end is Outcome.ROLL_BACK and run.reached_all]
        return sorted(run.seconds - sum(run.steps) for run in back)

    def step(self, number: int, quantile: float) -> float | None:
        """Seconds that this step takes, at a quantile of the runs that pass it; None if none does."""
        return _quantile([run.steps[number] for run in self.runs if len(run.steps) > number], quantile)


def forecast(
    spec: RolloutSpec,
    terms: Terms,
    timeout: timedelta,
    candidate: Traffic,
    stable: Traffic,
    seed: int,
    *,
    last: Traffic | None = None,
) -> Forecast:
    """Rollouts of a candidate whose requests are bad as often as `candidate` says, beside such a stable.

    With all requests it is as `last` says, if that is given.
    """
    rules = _Rules(spec, terms, timeout, candidate, stable, last or candidate)
    random = Random(seed)  # noqa: S311 - a simulation
    return Forecast(tuple(_run(rules, random) for _ in range(RUNS)))


@dataclass(frozen=True)
class _Rules:
    spec: RolloutSpec
    terms: Terms
    timeout: timedelta
    candidate: Traffic
    stable: Traffic
    last: Traffic
    """The candidate with all requests."""


_Known = Mapping[Measure, Account]


def _run(rules: _Rules, random: Random) -> Run:
    known: _Known = {
        objective.measure: account_about(objective).with_pods(1, 1, rules.terms.warmup)
        for objective in rules.terms.objectives
    }
    passed: list[float] = []
    for weight in (*rules.spec.weights, ALL):
        seconds, end, known = _step(rules, weight, known, sum(passed), random)
        if end is not Outcome.PASS:
            return Run(tuple(passed), end, sum(passed) + seconds, weight == ALL)
        passed.append(seconds)
        known = {measure: objective.next_step() for measure, objective in known.items()}
    return Run(tuple(passed), Outcome.PASS, sum(passed))


def _step(
    rules: _Rules, weight: int, known: _Known, began: float, random: Random
) -> tuple[float, Outcome, _Known]:
    """Seconds that it lasts, how it ends, and what is known then. It began at second `began`.

    `states.step_end` and `states.keeps_old_pods` decide, as they do for a rollout, by the clock of this run.
    """
    seconds, passed_at = 0.0, inf
    last, longest = weight == ALL, _longest(rules.spec, weight)
    poll = max(POLL_SECONDS, _REQUESTS_AT_ONCE * ALL / (rules.candidate.per_second * weight))
    while True:
        lasts = min(poll, max(POLL_SECONDS, longest - seconds))
        seconds += lasts
        known = _counted(rules, weight, (began + seconds, lasts), known, random)
        verdict = _verdict(rules, known, stable_serves=not last)
        passed_at = min(passed_at, seconds) if verdict.outcome in (Outcome.PASS, None) else inf
        end = _end(rules, verdict, seconds, passed_at, last=last)
        if end is not None:
            return seconds, end, known


def _longest(spec: RolloutSpec, weight: int) -> float:
    """Seconds after which a step is over that has neither passed nor been rejected."""
    limit = spec.scale_down_delay if weight == ALL else spec.max_step_time
    return limit.timedelta.total_seconds()


def _end(rules: _Rules, verdict: Verdict, seconds: float, passed_at: float, *, last: bool) -> Outcome | None:
    """How a step ends after `seconds`; None while it goes on."""
    spec, elapsed, outcome = rules.spec, timedelta(seconds=seconds), verdict.outcome
    if outcome is Outcome.ROLL_BACK:
        return outcome
    if last:
        return None if keeps_old_pods(spec, elapsed, suspects=verdict.suspects) else Outcome.PASS
    waited = rules.timeout.total_seconds() if verdict.outcome is not None else 0.0
    end = step_end(spec, elapsed, outcome, passes=seconds >= passed_at + waited)
    if end is None or end is StepEnd.PASSED:
        return Outcome.PASS if end is not None else None
    return Outcome.HOLD if outcome is Outcome.HOLD else Outcome.WAIT


def _counted(
    rules: _Rules, weight: int, period: tuple[float, float], known: _Known, random: Random
) -> _Known:
    """What is known after a period, given by the second of its end and its length."""
    at, seconds = period
    span = Span(at - seconds, at)
    candidate = _drawn(rules.last if weight == ALL else rules.candidate, weight, seconds, random)
    stable = _drawn(rules.stable, ALL - weight, seconds, random)
    return {
        measure: account.after(
            measure.tally(candidate), measure.tally(stable), span, stable_serves=weight < ALL
        )
        for measure, account in known.items()
    }


def _verdict(rules: _Rules, known: _Known, *, stable_serves: bool) -> Verdict:
    objectives = rules.terms.objectives
    # What the metrics will say is not known, but they share the chance of a false alarm.
    tests = len(objectives) + len(rules.spec.analysis.metrics)
    findings = tuple(
        judge(objective, known[objective.measure], rules.terms.policy, tests, stable_serves=stable_serves)
        for objective in objectives
    )
    return Verdict(combine(findings) if findings else None, findings)


def _drawn(traffic: Traffic, weight: int, seconds: float, random: Random) -> Classes:
    """Requests come independently of each other, and so do bad ones among them."""
    mean = traffic.per_second * weight / ALL * seconds
    slow, failed = mean * traffic.slow, mean * traffic.failed
    return Classes(
        good=_poisson(mean - slow - failed, random),
        slow=_poisson(slow, random),
        failed=_poisson(failed, random),
    )


def _poisson(mean: float, random: Random) -> int:
    if mean > _MOST_COUNTED:
        return max(0, round(random.gauss(mean, sqrt(mean))))
    count, left = 0, mean - random.expovariate(1.0)
    while left > 0:
        count, left = count + 1, left - random.expovariate(1.0)
    return count


def _quantile(values: Sequence[float], quantile: float) -> float | None:
    ordered = sorted(values)
    return ordered[max(0, ceil(quantile * len(ordered)) - 1)] if ordered else None
