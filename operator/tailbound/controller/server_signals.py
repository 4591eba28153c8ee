"""Reads the metrics from which the capacity of servers of other projects follows, as their runtimes map them.

Each mapping is asked for by itself, and its answer counts only for the revisions that have it: what a pod
exports under a name that another runtime maps changes nothing. A query selects the series of serving pods in
the namespaces of these revisions, by labels that Prometheus sets and no pod does. The text of a mapping was
checked for being a name and labels, and is put together again here, so that no text of a tenant's is PromQL.

What one tick asks is bounded: of more than `MOST_MAPPINGS` different mappings, each namespace's first come
before any namespace's second.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from tailbound.api.names import SERVING_JOB
from tailbound.api.server_metrics import SECONDS_OF, ServerMetrics, metrics_text
from tailbound.autoscale.model import BATCH_WINDOW, NO_QUEUE_REPORTED, Count, Known, Service
from tailbound.autoscale.server_counters import ServerCounters, batch_sums, waiting
from tailbound.controller.batches import batches
from tailbound.objects.unknown import Unknown
from tailbound.telemetry.prometheus import FleetSignal, Queries, RevisionName, Series, fleet_of

MOST_MAPPINGS: Final = 48
AT_ONCE: Final = 6
"""Mappings that one query asks for: its text stays below what servers take as a URL."""
_MOST_NAMESPACES: Final = 20
"""Namespaces that a query names; a mapping of more is the cluster's."""
_BY: Final = "namespace, service, revision"
_WINDOW: Final = f"[{BATCH_WINDOW:.0f}s]"
_LABEL: Final = "signal"


class Part(StrEnum):
    """What of a mapping one series is."""

    REQUESTS = "requests"
    ROWS = "rows"
    BATCHES = "batches"
    SECONDS = "seconds"
    PODS = "pods"
    QUEUE = "queue"


Mappings = Mapping[RevisionName, ServerMetrics]
"""By revision, for those whose runtime maps metrics."""


class ServerReading(NamedTuple):
    """The batches and the queue of one revision, as its server reports them."""

    batches: Service
    waiting: Count


@dataclass(frozen=True)
class ServerSignals:
    """The metrics of servers of other projects at one moment."""

    mappings: Mappings = field(default_factory=dict)
    answers: Mapping[str, Mapping[Part, FleetSignal] | Unknown] = field(default_factory=dict)
    """By the text of a mapping."""

    def of(self, revision: RevisionName) -> ServerReading | None:
        """The report of one revision's server; None if its runtime maps no metrics."""
        metrics = self.mappings.get(revision)
        if metrics is None:
            return None
        answer = self.answers.get(metrics_text(metrics), _TOO_MANY)
        if isinstance(answer, Unknown):
            return ServerReading(answer, answer)
        return _reading(metrics, answer, revision)


_TOO_MANY: Final = Unknown(
    f"the runtimes of the cluster map more than {MOST_MAPPINGS} different sets of metrics, and this one is "
    "not asked for: remove mappings that differ without need"
)


async def take(queries: Queries, mappings: Mappings, limit_seconds: float) -> ServerSignals:
    """Query the metrics of all these revisions' servers."""
    users = _users(mappings)
    asked = _first(users)
    groups = tuple(batches(asked, AT_ONCE))
    found = await asyncio.gather(*(_answers(queries, group, users, limit_seconds) for group in groups))
    return ServerSignals(mappings, {text: answer for part in found for text, answer in part.items()})


@dataclass(frozen=True)
class _Users:
    metrics: ServerMetrics
    namespaces: frozenset[str]


def _users(mappings: Mappings) -> dict[str, _Users]:
    """Every mapping with the namespaces whose revisions have it."""
    namespaces: dict[str, set[str]] = defaultdict(set)
    metrics: dict[str, ServerMetrics] = {}
    for revision, mapping in mappings.items():
        text = metrics_text(mapping)
        namespaces[text].add(revision.namespace)
        metrics[text] = mapping
    return {text: _Users(metrics[text], frozenset(namespaces[text])) for text in metrics}


def _first(users: Mapping[str, _Users]) -> Sequence[str]:
    """The mappings that are asked for: those of most namespaces first within each namespace."""
    ranks: dict[str, int] = {}
    seen: dict[str, int] = defaultdict(int)
    for text in sorted(users, key=lambda each: (-len(users[each].namespaces), each)):
        ranks[text] = min(seen[namespace] for namespace in users[text].namespaces)
        for namespace in users[text].namespaces:
            seen[namespace] += 1
    return sorted(ranks, key=lambda each: (ranks[each], -len(users[each].namespaces), each))[:MOST_MAPPINGS]


async def _answers(
    queries: Queries, texts: Sequence[str], users: Mapping[str, _Users], limit_seconds: float
) -> dict[str, Mapping[Part, FleetSignal] | Unknown]:
    expressions = [
        f'label_replace({expression}, "{_LABEL}", "{number}/{part}", "", "")'
        for number, text in enumerate(texts)
        for part, expression in expressions_of(users[text].metrics, users[text].namespaces).items()
    ]
    answer = await queries.query(" or ".join(expressions), timeout_seconds=limit_seconds)
    if isinstance(answer, Unknown):
        return dict.fromkeys(texts, answer)
    parts: dict[str, list[Series]] = defaultdict(list)
    for series in answer:
        parts[series.labels.get(_LABEL, "")].append(series)
    return {text: _signals(str(number), parts) for number, text in enumerate(texts)}


def _signals(number: str, parts: Mapping[str, Sequence[Series]]) -> Mapping[Part, FleetSignal] | Unknown:
    found: dict[Part, FleetSignal] = {}
    for part in Part:
        signal = fleet_of(parts.get(f"{number}/{part}", ()))
        if isinstance(signal, Unknown):
            return signal
        found[part] = signal
    return found


def expressions_of(metrics: ServerMetrics, namespaces: Iterable[str]) -> Mapping[Part, str]:
    """The PromQL of every part of a mapping, over the serving pods of these namespaces.

    Only numbers are compared with zero: a histogram, of which no part is made, has no series in the answer.
    """
    where = [f'job="{SERVING_JOB}"', *_within(sorted(namespaces))]

    def rise(*selectors: str) -> str:
        sums = (f"sum by ({_BY}) (increase({_selected(each, where)}{_WINDOW}) >= 0)" for each in selectors)
        return f"({' + '.join(sums)})"

    pods = f"count by ({_BY}, pod) (last_over_time({_selected(metrics.requests, where)}{_WINDOW}))"
    made = {Part.REQUESTS: rise(metrics.requests), Part.PODS: f"count by ({_BY}) ({pods})"}
    made[Part.SECONDS] = rise(*(metrics.batch_time or metrics.request_time or ()))
    if metrics.rows is not None:
        made[Part.ROWS] = rise(metrics.rows)
    if metrics.batches is not None:
        made[Part.BATCHES] = rise(metrics.batches)
    if metrics.queue is not None:
        made[Part.QUEUE] = f"sum by ({_BY}) (avg_over_time({_selected(metrics.queue, where)}{_WINDOW}) >= 0)"
    return made


def _within(namespaces: Sequence[str]) -> Sequence[str]:
    return [f'namespace=~"{"|".join(namespaces)}"'] if len(namespaces) <= _MOST_NAMESPACES else []


def _selected(selector: str, where: Iterable[str]) -> str:
    """The name and labels of a selector as matchers, where no name can be read as a word of PromQL."""
    name, _, labels = selector.partition("{")
    own = labels.removesuffix("}").split(",") if labels else []
    matchers = ",".join([f'__name__="{name}"', *own, *where])
    return f"{{{matchers}}}"


def _reading(
    metrics: ServerMetrics, answer: Mapping[Part, FleetSignal], revision: RevisionName
) -> ServerReading:
    def of(part: Part, name: str | None) -> Known[float] | Unknown:
        value = answer[part].of(*revision)
        if not isinstance(value, Unknown):
            return Known(value.number, value.at)
        return Unknown(
            f"Prometheus has no fresh series of {name} of the pods of {revision.revision}: the runtime maps "
            f"it as metrics.{part}"
        )

    times = metrics.batch_time or metrics.request_time or ()
    found = {
        Part.REQUESTS: of(Part.REQUESTS, metrics.requests),
        Part.ROWS: of(Part.ROWS, metrics.rows) if metrics.rows else of(Part.REQUESTS, metrics.requests),
        Part.SECONDS: of(Part.SECONDS, " + ".join(times)),
        Part.PODS: of(Part.PODS, metrics.requests),
        **({Part.BATCHES: of(Part.BATCHES, metrics.batches)} if metrics.batches else {}),
    }
    missing = next((each for each in found.values() if isinstance(each, Unknown)), None)
    if missing is not None:
        return ServerReading(missing, missing if metrics.queue else NO_QUEUE_REPORTED)
    known = {part: each for part, each in found.items() if isinstance(each, Known)}
    sums = batch_sums(_counters(metrics, {part: each.value for part, each in known.items()}))
    at, pods = known[Part.REQUESTS].at, known[Part.PODS].value
    queue = of(Part.QUEUE, metrics.queue) if metrics.queue else NO_QUEUE_REPORTED
    waits = Known(waiting(queue.value, pods, sums), queue.at) if isinstance(queue, Known) else queue
    return ServerReading(sums if isinstance(sums, Unknown) else Known(sums, at), waits)


def _counters(metrics: ServerMetrics, values: Mapping[Part, float]) -> ServerCounters:
    return ServerCounters(
        requests=values[Part.REQUESTS],
        rows=values[Part.ROWS],
        seconds=values[Part.SECONDS] * SECONDS_OF[metrics.unit],
        each_request=metrics.request_time is not None,
        pods=values[Part.PODS],
        batches=values.get(Part.BATCHES),
    )
