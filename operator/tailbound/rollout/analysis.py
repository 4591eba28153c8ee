"""From one round of readings to a verdict: what is counted, what is remembered, what it says. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tailbound.rollout.bursts import Dispersion, Factor
from tailbound.rollout.evidence import Tally
from tailbound.rollout.polls import Answers, Arms, Frozen, Readings, baseline, poll
from tailbound.rollout.record import Record
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


@dataclass(frozen=True)
class Terms:
    """What a candidate is judged by."""

    objectives: tuple[Objective, ...]
    policy: Policy
    warmup: int
    """The candidate's first requests, which are not judged."""


@dataclass(frozen=True)
class Verdict:
    """What the evidence says now."""

    outcome: Outcome | None
    """None: there is nothing to judge by."""
    findings: tuple[Finding, ...] = ()
    tallies: Mapping[Measure, Tally] | None = None
    """What was counted of the candidate."""
    unread_since: datetime | None = None
    unread_why: str = ""
    passed_at: datetime | None = None

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
    weighted: bool
    """The candidate has, or had, some of the requests."""
    stable_serves: bool


def take_in(record: Record, answers: Answers | None, terms: Terms, pair: Pair, now: datetime) -> Record:
    """What is known after a round of readings. Taking in the same round twice changes nothing.

    | readings stored | answers | what becomes of them |
    |---|---|---|
    | any | none yet | nothing |
    | any | some are missing | they are as they were, and missing since now, or since they are |
    | none | complete | they are what counting starts from |
    | some | complete | what came since then is evidence |
    """
    if answers is None or not terms.objectives:
        return record
    counted: Readings | Frozen
    arms: Arms | None = None
    if record.readings is None:
        counted = baseline(answers.by_pod)
    else:
        new = poll(record.readings, answers.by_pod, answers.existing, pair.candidate, pair.stable)
        if isinstance(new, Frozen):
            counted = new
        else:
            counted, arms = new.readings, new.arms
    if isinstance(counted, Frozen):
        return replace(record, unread_since=record.unread_since or now, unread_why=counted.reason)
    known = replace(record, readings=_of_both(counted, pair), unread_since=None, unread_why="")
    return known if arms is None else _with(known, arms, terms, pair)


def _of_both(readings: Readings, pair: Pair) -> Readings:
    """Without the counters of other revisions: a status is no archive."""
    names = {pair.candidate, pair.stable}
    return Readings(
        {
            pod: replace(
                reading, classes={name: held for name, held in reading.classes.items() if name in names}
            )
            for pod, reading in readings.by_pod.items()
        }
    )


def _with(record: Record, arms: Arms, terms: Terms, pair: Pair) -> Record:
    evidence, dispersion = dict(record.evidence), dict(record.dispersion)
    for objective in terms.objectives:
        measure = objective.measure
        candidate, stable = measure.tally(arms.canary), measure.tally(arms.stable)
        if not pair.weighted:
            dispersion[measure] = dispersion.get(measure, Dispersion()).after(stable)
        evidence[measure] = evidence.get(measure, Evidence()).after(
            candidate, stable, warmup=terms.warmup, factor=_factor(record, measure).value
        )
    return replace(record, evidence=evidence, dispersion=dispersion)


def _factor(record: Record, measure: Measure) -> Factor:
    return record.dispersion.get(measure, Dispersion()).factor()


def judged(record: Record, terms: Terms, pair: Pair, now: datetime) -> tuple[Record, Verdict]:
    """What the record says, and the record with the time since which it says so."""
    if not terms.objectives:
        return record, Verdict(None)
    findings = tuple(
        judge(
            objective,
            record.evidence.get(objective.measure, Evidence()),
            terms.policy,
            thresholds(
                objective,
                len(terms.objectives),
                independent=_factor(record, objective.measure).independent,
            ),
            stable_serves=pair.stable_serves,
        )
        for objective in terms.objectives
    )
    outcome = combine(findings)
    record = replace(record, passed_at=(record.passed_at or now) if outcome is Outcome.PASS else None)
    verdict = Verdict(
        outcome,
        findings,
        {measure: evidence.canary for measure, evidence in record.evidence.items()},
        record.unread_since,
        record.unread_why,
        record.passed_at,
    )
    return record, verdict


def next_step(record: Record) -> Record:
    """As a step begins: the proof for passing starts again, what speaks against the candidate stays."""
    evidence = {measure: known.next_step() for measure, known in record.evidence.items()}
    return replace(record, evidence=evidence, passed_at=None)
