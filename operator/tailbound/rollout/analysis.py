"""From one round of readings to a verdict: what is counted, what is remembered, what it says. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tailbound.rollout.betting import Against, that_polls_are_above
from tailbound.rollout.bursts import Dispersion, Factor
from tailbound.rollout.evidence import Tally
from tailbound.rollout.metrics import Metric, MetricFinding
from tailbound.rollout.polls import Answers, Counted, Frozen, Readings, baseline, poll
from tailbound.rollout.record import Memory, Record
from tailbound.rollout.verdict import (
    Evidence,
    Finding,
    Measure,
    Objective,
    Outcome,
    Policy,
    combine,
    judge,
    thresholds,
)
from tailbound.rollout.watches import judge as judge_metric
from tailbound.rollout.watches import taken_in


@dataclass(frozen=True)
class Terms:
    """What a candidate is judged by."""

    objectives: tuple[Objective, ...]
    policy: Policy
    warmup: int
    """The candidate's first requests, which are not judged; of each counted metric, so many events."""
    metrics: tuple[Metric, ...] = ()

    @property
    def tests(self) -> int:
        """How many share the chance of a false alarm."""
        return len(self.objectives) + len(self.metrics)


@dataclass(frozen=True)
class Verdict:
    """What the evidence says now."""

    outcome: Outcome | None
    """None: there is nothing to judge by."""
    findings: tuple[Finding, ...] = ()
    tallies: Mapping[Measure, Tally] | None = None
    """What was counted of the candidate, deflated for bursts."""
    unread_since: datetime | None = None
    unread_why: str = ""
    passed_at: datetime | None = None
    metrics: tuple[MetricFinding, ...] = ()
    counting: bool = True
    """Every gateway was read once, so that what is served from now on counts."""

    def passes(self, now: datetime, timeout: timedelta) -> bool:
        """Passed, and every request that hung when it did has been counted since."""
        if self.outcome is None:
            return True
        passed = self.outcome is Outcome.PASS and self.passed_at is not None and self.unread_since is None
        return passed and self.passed_at is not None and now >= self.passed_at + timeout

    def counted(self, measure: Measure) -> Tally:
        """What was counted of the candidate."""
        return (self.tallies or {}).get(measure, Tally())


@dataclass(frozen=True)
class Pair:
    """The two arms, and how they stand."""

    candidate: str
    stable: str
    stable_serves: bool


def take_in(memory: Memory, answers: Answers | None, terms: Terms, pair: Pair, now: datetime) -> Memory:
    """What is known after a round of readings. Taking in the same round twice changes nothing.

    | readings stored | answers | what becomes of them |
    |---|---|---|
    | any | none yet | nothing |
    | any | some are missing | they are as they were, and missing since now, or since they are |
    | none | complete | they are what counting starts from |
    | some | complete | what came since then is evidence |

    Metrics are apart: what cannot be read of them stays as it was, and holds up nothing but a pass.
    """
    if answers is None:
        return memory
    memory = _watched(memory, answers, terms, now)
    if not terms.objectives:
        return memory
    before = memory.record
    record: Record | Frozen
    if answers.unread:
        record = Frozen(answers.unread)
    elif before is None:
        first = baseline(answers.by_pod, answers.existing)
        record = first if isinstance(first, Frozen) else Record(_of_both(first, pair), {}, {})
    else:
        new = poll(before.readings, answers.by_pod, answers.existing, pair.candidate, pair.stable)
        record = new if isinstance(new, Frozen) else _with(before, new, terms, pair)
    if isinstance(record, Frozen):
        return replace(memory, unread_since=memory.unread_since or now, unread_why=record.reason)
    return replace(memory, record=record, unread_since=None, unread_why="")


def _watched(memory: Memory, answers: Answers, terms: Terms, now: datetime) -> Memory:
    watches, blind = dict(memory.watches), ""
    for metric in terms.metrics:
        known = watches.get(metric.name)
        taken = taken_in(metric, known, answers.metrics, terms.warmup, now.timestamp())
        watches[metric.name] = taken.watch
        if taken.blind:
            blind = blind or f"metric {metric.name}: {taken.blind}"
    since = (memory.blind_since or now) if blind else None
    return replace(memory, watches=watches, blind_since=since, blind_why=blind)


def _of_both(readings: Readings, pair: Pair) -> Readings:
    """Without the counters of other revisions: a status is no archive."""
    names = {pair.candidate, pair.stable}
    by_pod = {
        pod: replace(reading, classes={name: held for name, held in reading.classes.items() if name in names})
        for pod, reading in readings.by_pod.items()
    }
    return replace(readings, by_pod=by_pod)


def _with(record: Record, counted: Counted, terms: Terms, pair: Pair) -> Record:
    evidence, dispersion, polls = dict(record.evidence), dict(record.dispersion), dict(record.polls)
    for objective in terms.objectives:
        measure = objective.measure
        candidate, stable = measure.tally(counted.arms.canary), measure.tally(counted.arms.stable)
        if not _factor(record, measure).measured:
            dispersion[measure] = dispersion.get(measure, Dispersion()).after(stable)
        known = evidence.get(measure, Evidence())
        evidence[measure] = known.after(candidate, stable, warmup=terms.warmup)
        if known.warmed >= terms.warmup:
            polls[measure] = _polls(record, objective).after_poll(candidate)
    return Record(_of_both(counted.readings, pair), evidence, dispersion, polls)


def _polls(record: Record, objective: Objective) -> Against:
    """Bets are about one bound: another one begins anew."""
    known = record.polls.get(objective.measure)
    if known is None or known.bets.null != objective.allowed:
        return Against(that_polls_are_above(objective.allowed))
    return known


def _factor(record: Record, measure: Measure) -> Factor:
    return record.dispersion.get(measure, Dispersion()).factor()


def judged(memory: Memory, terms: Terms, pair: Pair, now: datetime) -> tuple[Memory, Verdict]:
    """What the evidence says, and the memory with the time since which it says so."""
    if not terms.tests:
        return memory, Verdict(None)
    record = memory.record or Record(Readings({}), {}, {})
    deflated = {
        objective.measure: record.evidence.get(objective.measure, Evidence()).deflated(
            _factor(record, objective.measure).value
        )
        for objective in terms.objectives
    }
    findings = tuple(
        judge(
            objective,
            deflated[objective.measure],
            terms.policy,
            thresholds(
                objective.allowed,
                terms.tests,
                terms.policy,
                independent=_factor(record, objective.measure).independent,
            ),
            stable_serves=pair.stable_serves,
            polls=None if _factor(record, objective.measure).measured else _polls(record, objective),
        )
        for objective in terms.objectives
    )
    metrics = tuple(
        judge_metric(
            metric,
            memory.watches.get(metric.name),
            terms.policy,
            terms.tests,
            stable_serves=pair.stable_serves,
        )
        for metric in terms.metrics
    )
    outcome = combine([*findings, *metrics])
    memory = replace(memory, passed_at=(memory.passed_at or now) if outcome is Outcome.PASS else None)
    verdict = Verdict(
        outcome,
        findings,
        {measure: evidence.canary for measure, evidence in deflated.items()},
        memory.unread_since or memory.blind_since,
        memory.unread_why or memory.blind_why,
        memory.passed_at,
        metrics,
        counting=memory.record is not None or not terms.objectives,
    )
    return memory, verdict


def next_step(memory: Memory, terms: Terms) -> Memory:
    """As a step begins: the proof for passing starts again, what speaks against the candidate stays."""
    record = memory.record
    if record is not None:
        evidence = {measure: known.next_step() for measure, known in record.evidence.items()}
        polls = {measure: known.next_step() for measure, known in record.polls.items()}
        record = replace(record, evidence=evidence, polls=polls)
    watches = {name: watch.next_step(terms.warmup) for name, watch in memory.watches.items()}
    return replace(memory, record=record, passed_at=None, watches=watches)
