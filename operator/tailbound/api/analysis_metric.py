"""A metric of the user's own by which new revisions are judged."""

from typing import Annotated, ClassVar, Final

from pydantic import Field, StringConstraints

from tailbound.api.quantities import Duration, duration_between
from tailbound.api.schema import Model, Rule, matches

_Query = Annotated[str, StringConstraints(min_length=1, max_length=2048)]
_BOUND: Final = "(has(self.max) ? self.max : self.min)"
_SIDES: Final = "(has(self.max) ? 1 : 0) + (has(self.min) ? 1 : 0)"


class MetricRange(Model):
    """What a metric's values lie between."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.low < self.high",
            holds=lambda bounds: bounds.low < bounds.high,
            message="the range is empty: write low below high",
        ),
    )

    low: float = 0.0
    """No value is less."""

    high: float = 1.0
    """No value is greater."""


def _asked_once(metric: "AnalysisMetric") -> bool:
    pairs = ((metric.bad, metric.total), (metric.histogram, metric.above))
    whole = all((one is None) == (other is None) for one, other in pairs)
    ways = [metric.query, metric.bad, metric.histogram]
    return whole and sum(way is not None for way in ways) == 1


class AnalysisMetric(Model):
    """A metric in Prometheus, and the bound that a new revision must keep.

    Queries may name $namespace, $service, $revision (the new one) and $stable. One that names $revision and
    not $stable is asked of the stable revision too, with its name for $revision, and both are compared.
    """

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.bad) == has(self.total) && has(self.histogram) == has(self.above) "
            "&& [has(self.query), has(self.bad), has(self.histogram)].exists_one(way, way)",
            holds=_asked_once,
            message="metric {value} is asked for in no way or in two: write query alone, bad and total, or "
            "histogram and above",
            value_cel="self.name",
            value=lambda metric: metric.name,
        ),
        Rule(
            cel=f"{_SIDES} == 1",
            holds=lambda metric: (metric.max is None) != (metric.min is None),
            message="metric {value} needs one bound: write max or min",
            value_cel="self.name",
            value=lambda metric: metric.name,
        ),
        Rule(
            cel=f"({_SIDES}) != 1 || self.range.low >= self.range.high "
            f"|| ({_BOUND} > self.range.low && {_BOUND} < self.range.high)",
            holds=lambda metric: (
                (metric.max is None) == (metric.min is None)
                or metric.range.low < metric.bound < metric.range.high
            ),
            message="the bound of metric {value} is not within its range: write one between low and high",
            value_cel="self.name",
            value=lambda metric: metric.name,
        ),
        Rule(
            cel="has(self.query) || (has(self.max) && self.range.low == 0.0 && self.range.high == 1.0)",
            holds=lambda metric: (
                metric.query is not None or (metric.max is not None and metric.range == MetricRange())
            ),
            message="metric {value} has counters: write max, a fraction of bad events, and no range",
            value_cel="self.name",
            value=lambda metric: metric.name,
        ),
    )

    name: Annotated[
        str,
        StringConstraints(max_length=32),
        matches(
            "[a-z](?:[-a-z0-9]*[a-z0-9])?",
            "'{value}' is not a name: write lower-case letters, digits and dashes, for example accuracy",
        ),
    ]
    """What it is called in messages."""

    query: _Query | None = None
    """PromQL that gives one value. Its mean is judged, by five values at least, and by nine where it is
    compared with stable."""

    bad: _Query | None = None
    """PromQL that gives counters of bad events as they are, without rate() or increase(), which make up
    events that never were; the fraction of `total` is judged. One that has never matched a series of either
    revision is not taken for zero: it may be misspelt, and the rollout waits. Where such counters only begin
    with the first bad event, append `or vector(0)`. Once it has matched, no series means no bad events, also
    of a new revision that names its series or labels in another way than stable does: `kubectl tailbound why`
    points at it, and the rollout waits only if stable's series were there before its first bad event."""

    total: _Query | None = None
    """PromQL that gives counters of all events."""

    histogram: _Query | None = None
    """PromQL that gives the buckets of a histogram as they are, with their label le; the fraction of its
    values that are greater than `above` is judged."""

    above: float | None = None
    """One of the edges of the histogram's buckets. Nothing is judged by any other number."""

    max: float | None = None
    """The mean or the fraction must not be greater."""

    min: float | None = None
    """The mean must not be less."""

    range: Annotated[MetricRange, Field()] = MetricRange()
    """What the values of `query` lie between. A value outside is no data."""

    interval: Annotated[Duration, duration_between("1s", "1h", "between two values of query")] = Duration(
        30_000
    )
    """Time between two values of `query`, which must not tell of the same requests: with rate(…[5m]) it is
    five minutes, whatever is written here. A gauge must change at least as often as it is read, which no
    query tells: write the time between two of its updates, or else a revision may be judged by one value that
    is read several times. Of counters, the time for which events of both revisions are gathered
    before they are compared: at least twice the time between two scrapes."""

    @property
    def bound(self) -> float:
        """The one of max and min that is written."""
        chosen = self.max if self.max is not None else self.min
        assert chosen is not None
        return chosen
