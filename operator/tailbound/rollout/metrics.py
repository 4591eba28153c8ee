"""Metrics of the user's own, read from Prometheus, with a bound that a new revision must keep.

Whatever is measured becomes badness between 0 and 1, with a bound of its own: the fraction of bad events
where counters are given, and how far a value lies towards the bad end of its range where a value is.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log
from typing import Final

from tailbound.api.analysis_metric import AnalysisMetric
from tailbound.rollout.betting import Bets, that_above, that_below
from tailbound.rollout.evidence import AT_LEAST_BAD
from tailbound.rollout.verdict import ALPHA, BETA, Outcome
from tailbound.telemetry.prometheus import Series, Unavailable

LEAST_SAMPLES: Final = 5
"""No candidate is condemned by fewer values of a mean."""

_PART: Final = "tailbound_part"
_NAME: Final = re.compile(r"\$(namespace|service|revision|stable)\b")

Answer = tuple[Series, ...] | Unavailable


@dataclass(frozen=True)
class Metric:
    """One metric, with the names of one rollout in its query."""

    name: str
    expression: str
    counted: bool
    """Two counters, not a value."""
    good_end: float
    bad_end: float
    bound: float
    """As the spec says it."""
    interval_seconds: float

    @property
    def allowed(self) -> float:
        """The badness that the bound allows."""
        return self.badness(self.bound)

    @property
    def unacceptable(self) -> float:
        """The badness that a passing step is proven to stay below."""
        return min(2 * self.allowed, (1 + self.allowed) / 2)

    def badness(self, value: float) -> float:
        """0 at the good end of the range, 1 at the bad one."""
        return (value - self.good_end) / (self.bad_end - self.good_end)


def metric_of(spec: AnalysisMetric, names: Mapping[str, str]) -> Metric:
    """The metric, with `names` for $namespace, $service, $revision and $stable."""
    if spec.query is not None:
        expression = _filled(spec.query, names)
    else:
        # In one evaluation: counters of two moments would tell of requests that the other has not seen.
        parts = (("bad", spec.bad), ("total", spec.total))
        expression = " or ".join(
            f'label_replace(({_filled(part or "", names)}), "{_PART}", "{name}", "", "")'
            for name, part in parts
        )
    low, high = spec.range.low, spec.range.high
    good_end, bad_end = (low, high) if spec.max is not None else (high, low)
    return Metric(
        name=spec.name,
        expression=expression,
        counted=spec.query is None,
        good_end=good_end,
        bad_end=bad_end,
        bound=spec.bound,
        interval_seconds=float(spec.interval.seconds),
    )


def _filled(query: str, names: Mapping[str, str]) -> str:
    return _NAME.sub(lambda match: names[match[1]], query)


@dataclass(frozen=True)
class Watch:
    """What is known about one metric."""

    against: Bets
    passing: Bets
    expression: str
    """What was asked for: another question begins anew."""
    at: float | None = None
    """Unix time of the newest sample that was taken in."""
    counters: Mapping[str, float] | None = None
    """At that time, by part and labels."""
    judged: float = 0.0
    """Events, or values."""
    bad: float = 0.0
    """Bad events, or the sum of the values' badness."""

    def next_step(self) -> "Watch":
        """The proof for passing starts again, what speaks against the candidate stays."""
        return replace(self, passing=that_below(self.passing.null))

    def _after(self, badness: float, times: float) -> "Watch":
        return replace(
            self,
            against=self.against.after(badness, times),
            passing=self.passing.after(badness, times),
            judged=self.judged + times,
            bad=self.bad + badness * times,
        )


def taken_in(metric: Metric, watch: Watch | None, answer: Answer) -> Watch | Unavailable:
    """What is known after an answer. The same answer twice changes nothing.

    | what was answered | what becomes of it |
    |---|---|
    | several values, or one outside the range | Unavailable |
    | counters: one fell, or is missing | Unavailable: a restart or a stale replica, there is no telling |
    | counters: the first time | where counting starts |
    | counters: more bad events than events | Unavailable |
    | counters | what came since then; a series that was not there has counted from zero |
    | no value yet | nothing |
    | a value within `interval` of the last one | nothing: it would tell of the same requests |
    | a value | one sample |
    """
    if isinstance(answer, Unavailable):
        return answer
    known = watch if watch is not None and watch.expression == metric.expression else _begun(metric)
    return _counted(known, answer) if metric.counted else _sampled(metric, known, answer)


def _begun(metric: Metric) -> Watch:
    return Watch(that_above(metric.allowed), that_below(metric.unacceptable), metric.expression)


def _sampled(metric: Metric, known: Watch, answer: tuple[Series, ...]) -> Watch | Unavailable:
    values = [series.values[-1] for series in answer if series.values]
    if not values:
        return known
    if len(values) > 1:
        return Unavailable("the query gives several values, and one is needed")
    at, number = values[0]
    badness = metric.badness(number)
    if not 0 <= badness <= 1:
        return Unavailable("the query gives values outside the metric's range")
    if known.at is not None and at < known.at + metric.interval_seconds:
        return known
    return replace(known, at=at)._after(badness, 1.0)


def _counted(known: Watch, answer: tuple[Series, ...]) -> Watch | Unavailable:
    now = {_identity(series): series.values[-1].number for series in answer if series.values}
    at = max((series.values[-1].at for series in answer if series.values), default=None)
    if known.counters is None:
        return replace(known, at=at, counters=now)
    rises = {identity: number - known.counters.get(identity, 0.0) for identity, number in now.items()}
    if any(rise < 0 for rise in rises.values()) or known.counters.keys() - now.keys():
        return Unavailable("a counter fell, or is missing")
    bad = sum(rise for identity, rise in rises.items() if identity.startswith("bad"))
    total = sum(rise for identity, rise in rises.items() if identity.startswith("total"))
    if bad > total:
        return Unavailable("the query for bad counts more than the one for total")
    counted = replace(known, at=at, counters=now)
    return counted._after(1.0, bad)._after(0.0, total - bad)


def _identity(series: Series) -> str:
    labels = ",".join(f"{name}={value}" for name, value in sorted(series.labels.items()) if name != _PART)
    return f"{series.labels.get(_PART, '')}{{{labels}}}"


@dataclass(frozen=True)
class MetricFinding:
    """The outcome for one metric, with the numbers behind it (ln E)."""

    metric: Metric
    outcome: Outcome
    judged: float
    bad: float
    against: float
    against_limit: float
    passing: float
    passing_limit: float

    @property
    def mean(self) -> float:
        """In the metric's own unit; the bound while there are no samples."""
        if not self.judged:
            return self.metric.bound
        span = self.metric.bad_end - self.metric.good_end
        return self.metric.good_end + self.bad / self.judged * span


def judge(metric: Metric, watch: Watch | None, tests: int) -> MetricFinding:
    """One metric, of so many `tests` that share alpha; the first row that matches decides.

    | proven beyond the bound, by enough samples | proven to pass | outcome |
    |---|---|---|
    | yes | - | roll back |
    | no | yes | pass |
    | no | no | wait |
    """
    known = watch or _begun(metric)
    enough = known.bad >= AT_LEAST_BAD if metric.counted else known.judged >= LEAST_SAMPLES
    limit, passing_limit = log(tests / ALPHA), log(1 / BETA)
    against, passing = known.against.log_fortune, known.passing.log_fortune
    rules = (
        (enough and against >= limit, Outcome.ROLL_BACK),
        (passing >= passing_limit, Outcome.PASS),
    )
    outcome = next((outcome for holds, outcome in rules if holds), Outcome.WAIT)
    return MetricFinding(metric, outcome, known.judged, known.bad, against, limit, passing, passing_limit)
