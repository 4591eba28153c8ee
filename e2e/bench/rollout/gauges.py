"""Values of PromQL that is read every 30 seconds, as a metric of the user's own takes them in.

A value tells of the last five minutes: either the query says so, and values are taken in as far apart; or it
is a gauge that is updated as often, which no query tells, so that each update is read ten times.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
from tailbound.api.analysis_metric import AnalysisMetric
from tailbound.api.rollout import AnalysisPolicy
from tailbound.judge.metric_evidence import Watch, judge, taken_in
from tailbound.judge.metrics import Metric, metric_of
from tailbound.judge.verdict import Outcome
from tailbound.telemetry.prometheus import Series, Value

from e2e.bench.rollout.scenarios import SEED, Floats

_NAMES: Final = {"namespace": "risk", "service": "churn", "revision": "new", "stable": "old"}
_READ_EVERY: Final = 30
_PERIODS: Final = 10
"""Readings of the time that a value tells of."""
_READINGS: Final = 1440
"""The readings of half a day."""
_REQUESTS: Final = 5
"""Between two readings; of them one in fifty is bad, as the bound allows."""
_BOUND: Final = 0.02

RANGE: Final = 'rate(bad{r="$revision"}[5m]) / rate(all{r="$revision"}[5m])'
GAUGE: Final = 'badness{r="$revision"}'


def rolled_back(query: str, seed: int) -> bool:
    """Whether one candidate at its bound, beside such a stable revision, is ever rolled back."""
    spec = {"name": "badness", "query": query, "max": _BOUND, "interval": f"{_READ_EVERY}s"}
    metric = metric_of(AnalysisMetric.model_validate(spec), _NAMES)
    random = np.random.default_rng([SEED, seed, *query.encode()])
    updated = _PERIODS if query == GAUGE else 1
    pairs = zip(_values(random, updated), _values(random, updated), strict=True)
    return _condemned(metric, pairs)


def _values(random: np.random.Generator, updated: int) -> list[float]:
    bad = random.binomial(_REQUESTS, _BOUND, _READINGS + _PERIODS)
    means: Floats = np.convolve(bad, np.ones(_PERIODS), "valid")[:_READINGS] / (_REQUESTS * _PERIODS)
    return [float(each) for each in np.repeat(means[::updated], updated)]


def _condemned(metric: Metric, pairs: Iterator[tuple[float, float]]) -> bool:
    known: Watch | None = None
    for number, (candidate, stable) in enumerate(pairs):
        at = float(number * _READ_EVERY)
        answers = {
            query: (Series({}, (Value(at, value),)),)
            for query, value in zip(metric.queries, (candidate, stable), strict=True)
        }
        before, known = known, taken_in(metric, known, answers, at, stable_serves=True).watch
        if known == before:
            continue
        if judge(metric, known, AnalysisPolicy.ABSOLUTE, 1, stable_serves=True).outcome is Outcome.ROLL_BACK:
            return True
    return False
