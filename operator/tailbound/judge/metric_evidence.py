"""What is known about the user's own metrics: what an answer of Prometheus adds, and what it never does."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from tailbound.api.rollout import AnalysisPolicy
from tailbound.judge.account import Account, account_of
from tailbound.judge.evidence import Tally
from tailbound.judge.histograms import split
from tailbound.judge.means import Means, means_about
from tailbound.judge.metrics import PART, STABLE, Metric, MetricFinding
from tailbound.judge.verdict import decide, thresholds
from tailbound.judge.windows import Span
from tailbound.objects.unknown import Unknown
from tailbound.telemetry.prometheus import Series, Value

Answer = tuple[Series, ...] | Unknown

STABLE_BAD: Final = f"{STABLE}bad"

LOOKBACK_SECONDS: Final = 300.0
"""Seconds for which Prometheus goes on giving a series that has ended. What fell or is missing for longer is
no stale replica's answer any more."""


@dataclass(frozen=True)
class Counter:
    """One revision's counters of events, as they last were."""

    numbers: Mapping[str, float] | None = None
    """By part and labels; None before the first answer."""
    doubted_since: float | None = None
    """Unix time since which no answer fits the numbers."""

    def after(self, now: Mapping[str, float], at: float, *, new: bool) -> tuple["Counter", Tally | Unknown]:
        """The counters after an answer, and the events since then. `new`: the revision came with the rollout.

        | the answer | the events |
        |---|---|
        | the first one, of a new revision | none: counting starts here, at zero for what is not there yet |
        | the first one with a number, of another | none: counting starts here |
        | a number fell, or one that had counted is missing | Unknown: a restart or a stale replica |
        | so it has been for as long as Prometheus looks back | none: counting starts again, as for another |
        | more bad events than events | Unknown |
        | any other | what came since; a number that was not there has counted from zero |
        """
        if self.numbers is None:
            return Counter(now if new else now or None), Tally()
        rises = {identity: number - self.numbers.get(identity, 0.0) for identity, number in now.items()}
        counted = {identity for identity, number in self.numbers.items() if number > 0}
        if any(rise < 0 for rise in rises.values()) or counted - now.keys():
            since = self.doubted_since if self.doubted_since is not None else at
            if at >= since + LOOKBACK_SECONDS:
                return Counter(now or None), Tally()
            return replace(self, doubted_since=since), Unknown("a counter fell, or is missing")
        bad = sum(rise for identity, rise in rises.items() if identity.startswith("bad"))
        total = sum(rise for identity, rise in rises.items() if identity.startswith("total"))
        if bad > total:
            return self, Unknown("the query for bad counts more than the one for total")
        return Counter(now), Tally(total, bad)


@dataclass(frozen=True)
class Events:
    """What is known about a fraction of events."""

    expression: str
    """What was asked for: another question begins with no evidence."""
    account: Account
    """What the rounds have shown."""
    candidate: Counter = Counter()
    stable: Counter = Counter()
    gathered: tuple[Tally, Tally] = (Tally(), Tally())
    """Events of the candidate and of stable that are not evidence yet."""
    since: float | None = None
    """Unix time at which others last became evidence."""
    compared: float = 0.0
    """Events of stable that became evidence."""
    seen: tuple[str, ...] = ()
    """Parts of the answer that ever had a series; stable's with their prefix."""
    early: bool = False
    """A series of stable's bad events was seen at zero: its server has them before the first bad event."""

    def with_pods(self, new: int, ready: int, warmup: int) -> "Events":
        """The record with more pods of the candidate, whose first `warmup` events each are not judged."""
        return replace(self, account=self.account.with_pods(new, ready, warmup))

    def next_step(self, now: float) -> "Events":
        """The record as a step begins: what was gathered belongs to the one before."""
        known = self.taken(now, stable_serves=True)
        return replace(known, account=known.account.next_step())

    def taken(self, now: float, *, stable_serves: bool) -> "Events":
        """The state in which all collected events have become evidence."""
        candidate, stable = self.gathered
        span = Span(now if self.since is None else self.since, now)
        return replace(
            self,
            account=self.account.after(candidate, stable, span, stable_serves=stable_serves),
            gathered=(Tally(), Tally()),
            compared=self.compared + stable.judged,
        )


@dataclass(frozen=True)
class Values:
    """What is known about a mean of values."""

    expression: str
    means: Means
    at: float | None = None
    """Unix time of the newest value that was taken in."""

    def with_pods(self, new: int, ready: int, warmup: int) -> "Values":
        """Values have no warm-up."""
        return self

    def next_step(self, now: float) -> "Values":
        """The record as a step begins."""
        return replace(self, means=self.means.next_step())


Watch = Events | Values


@dataclass(frozen=True)
class Taken:
    """What is known after an answer."""

    watch: Watch
    blind: str = ""
    """Why the answer says nothing about the candidate; empty if it does."""


def taken_in(
    metric: Metric, watch: Watch | None, answers: Mapping[str, Answer], now: float, *, stable_serves: bool
) -> Taken:
    """What is known after a round of answers, by query. No round counts twice.

    | what was answered | what becomes of it |
    |---|---|
    | any, to what nothing can be judged by | the metric is blind |
    | nothing, or a refusal | it is blind |
    | counters, of which the candidate's do not fit, are no numbers, or have no such edge | it is blind |
    | counters, of which stable's do not fit | the candidate's events alone |
    | counters, and a query never had the series that it must have | events, and it is blind |
    | counters | events of both, which become evidence together once `interval` is over |
    | several values, or one outside the range | it is blind; of stable: no value |
    | a value within `interval` of the last one | nothing: it would tell of the same requests |
    | no value, or no number, within `interval` of the last one | nothing: none is needed yet |
    | no value, or no number | it is blind; of stable: no value |
    | a value | one value, in a pair with that of stable if there is one |

    A query without a series may be misspelt, or count what never happened: there is no telling, and so it is
    not zero (`_never_seen`). Once it had one, it is zero where it has none. Counters that are not compared
    need no `interval`. `now` is Unix time.
    """
    known = same_question(metric, watch) or begun(metric)
    if metric.refusal:
        return Taken(known, metric.refusal)
    answer = answers.get(metric.expression, Unknown("it has not been asked for yet"))
    if isinstance(answer, Unknown):
        return Taken(known, answer.reason)
    if isinstance(known, Events):
        return _counted(metric, known, answer, now, stable_serves=stable_serves)
    return _sampled(metric, known, answer, answers.get(metric.stable_expression, ()), now)


def same_question(metric: Metric, watch: Watch | None) -> Watch | None:
    """What is known about the same question and bound; None if that is nothing yet.

    Evidence is about one bound: another one begins with none, and with the counters as they last were.
    """
    fresh = begun(metric)
    if watch is None or watch.expression != metric.expression:
        return None
    if isinstance(watch, Events) and isinstance(fresh, Events):
        same = watch.account.polls.bets.null == metric.allowed
        return watch if same else replace(watch, account=fresh.account)
    return watch if isinstance(watch, Values) and watch.means.against.bets.null == metric.allowed else None


def begun(metric: Metric) -> Watch:
    """Nothing yet."""
    if metric.counted:
        return Events(metric.expression, account_of(metric.allowed))
    return Values(metric.expression, means_about(metric.allowed, metric.unacceptable))


def _counted(
    metric: Metric, known: Events, answer: tuple[Series, ...], now: float, *, stable_serves: bool
) -> Taken:
    candidate, events = _after(known.candidate, _numbers(metric, answer, stable=False), now, new=True)
    stable, beside = _after(known.stable, _numbers(metric, answer, stable=True), now, new=False)
    beside = Tally() if isinstance(beside, Unknown) else beside
    since = known.since if known.since is not None else now
    seen = tuple(sorted({*known.seen, *(each.labels.get(PART, "") for each in answer if each.values)}))
    zeros = (each for each in answer if each.labels.get(PART) == STABLE_BAD and each.values)
    early = known.early or any(each.values[-1].number == 0 for each in zeros)
    known = replace(known, candidate=candidate, stable=stable, since=since, seen=seen, early=early)
    if isinstance(events, Unknown):
        return Taken(_gathered(known, Tally(), beside), events.reason)
    known, blind = _gathered(known, events, beside), _never_seen(metric, known)
    if metric.compared and now < since + metric.interval_seconds:
        return Taken(known, blind)
    return Taken(replace(known.taken(now, stable_serves=stable_serves), since=now), blind)


def _never_seen(metric: Metric, known: Events) -> str:
    """Which query has matched nothing so far, and what to do; empty if that is no reason to wait.

    | the query | the new revision | stable | what follows |
    |---|---|---|---|
    | any | has had a series | any | nothing |
    | any | never | never, or it is not asked of stable | blind |
    | bad | never, though one for total | has had one at zero, before any bad event | blind |
    | bad | never | has had one | it counts as zero: `unmatched` tells people |
    | total, histogram | never | has had one | nothing: there are no events yet |
    """
    neither = [part for part in metric.parts if part not in known.seen and STABLE + part not in known.seen]
    if neither:
        field = metric.parts[neither[0]]
        of = "either revision" if metric.compared else "it"
        return f"the query for {field} has matched no series of {of} so far: {_correct(field)}"
    if known.early and "total" in known.seen and unmatched(metric, known):
        return (
            "the query for bad has matched no series of the new revision so far, though those of stable "
            f"begin at zero: {_correct('bad')}"
        )
    return ""


def _correct(field: str) -> str:
    zero = ", or, if it only counts what never happened yet, append: or vector(0)" if field == "bad" else ""
    return f"correct it{zero}"


def unmatched(metric: Metric, watch: Watch | None) -> bool:
    """Whether `bad` has matched series of stable and none of the new revision.

    Many clients make a series at its first event, so that this is what a revision without failures looks
    like. It is also what one looks like that names its series or labels in another way than stable does.
    """
    if not isinstance(watch, Events) or "bad" not in metric.parts:
        return False
    return "bad" not in watch.seen and STABLE_BAD in watch.seen


def _gathered(known: Events, candidate: Tally, stable: Tally) -> Events:
    return replace(known, gathered=(known.gathered[0] + candidate, known.gathered[1] + stable))


def _after(
    counter: Counter, numbers: Mapping[str, float] | Unknown, now: float, *, new: bool
) -> tuple[Counter, Tally | Unknown]:
    if isinstance(numbers, Unknown):
        return counter, numbers
    return counter.after(numbers, now, new=new)


def _numbers(metric: Metric, answer: tuple[Series, ...], *, stable: bool) -> Mapping[str, float] | Unknown:
    """One revision's counters, by part and labels."""
    of = [each for each in answer if each.labels.get(PART, "").startswith(STABLE) == stable]
    odd = next((each for each in of if each.no_number), None)
    if odd is not None:
        field = metric.parts.get(_part(odd), _part(odd))
        return Unknown(f"the query for {field} gives {odd.no_number}, which is no number")
    if metric.edge is not None:
        return split(of, metric.edge)
    return {_identity(series): series.values[-1].number for series in of if series.values}


def _identity(series: Series) -> str:
    labels = ",".join(f"{name}={value}" for name, value in sorted(series.labels.items()) if name != PART)
    return f"{_part(series)}{{{labels}}}"


def _part(series: Series) -> str:
    return series.labels.get(PART, "").removeprefix(STABLE)


def _sampled(metric: Metric, known: Values, answer: tuple[Series, ...], stable: Answer, now: float) -> Taken:
    value = _value(metric, answer)
    due = -inf if known.at is None else known.at + metric.interval_seconds
    if isinstance(value, Unknown):
        none = not any(each.values for each in answer)
        return Taken(known, "" if none and now < due else value.reason)
    if value.at < due:
        return Taken(known)
    beside = _value(metric, stable)
    of_stable = None if isinstance(beside, Unknown) else metric.badness(beside.number)
    span = Span(value.at - metric.interval_seconds, value.at)
    means = known.means.after(metric.badness(value.number), of_stable, span)
    return Taken(replace(known, at=value.at, means=means))


def _value(metric: Metric, answer: Answer) -> Value | Unknown:
    """The one value of one revision."""
    if isinstance(answer, Unknown):
        return answer
    odd = next((each.no_number for each in answer if each.no_number), "")
    values = [series.values[-1] for series in answer if series.values]
    rules = (
        (len(answer) > 1, "the query gives several values, and one is needed"),
        (bool(odd), f"the query gives {odd}, which is no number"),
        (not values, "the query gives no value"),
        (
            any(not 0 <= metric.badness(value.number) <= 1 for value in values),
            f"the query gives {', '.join(f'{value.number:.6g}' for value in values)}, "
            "which is outside the metric's range",
        ),
    )
    wrong = next((why for holds, why in rules if holds), None)
    return values[0] if wrong is None else Unknown(wrong)


def judge(
    metric: Metric,
    watch: Watch | None,
    policy: AnalysisPolicy,
    tests: int,
    *,
    stable_serves: bool,
    missing: str = "",
) -> MetricFinding:
    """One metric, one of `tests` that share alpha, as `decide` says.

    What cannot be asked of both revisions is judged by its bound alone, and so is what stable has shown
    nothing of: there is nothing that a breach could be blamed on.
    """
    known = same_question(metric, watch) or begun(metric)
    policy = policy if metric.compared else AnalysisPolicy.ABSOLUTE
    if isinstance(known, Events):
        account = known.account
        numbers, limits = account.numbers(metric.unacceptable, policy), account.limits(tests, policy)
        judged, bad = account.counted.judged, account.counted.bad
        comparable = account.comparable(stable_serves=stable_serves and known.compared > 0)
    else:
        numbers = known.means.numbers()
        judged, bad = known.means.values, known.means.total
        comparable = stable_serves and known.means.pairs > 0
        limits = thresholds(metric.allowed, tests, policy, independent=False)
    outcome = decide(numbers, policy, limits, comparable=comparable)
    return MetricFinding(
        metric, outcome, judged, bad, numbers, limits, missing, unmatched=unmatched(metric, known)
    )
