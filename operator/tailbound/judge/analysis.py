"""Derives the verdict from one round of readings: counts, the stored evidence, the outcome. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tailbound.api.rollout import AnalysisPolicy
from tailbound.judge.account import Account, account_about, judge
from tailbound.judge.evidence import Tally
from tailbound.judge.metric_evidence import begun, same_question, taken_in
from tailbound.judge.metric_evidence import judge as judge_metric
from tailbound.judge.metrics import Metric, MetricFinding
from tailbound.judge.polls import Counted, PollResults, Readings, Round, baseline, poll
from tailbound.judge.record import EvidenceState, Record
from tailbound.judge.verdict import Finding, Measure, Objective, Outcome, combine
from tailbound.objects.unknown import Unknown


@dataclass(frozen=True)
class Terms:
    """What a candidate is judged by."""

    objectives: tuple[Objective, ...]
    policy: AnalysisPolicy
    warmup: int
    """The first requests of each of the candidate's pods, which are not judged; of each counted metric, so
    many events."""
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

    @property
    def lacks(self) -> str:
        """What has to be known before anything can follow from the time that has passed; empty if it is."""
        if self.unread_since is not None:
            return self.unread_why
        without = next((each.metric.name for each in self.metrics if not each.judged), None)
        return "" if without is None else f"metric {without} has not had a sample yet"

    def passes(self, now: datetime, timeout: timedelta) -> bool:
        """Passed, and every request that hung when it did has been counted since."""
        if self.outcome is None:
            return True
        passed = self.outcome is Outcome.PASS and self.passed_at is not None and self.unread_since is None
        return passed and self.passed_at is not None and now >= self.passed_at + timeout

    @property
    def suspects(self) -> bool:
        """What speaks against the candidate is not enough yet, and may be with the next windows."""
        findings: tuple[Finding | MetricFinding, ...] = (*self.findings, *self.metrics)
        return any(
            each.outcome is Outcome.WAIT and each.numbers.nearly_beyond(each.limits) for each in findings
        )

    def counted(self, measure: Measure) -> Tally:
        """What was counted of the candidate."""
        return (self.tallies or {}).get(measure, Tally())


@dataclass(frozen=True)
class Pair:
    """The two arms, and how they stand."""

    candidate: str
    stable: str
    stable_serves: bool
    candidate_serves: bool = True
    """The candidate gets requests. Before it does, its metrics have nothing to tell."""
    pods: frozenset[str] = frozenset()
    """Names of the candidate's ready pods."""
    existing: frozenset[str] = frozenset()
    """Names of all of its pods."""


def take_in(
    state: EvidenceState, answers: PollResults | None, terms: Terms, pair: Pair, now: datetime
) -> EvidenceState:
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
        return state
    state = _watched(_with_pods(state, terms, pair), answers, terms, pair, now)
    if not terms.objectives:
        return state
    before = state.record
    record: Record | Unknown
    of = Round(pair.candidate, pair.stable, now)
    if answers.unread:
        record = Unknown(answers.unread)
    elif before is None:
        first = baseline(answers.by_pod, answers.existing, of)
        record = first if isinstance(first, Unknown) else _begun(first, terms, pair)
    else:
        new = poll(before.readings, answers.by_pod, answers.existing, of)
        record = new if isinstance(new, Unknown) else _with(before, new, terms, pair)
    if isinstance(record, Unknown):
        return replace(state, unread_since=state.unread_since or now, unread_why=record.reason)
    return replace(state, record=record, unread_since=None, unread_why="")


def _with_pods(state: EvidenceState, terms: Terms, pair: Pair) -> EvidenceState:
    """The state with the warm-up of new pods of the candidate."""
    new, ready = len(pair.pods.difference(state.pods)), len(pair.pods)
    pods = tuple(sorted(pair.pods.union(pair.existing.intersection(state.pods))))
    watches = {name: watch.with_pods(new, ready, terms.warmup) for name, watch in state.watches.items()}
    record = state.record
    if record is not None:
        accounts = {
            measure: known.with_pods(new, ready, terms.warmup) for measure, known in record.accounts.items()
        }
        record = replace(record, accounts=accounts)
    return replace(state, record=record, watches=watches, pods=pods)


def _begun(readings: Readings, terms: Terms, pair: Pair) -> Record:
    """Nothing yet, beside pods that are all cold."""
    ready = len(pair.pods)
    accounts = {
        objective.measure: account_about(objective).with_pods(ready, ready, terms.warmup)
        for objective in terms.objectives
    }
    return Record(readings, accounts)


def _watched(
    state: EvidenceState, answers: PollResults, terms: Terms, pair: Pair, now: datetime
) -> EvidenceState:
    watches, blind, ready = dict(state.watches), dict[str, str](), len(pair.pods)
    for metric in terms.metrics:
        known = same_question(metric, state.watches.get(metric.name))
        known = known or begun(metric).with_pods(ready, ready, terms.warmup)
        taken = taken_in(metric, known, answers.metrics, now.timestamp(), stable_serves=pair.stable_serves)
        watches[metric.name] = taken.watch
        if taken.blind and pair.candidate_serves:
            blind[metric.name] = taken.blind
    since = (state.blind_since or now) if blind else None
    return replace(state, watches=watches, blind_since=since, blind=blind)


def _with(record: Record, counted: Counted, terms: Terms, pair: Pair) -> Record:
    accounts = dict(record.accounts)
    for objective in terms.objectives:
        tally = objective.measure.tally
        accounts[objective.measure] = _account(record, objective).after(
            tally(counted.arms.candidate),
            tally(counted.arms.stable),
            counted.span,
            stable_serves=pair.stable_serves,
        )
    return Record(counted.readings, accounts)


def _account(record: Record, objective: Objective) -> Account:
    """What is known about the same bound: another one begins from nothing."""
    known = record.accounts.get(objective.measure)
    if known is None or known.polls.bets.null != objective.allowed:
        return account_about(objective)
    return known


def judged(state: EvidenceState, terms: Terms, pair: Pair, now: datetime) -> tuple[EvidenceState, Verdict]:
    """The verdict on the evidence, and the state with the time since which that verdict holds."""
    if not terms.tests:
        return state, Verdict(None)
    record = state.record or Record(Readings({}))
    accounts = {objective.measure: _account(record, objective) for objective in terms.objectives}
    findings = tuple(
        judge(
            objective,
            accounts[objective.measure],
            terms.policy,
            terms.tests,
            stable_serves=pair.stable_serves,
        )
        for objective in terms.objectives
    )
    metrics = tuple(
        judge_metric(
            metric,
            state.watches.get(metric.name),
            terms.policy,
            terms.tests,
            stable_serves=pair.stable_serves,
            missing=state.blind.get(metric.name, ""),
        )
        for metric in terms.metrics
    )
    outcome = combine([*findings, *metrics])
    state = replace(state, passed_at=(state.passed_at or now) if outcome is Outcome.PASS else None)
    verdict = Verdict(
        outcome,
        findings,
        {measure: account.counted for measure, account in accounts.items()},
        state.unread_since or state.blind_since,
        state.unread_why or _first(state.blind),
        state.passed_at,
        metrics,
        counting=state.record is not None or not terms.objectives,
    )
    return state, verdict


def _first(blind: Mapping[str, str]) -> str:
    return next((f"metric {name}: {why}" for name, why in blind.items()), "")


def next_step(state: EvidenceState, now: datetime) -> EvidenceState:
    """The state as a step begins: proof for passing starts again, what speaks against it stays."""
    record = state.record
    if record is not None:
        accounts = {measure: known.next_step() for measure, known in record.accounts.items()}
        record = replace(record, accounts=accounts)
    watches = {name: watch.next_step(now.timestamp()) for name, watch in state.watches.items()}
    return replace(state, record=record, passed_at=None, watches=watches)
