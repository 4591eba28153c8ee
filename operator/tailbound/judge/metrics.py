"""Metrics of the user's own, read from Prometheus, with a bound that a new revision must keep.

Whatever is measured becomes badness between 0 and 1, with a bound of its own: the fraction of bad events
where counters are given, and how far a value lies towards the bad end of its range where a value is.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from tailbound.api.analysis_metric import AnalysisMetric
from tailbound.judge.verdict import EValues, Outcome, Thresholds
from tailbound.objects.unknown import Unknown

PART: Final = "tailbound_part"
"""Label of the parts of one answer."""
STABLE: Final = "stable_"
"""Begins the names of those parts that are stable's."""
_FIELDS: Final = {"buckets": "histogram"}
_NAME: Final = re.compile(r"\$(namespace|service|revision|stable)\b")


@dataclass(frozen=True)
class Metric:
    """One metric, with the names of one rollout in its query."""

    name: str
    expression: str
    stable_expression: str
    """The expression for stable; empty if `expression` has it too, or if it cannot be asked."""
    counted: bool
    """Counters of events, not a value."""
    edge: float | None
    """The counters are buckets of a histogram, and what is above this one is bad."""
    compared: bool
    """Whether both revisions are asked for it."""
    good_end: float
    bad_end: float
    bound: float
    """The bound in the unit of the spec."""
    interval_seconds: float
    """Between two values that count, or two comparisons of counters."""
    parts: Mapping[str, str]
    """By part of the answer to counters, the field of the spec that asks for it; total before bad."""
    refusal: str = ""
    """Why nothing can be judged by what is written; empty if something can."""

    @property
    def queries(self) -> tuple[str, ...]:
        """All that is to be asked of Prometheus."""
        return (self.expression, self.stable_expression) if self.stable_expression else (self.expression,)

    @property
    def digest(self) -> str:
        """The digest that identifies this query and bound."""
        asked = repr((self.queries, self.edge, self.good_end, self.bad_end, self.bound))
        return sha256(asked.encode()).hexdigest()[:8]

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


def metric_of(spec: AnalysisMetric, names: Mapping[str, str], *, comparable: bool = True) -> Metric:
    """The metric, with `names` for $namespace, $service, $revision and $stable.

    What names the revision and not stable can be asked of stable as well, by its name for the revision.
    It is not asked of stable unless the two are `comparable`.
    Values of a query that looks back count no more often than it looks back, whatever `interval` is.
    """
    parts = {"bad": spec.bad, "total": spec.total, "buckets": spec.histogram}
    counters = {part: query for part, query in parts.items() if query is not None}
    queries = counters.values() if spec.query is None else (spec.query,)
    asked = [{match[1] for match in _NAME.finditer(query)} for query in queries]
    of_one = all("revision" in each and "stable" not in each for each in asked)
    compared = comparable and bool(names["stable"]) and of_one
    stable = {**names, "revision": names["stable"]}
    low, high = spec.range.low, spec.range.high
    good_end, bad_end = (low, high) if spec.max is not None else (high, low)
    back = looks_back(spec.query) if spec.query is not None else 0.0
    return Metric(
        name=spec.name,
        expression=(
            _filled(spec.query, names)
            if spec.query is not None
            else _in_one(counters, (("", names), (STABLE, stable)) if compared else (("", names),))
        ),
        stable_expression=_filled(spec.query, stable) if spec.query is not None and compared else "",
        counted=spec.query is None,
        edge=spec.above,
        compared=compared,
        good_end=good_end,
        bad_end=bad_end,
        bound=spec.bound,
        interval_seconds=max(float(spec.interval.seconds), back if isinstance(back, float) else 0.0),
        parts={part: _FIELDS.get(part, part) for part in sorted(counters, reverse=True)},
        refusal=back.reason if isinstance(back, Unknown) else _no_counters(counters),
    )


def _no_counters(counters: Mapping[str, str]) -> str:
    """Why these are not what a counter counted; empty if they may be."""
    function = rates(iter(counters.values()))
    return f"{function}() makes up events that never were: write the counters as they are" if function else ""


def _in_one(counters: Mapping[str, str], of: Sequence[tuple[str, Mapping[str, str]]]) -> str:
    """All counters in one evaluation: those of two moments tell of requests that the other has not seen."""
    return " or ".join(
        f'label_replace(({_filled(query, names)}), "{PART}", "{prefix}{part}", "", "")'
        for prefix, names in of
        for part, query in counters.items()
    )


def _filled(query: str, names: Mapping[str, str]) -> str:
    return _NAME.sub(lambda match: names[match[1]], query)


@dataclass(frozen=True)
class MetricFinding:
    """The outcome for one metric, with the numbers behind it."""

    metric: Metric
    outcome: Outcome
    judged: float
    """Events, or values."""
    bad: float
    """Bad events, or the sum of the values' badness."""
    numbers: EValues
    limits: Thresholds
    missing: str = ""
    """Why there is no verdict on it now; empty if there can be one."""
    unmatched: bool = False
    """The query for bad events matches series of stable and none of the new revision."""

    @property
    def mean(self) -> float | None:
        """The mean in the unit of the metric; None while there are no samples."""
        if not self.judged:
            return None
        span = self.metric.bad_end - self.metric.good_end
        return self.metric.good_end + self.bad / self.judged * span

    @property
    def improves_breach(self) -> bool:
        """Passed only because it is proven better than a stable that breaches the bound."""
        return self.outcome is Outcome.PASS and self.numbers.beyond(self.limits)


_QUOTED: Final = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|`[^`]*`|#[^\n]*')
_RANGE: Final = re.compile(r"\[([^\]]*)\]")
_DURATION: Final = re.compile(r"(?:\d+(?:ms|[smhdwy]))+|\d+(?:\.\d+)?")
_PART: Final = re.compile(r"(\d+)(ms|[smhdwy])")
_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}
_RECORDED: Final = re.compile(r"\b[a-zA-Z_]\w*:[\w:]*?(?:rate|increase|_)(\d+(?:ms|[smhdwy]))\b")
"""The name of a recording rule, which by convention ends with its range: job:errors:rate5m."""
_RATES: Final = re.compile(
    r"\b(rate|irate|increase|delta|idelta|deriv|resets|changes|(?:avg|count|min|sum)_over_time)\s*\("
)


def looks_back(expression: str) -> float | Unknown:
    """Seconds of the past that one value of the expression covers; 0 for newest samples alone.

    Two values of an expression that looks back five minutes tell of the same requests unless five minutes lie
    between them. The text is read without a parser, and rather too far than too near: a subquery reaches
    further back than what it encloses, so that their ranges add up, and of other ranges the longest counts.
    How old a newest sample is, or how seldom a gauge changes, no expression tells.
    """
    bare = _QUOTED.sub('""', expression)
    longest, enclosing = max((_seconds(name) for name in _RECORDED.findall(bare)), default=0.0), 0.0
    for text in _RANGE.findall(bare):
        length, _, step = text.partition(":")
        if not all(_is_duration(each) for each in (length, step or length)):
            return Unknown(f"the range [{text}] of the query is not a duration: write one such as [5m]")
        if ":" in text:
            enclosing += _seconds(length.strip())
        else:
            longest = max(longest, _seconds(length.strip()))
    return longest + enclosing


def rates(expressions: Iterator[str]) -> str:
    """The first function in these expressions that makes no counter of a counter; empty if there is none."""
    found = (_RATES.search(_QUOTED.sub('""', expression)) for expression in expressions)
    return next((match[1] for match in found if match is not None), "")


def _is_duration(text: str) -> bool:
    return _DURATION.fullmatch(text.strip()) is not None


def _seconds(duration: str) -> float:
    parts = _PART.findall(duration)
    return sum(int(number) * _SECONDS[unit] for number, unit in parts) if parts else float(duration)
