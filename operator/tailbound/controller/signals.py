"""What services are sized by, read from Prometheus for the whole fleet at once.

Signals that are set against each other come with one answer: between two queries there may be a scrape, and
the rows of one moment over the batches of another would be a speed that no pod has.

Each query selects one scrape job: a serving pod may export series of any name, and those must not be taken
for the gateways' counters.

Arrivals are the requests that Envoy gave to a revision's pods, counted as they come. A gateway that
Prometheus has lost would look like missing traffic: unless as many gateways report as are Ready, arrivals are
unknown, as where a querier over replicas of Prometheus has every request twice.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tailbound.api.names import GATEWAYS_JOB, REQUESTS_METRIC, SERVING_JOB
from tailbound.autoscale import gateway_load, model
from tailbound.autoscale.model import (
    NO_QUEUE_REPORTED,
    TICK,
    Arrivals,
    BatchSums,
    GatewayLoad,
    Known,
    Rate,
    Seconds,
    Service,
)
from tailbound.controller import server_signals
from tailbound.controller.batches import batches
from tailbound.controller.server_signals import Mappings, ServerSignals
from tailbound.kube.objects import Key
from tailbound.objects.unknown import Unknown
from tailbound.reconcile.scaling import ALLOWED_LATE
from tailbound.reconcile.signals import RevisionSignals, Signals
from tailbound.telemetry.prometheus import (
    TIMEOUT_SECONDS,
    FleetSignal,
    Queries,
    RevisionName,
    Series,
    Value,
    fleet_of,
)

ARRIVAL_WINDOWS: Final = (10, 30, 60, 120)
WATCHED_WINDOW: Final = 60
LATENCY_WINDOW: Final = 60
BATCH_WINDOW: Final = int(model.BATCH_WINDOW)
_GATEWAY_WINDOW: Final = int(gateway_load.WINDOW)
_REMEMBERED: Final = 1800
"""Seconds of traffic that a process which starts looks back at."""
_FRESH: Final = 15
"""Seconds after which a sample says nothing about now."""
_SERVICES_PER_SECOND: Final = 500
"""Services for which Prometheus gets one more second to answer a query."""
_GATEWAYS: Final = f'job="{GATEWAYS_JOB}"'
_SERVING: Final = f'job="{SERVING_JOB}"'
_BY: Final = "namespace, service, revision"
_ALL_PORTS: Final = "(?:http|grpc)"
_PARTS: Final = f"([^/]+)/([^/]+)/([^/]+)/{_ALL_PORTS}"
# In the order of BatchSums, as the ones below in that of GatewayLoad.
_BATCH_SUMS: Final = (
    "batch_requests",
    "batches",
    "batch_rows",
    "batch_rows_squared",
    "batch_seconds",
    "batch_row_seconds",
)
_ANSWERED: Final = "good|slow|other"
_LATE: Final = "slow|timed_out|shed"
_COPIED: Final = (
    "Prometheus has each counter of the gateways {} times, as a querier over replicas that removes no "
    "duplicates: name their replica label to it, or set prometheus.url to one replica"
)
_GATEWAY_LOAD: Final = ("answered", "inside", "least inside", "most inside", "replicas", "fewest replicas")


def _by_revision(aggregation: str, vector: str) -> str:
    """An aggregate over Envoy's clusters, whose names are NAMESPACE/SERVICE/REVISION/PORT."""
    for position, label in enumerate(_BY.split(", "), start=1):
        vector = f'label_replace({vector}, "{label}", "${position}", "envoy_cluster_name", "{_PARTS}")'
    return f"{aggregation} by ({_BY}) ({vector})"


def _cluster(metric: str, ports: str, services: str = "[^/]+/[^/]+") -> str:
    return f'envoy_cluster_{metric}{{{_GATEWAYS},envoy_cluster_name=~"{services}/[^/]+/{ports}"}}'


def _clusters(metric: str, ports: str, window: int, services: str = "[^/]+/[^/]+") -> str:
    return f"{_cluster(metric, ports, services)}[{window}s]"


def _arrivals(window: int, services: str = "[^/]+/[^/]+") -> str:
    return _by_revision("sum", f"rate({_clusters('upstream_rq_total', _ALL_PORTS, window, services)})")


def _inside(aggregate: str) -> str:
    """The expression for requests in a revision's pods, over a window that all of its counters cover."""
    window = _clusters("upstream_rq_active", _ALL_PORTS, _GATEWAY_WINDOW)
    earlier = f"{_cluster('upstream_rq_active', _ALL_PORTS)} offset {_GATEWAY_WINDOW}s"
    return _by_revision("sum", f"({aggregate}({window}) and {earlier})")


def _members(aggregation: str, aggregate: str) -> str:
    """The expression for the pods that a gateway knows; every gateway knows all pods."""
    return _by_revision(aggregation, f"{aggregate}({_clusters('membership_total', 'http', _GATEWAY_WINDOW)})")


_LATEST: Final = f"last_over_time({_clusters('upstream_rq_total', 'http', _FRESH)})"


def _counted(classes: str) -> str:
    return f'{REQUESTS_METRIC}{{{_GATEWAYS},class=~"{classes}"}}'


def _requests(classes: str) -> str:
    return f"sum by ({_BY}) (increase({_counted(classes)}[{LATENCY_WINDOW}s]))"


SIGNALS: Final[Mapping[str, str]] = {
    **{f"arrivals {window}": _arrivals(window) for window in ARRIVAL_WINDOWS},
    "gateways": _by_revision("count", _LATEST),
    "copies": f"({_by_revision('max', f'count by (pod, instance, envoy_cluster_name) ({_LATEST})')}) > 1",
    "in flight": _by_revision(
        "sum", f"last_over_time({_clusters('upstream_rq_active', _ALL_PORTS, _FRESH)})"
    ),
    "answered": (
        f"sum by ({_BY}) (rate({_counted(_ANSWERED)}[{_GATEWAY_WINDOW}s]))"
        f" and sum by ({_BY}) ({_counted(_ANSWERED)} offset {_GATEWAY_WINDOW}s)"
    ),
    "inside": _inside("avg_over_time"),
    "least inside": _inside("min_over_time"),
    "most inside": _inside("max_over_time"),
    "replicas": _members("max", "avg_over_time"),
    "fewest replicas": _members("min", "min_over_time"),
    "judged": _requests(f"good|{_LATE}"),
    "late": f"{_requests(_LATE)} > 0",
    "shed": f"{_requests('shed')} > 0",
    **{
        name: f"sum by ({_BY}) (increase(tailbound_runtime_{name}_total{{{_SERVING}}}[{BATCH_WINDOW}s]))"
        for name in _BATCH_SUMS
    },
}


_TOGETHER: Final = (
    (*(f"arrivals {window}" for window in ARRIVAL_WINDOWS), "gateways", "copies", "in flight"),
    _GATEWAY_LOAD,
    ("judged", "late", "shed"),
    _BATCH_SUMS,
)
_WITHOUT_BATCHES: Final = f" unless on ({_BY}) {SIGNALS['batches']}"
"""What gateways see of a server is not used where its batches are known, and not asked for: the answers about
a fleet are long."""


def _together(names: Sequence[str]) -> str:
    union = " or ".join(f'label_replace({SIGNALS[name]}, "signal", "{name}", "", "")' for name in names)
    return f"({union}){_WITHOUT_BATCHES}" if names == _GATEWAY_LOAD else union


QUERIES: Final[Mapping[str, tuple[str, ...]]] = {_together(names): names for names in _TOGETHER}
"""The signals that each expression answers. A series names its own in the label `signal`."""

HISTORY_BATCH: Final = 100
"""Services whose past one query asks for: its answer has 180 values of each of their revisions."""


def history_of(services: Iterable[Key]) -> str:
    """The query for the arrivals of these services in the last while."""
    names = "|".join("/".join(key).replace(".", "[.]") for key in services)
    return f"({_arrivals(ARRIVAL_WINDOWS[0], f'(?:{names})')})[{_REMEMBERED}s:{TICK:.0f}s]"


def limit_seconds(services: int) -> float:
    """How long an answer about a fleet of this number of services may take."""
    return TIMEOUT_SECONDS + services / _SERVICES_PER_SECOND


Rates = tuple[Known[float], ...]


@dataclass(frozen=True)
class WatchedSignals:
    """The signals of a service whose number of pods is fixed."""

    arrivals: Rate
    """Over WATCHED_WINDOW."""
    late: float | None
    """Fraction of the requests that were late, as in Signals."""
    shed: float


@dataclass(frozen=True)
class FleetSnapshot:
    """Every signal of the fleet at one moment."""

    answers: Mapping[str, FleetSignal | Unknown]
    gateways: int
    """Gateway pods that are Ready."""
    servers: ServerSignals = field(default_factory=ServerSignals)
    """The metrics of servers of other projects."""

    def of(self, key: Key, revisions: Iterable[str], target: float) -> Signals:
        """The signals of one service, whose P99 target is `target` seconds."""
        names = tuple(revisions)
        windows = self._arrivals(key, names)
        judged, late = self._total(key, names, "judged"), self._total(key, names, "late")
        share = _share(judged, late)
        return Signals(
            arrivals=Arrivals(windows[10], windows[30], windows[60], windows[120]),
            p99=_p99(judged, share, target),
            late=share,
            revisions={name: self._revision(key, name, target) for name in names},
            shed=_share(judged, self._total(key, names, "shed")) or 0.0,
        )

    def watched(self, key: Key, revisions: Iterable[str]) -> WatchedSignals:
        """The signals of a service that is not sized: a part of `of`, for less."""
        names = tuple(revisions)
        arrivals: Rate | None = self._unreported(key, names)
        if arrivals is None:
            arrivals = self._total(key, names, f"arrivals {WATCHED_WINDOW}")
        judged = self._total(key, names, "judged")
        late, shed = self._total(key, names, "late"), self._total(key, names, "shed")
        return WatchedSignals(arrivals, _share(judged, late), _share(judged, shed) or 0.0)

    def _revision(self, key: Key, name: str, target: float) -> RevisionSignals:
        judged, late = self._of(key, name, "judged"), self._of(key, name, "late")
        reported = self.servers.of(RevisionName(*key, name))
        return RevisionSignals(
            p99=_p99(judged, _share(judged, late), target),
            in_flight=self._of(key, name, "in flight"),
            service=self._service(key, name) if reported is None else reported.batches,
            waiting=NO_QUEUE_REPORTED if reported is None else reported.waiting,
        )

    def _service(self, key: Key, name: str) -> Service:
        """The service times from the runtime's batches, or else from the gateways."""
        batches = self._all(key, name, _BATCH_SUMS)
        if isinstance(batches, Known):
            return Known(BatchSums(BATCH_WINDOW, *batches.value), batches.at)
        load = self._all(key, name, _GATEWAY_LOAD)
        if isinstance(load, Known):
            return Known(GatewayLoad(*load.value), load.at)
        return Unknown("neither batches of the runtime nor requests at the gateway were seen")

    def _all(self, key: Key, name: str, signals: Iterable[str]) -> Known[tuple[float, ...]] | Unknown:
        """The values of these signals; Unknown if one of them is."""
        known: list[Known[float]] = []
        for signal in signals:
            found = self._of(key, name, signal)
            if isinstance(found, Unknown):
                return found
            known.append(found)
        return Known(tuple([each.value for each in known]), known[0].at)

    def _arrivals(self, key: Key, names: Sequence[str]) -> Mapping[int, Rate]:
        unreported = self._unreported(key, names)
        if unreported is not None:
            return dict.fromkeys(ARRIVAL_WINDOWS, unreported)
        return {window: self._total(key, names, f"arrivals {window}") for window in ARRIVAL_WINDOWS}

    def _unreported(self, key: Key, names: Iterable[str]) -> Unknown | None:
        """Why arrivals are unknown; None if they are known, as each gateway reports them once."""
        reporting, copies = self.answers["gateways"], self.answers["copies"]
        if isinstance(reporting, Unknown):
            return reporting
        if isinstance(copies, Unknown):
            return copies
        for name in names:
            if isinstance(copied := copies.of(*key, name), Value):
                return Unknown(_COPIED.format(int(copied.number)))
        seen = [found.number for name in names if not isinstance(found := reporting.of(*key, name), Unknown)]
        if not seen or max(seen) < self.gateways:
            counted = int(max(seen, default=0))
            return Unknown(f"Prometheus has fresh counters of {counted} of {self.gateways} gateways")
        return None

    def _total(self, key: Key, names: Sequence[str], signal: str) -> Rate:
        """The rate of all revisions. One without a series counts as zero if another one has a series."""
        parts = [self._of(key, name, signal) for name in names]
        if len(parts) == 1:
            return parts[0]
        known = [part for part in parts if isinstance(part, Known)]
        if known:
            return Known(sum(part.value for part in known), max(part.at for part in known))
        return parts[0] if parts else Unknown("there is no revision")

    def _of(self, key: Key, name: str, signal: str) -> Known[float] | Unknown:
        fleet = self.answers[signal]
        found = fleet if isinstance(fleet, Unknown) else fleet.of(*key, name)
        return found if isinstance(found, Unknown) else Known(found.number, found.at)


async def take(
    queries: Queries | None, gateways: int, services: int, mappings: Mappings | None = None
) -> FleetSnapshot:
    """Ask everything about a fleet of `services` services at once. Without a Prometheus nothing is known.

    `mappings`: the metrics of the revisions whose servers are of other projects.
    """
    if queries is None:
        why = Unknown("no Prometheus is set: the chart's prometheus.enabled or prometheus.url does that")
        return FleetSnapshot(dict.fromkeys(SIGNALS, why), gateways)
    limit = limit_seconds(services)
    servers, parts = await asyncio.gather(
        server_signals.take(queries, mappings or {}, limit),
        asyncio.gather(*(_answered(queries, each, names, limit) for each, names in QUERIES.items())),
    )
    answers = {name: signal for part in parts for name, signal in part.items()}
    return FleetSnapshot(answers, gateways, servers)


async def _answered(
    queries: Queries, expression: str, names: Iterable[str], limit: float
) -> Mapping[str, FleetSignal | Unknown]:
    """The signals of one query. Its answer takes most of the memory, and is released when this returns."""
    signals: dict[str, FleetSignal | Unknown] = {}
    answer = await queries.query(expression, timeout_seconds=limit)
    for name, series in _by_signal(names, answer).items():
        signals[name] = series if isinstance(series, Unknown) else fleet_of(series)
        # Others have their turn: a large fleet has thousands of series of each signal.
        await asyncio.sleep(0)
    return signals


def _by_signal(
    names: Iterable[str], answer: tuple[Series, ...] | Unknown
) -> Mapping[str, Sequence[Series] | Unknown]:
    if isinstance(answer, Unknown):
        return dict.fromkeys(names, answer)
    found: dict[str, list[Series]] = {name: [] for name in names}
    for series in answer:
        found[series.labels["signal"]].append(series)
    return found


@dataclass(frozen=True)
class Past:
    """The arrivals of services in the last while: one rate per tick, the oldest first."""

    rates: Mapping[Key, Rates]
    lost: Mapping[Key, str]
    """Services of which it is not known, and why."""


async def history(queries: Queries | None, services: Sequence[Key], fleet: int) -> Past:
    """The past of these services of the fleet, asked for in batches."""
    if queries is None or not services:
        return Past({}, {})
    limit, asked = limit_seconds(fleet), batches(services, HISTORY_BATCH)
    parts = await asyncio.gather(*(_past(queries, batch, limit) for batch in asked))
    return Past(
        {key: rates for part in parts for key, rates in part.rates.items()},
        {key: why for part in parts for key, why in part.lost.items()},
    )


async def _past(queries: Queries, services: Sequence[Key], limit: float) -> Past:
    """The past of one batch, in a turn of the event loop of its own."""
    answer = await queries.query(history_of(services), timeout_seconds=limit)
    if isinstance(answer, Unknown):
        return Past({}, dict.fromkeys(services, answer.reason))
    sums: dict[Key, dict[float, float]] = defaultdict(lambda: defaultdict(float))
    for series in answer:
        total = sums[series.labels["namespace"], series.labels["service"]]
        for value in series.values:
            total[value.at] += value.number
    return Past({key: tuple(Known(total[at], at) for at in sorted(total)) for key, total in sums.items()}, {})


def _share(judged: Rate, late: Rate) -> float | None:
    """The fraction of late requests. A class that was never counted has no series."""
    if not isinstance(judged, Known) or judged.value <= 0:
        return None
    return min(1.0, late.value / judged.value) if isinstance(late, Known) else 0.0


def _p99(judged: Rate, late: float | None, target: float) -> Seconds:
    """A stand-in for the 99th percentile: the gateways count on which side of the target a request was.

    | share of late requests | stands for |
    |---|---|
    | 0 | half the target |
    | up to 1 % | linearly up to the target |
    | 1 % to 100 % | linearly up to four times the target |
    """
    if late is None or not isinstance(judged, Known):
        return Unknown("no request was answered in the last minute")
    if late <= ALLOWED_LATE:
        return Known(target * (0.5 + 0.5 * late / ALLOWED_LATE), judged.at)
    return Known(target * (1 + 3 * (late - ALLOWED_LATE) / (1 - ALLOWED_LATE)), judged.at)
