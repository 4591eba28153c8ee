"""User-defined metrics that judge new revisions."""

from typing import Annotated, ClassVar, Final

from pydantic import Field, StringConstraints

from tailbound.api.quantities import Duration
from tailbound.api.quantity_fields import duration_between
from tailbound.api.schema import Model, Rule, matches

_Query = Annotated[str, StringConstraints(min_length=1, max_length=2048)]
_BOUND: Final = "(has(self.max) ? self.max : self.min)"
_SIDES: Final = "(has(self.max) ? 1 : 0) + (has(self.min) ? 1 : 0)"


class MetricRange(Model):
    """The range of a metric's values."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.low < self.high",
            holds=lambda bounds: bounds.low < bounds.high,
            message="the range is empty: write low below high",
        ),
    )

    low: float = 0.0
    """Lowest possible value."""

    high: float = 1.0
    """Highest possible value."""


def _asked_once(metric: "AnalysisMetric") -> bool:
    pairs = ((metric.bad, metric.total), (metric.histogram, metric.above))
    whole = all((one is None) == (other is None) for one, other in pairs)
    ways = [metric.query, metric.bad, metric.histogram]
    return whole and sum(way is not None for way in ways) == 1


class AnalysisMetric(Model):
    """A metric in Prometheus, and the bound that a new revision must keep.

    Queries may contain $namespace, $service, $revision (the new one) and $stable. A query with $revision and
    without $stable is also evaluated for the stable revision, whose name then replaces $revision, and both
    results are compared. Queries see only series whose label namespace is the namespace of the service: each
    selector gets that matcher. A query that cannot be confined so, or that is too slow, is not answered.
    """

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.bad) == has(self.total) && has(self.histogram) == has(self.above) "
            "&& [has(self.query), has(self.bad), has(self.histogram)].exists_one(way, way)",
            holds=_asked_once,
            message="metric {value} needs exactly one kind of query: write query alone, or bad and total, or "
            "histogram and above",
            quoted="name",
        ),
        Rule(
            cel=f"{_SIDES} == 1",
            holds=lambda metric: (metric.max is None) != (metric.min is None),
            message="metric {value} needs one bound: write max or min",
            quoted="name",
        ),
        Rule(
            cel=f"({_SIDES}) != 1 || self.range.low >= self.range.high "
            f"|| ({_BOUND} > self.range.low && {_BOUND} < self.range.high)",
            holds=lambda metric: (
                (metric.max is None) == (metric.min is None)
                or metric.range.low < metric.bound < metric.range.high
            ),
            message="the bound of metric {value} is not within its range: write one between low and high",
            quoted="name",
        ),
        Rule(
            cel="has(self.query) || (has(self.max) && self.range.low == 0.0 && self.range.high == 1.0)",
            holds=lambda metric: (
                metric.query is not None or (metric.max is not None and metric.range == MetricRange())
            ),
            message="metric {value} has counters: write max, a fraction of bad events, and no range",
            quoted="name",
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
    """Name of the metric in messages."""

    query: _Query | None = None
    """PromQL that returns one value. The mean is judged, from at least five values, or nine if it is compared
    with stable."""

    bad: _Query | None = None
    """PromQL that returns raw counters of bad events, without rate() or increase(), which interpolate; their
    fraction of `total` is judged. A query that has never matched a series of either revision does not count
    as zero, because it may be misspelt: the rollout waits. If such counters only appear with the first bad
    event, append `or vector(0)`. After the first match, no series means no bad events. This also happens if
    the new revision uses other names for its series or labels than stable: `kubectl tailbound why` points to
    it, and the rollout waits only if the series of stable existed before its first bad event."""

    total: _Query | None = None
    """PromQL that returns raw counters of all events."""

    histogram: _Query | None = None
    """PromQL that returns the raw buckets of a histogram, with their label le; the fraction of its values
    greater than `above` is judged."""

    above: float | None = None
    """One of the bucket bounds of the histogram. With any other number there is no verdict."""

    max: float | None = None
    """Highest allowed mean, or highest allowed fraction of bad events."""

    min: float | None = None
    """Lowest allowed mean."""

    range: Annotated[MetricRange, Field()] = MetricRange()
    """The range of the values of `query`. A value outside of it counts as missing."""

    interval: Annotated[Duration, duration_between("1s", "1h", "between two values of query")] = Duration(
        30_000
    )
    """For `query`, the time between two values. Two values must not describe the same requests: with
    rate(…[5m]) the interval is therefore at least five minutes. A gauge must change at least as often as it
    is read: write the time between two of its updates, or else one value may be counted several times. For
    counters, the time for which events of both revisions are collected before they are compared: write at
    least twice the scrape interval.
    """

    @property
    def bound(self) -> float:
        """The bound that is set: max or min."""
        chosen = self.max if self.max is not None else self.min
        assert chosen is not None
        return chosen
