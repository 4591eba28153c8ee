"""What services are sized by, read from Prometheus: one query per signal, each for the whole fleet.

Arrivals are the requests that Envoy gave to a revision's pods, counted as they come. A gateway that
Prometheus has lost would look like missing traffic: unless as many gateways report as are Ready, arrivals are
unknown.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from tailbound.autoscale.model import (
    Arrivals,
    BatchSums,
    Count,
    GatewayLatency,
    Known,
    Rate,
    Seconds,
    Service,
    Unknown,
)
from tailbound.kube.objects import Key
from tailbound.reconcile.scaling import ALLOWED_LATE
from tailbound.reconcile.signals import RevisionSignals, Signals
from tailbound.telemetry.prometheus import Fleet, Unavailable

ARRIVAL_WINDOWS: Final = (10, 30, 60, 120)
LATENCY_WINDOW: Final = 60
BATCH_WINDOW: Final = 60
_FRESH: Final = 15
"""Seconds after which a sample says nothing about now."""
_BY: Final = "namespace, service, revision"
_PARTS: Final = "([^/]+)/([^/]+)/([^/]+)/(?:http|grpc)"
_BATCH_SUMS: Final = ("batches", "batch_rows", "batch_rows_squared", "batch_seconds", "batch_row_seconds")


def _by_revision(aggregation: str, vector: str) -> str:
    """An aggregate over Envoy's clusters, whose names are NAMESPACE/SERVICE/REVISION/PORT."""
    for position, label in enumerate(_BY.split(", "), start=1):
        vector = f'label_replace({vector}, "{label}", "${position}", "envoy_cluster_name", "{_PARTS}")'
    return f"{aggregation} by ({_BY}) ({vector})"


def _clusters(metric: str, ports: str, window: int) -> str:
    return f'envoy_cluster_{metric}{{envoy_cluster_name=~"[^/]+/[^/]+/[^/]+/{ports}"}}[{window}s]'


def _requests(classes: str) -> str:
    selector = f'tailbound_requests_total{{class=~"{classes}"}}[{LATENCY_WINDOW}s]'
    return f"sum by ({_BY}) (increase({selector}))"


QUERIES: Final[Mapping[str, str]] = {
    **{
        f"arrivals {window}": _by_revision(
            "sum", f"rate({_clusters('upstream_rq_total', '(?:http|grpc)', window)})"
        )
        for window in ARRIVAL_WINDOWS
    },
    "gateways": _by_revision("count", f"last_over_time({_clusters('upstream_rq_total', 'http', _FRESH)})"),
    "in flight": _by_revision(
        "sum", f"last_over_time({_clusters('upstream_rq_active', '(?:http|grpc)', _FRESH)})"
    ),
    "judged": _requests("good|slow|timed_out"),
    "late": _requests("slow|timed_out"),
    **{
        name: f"sum by ({_BY}) (increase(tailbound_runtime_{name}_total[{BATCH_WINDOW}s]))"
        for name in _BATCH_SUMS
    },
}


class Queries(Protocol):
    """A Prometheus."""

    async def fleet(self, expression: str) -> Fleet | Unavailable:
        """One signal of every revision."""
        ...


@dataclass(frozen=True)
class Snapshot:
    """Every signal of the fleet at one moment."""

    answers: Mapping[str, Fleet | Unavailable]
    gateways: int
    """Gateway pods that are Ready."""

    def of(self, key: Key, revisions: Iterable[str], ready: Mapping[str, int], target: float) -> Signals:
        """The signals of one service, whose P99 target is `target` seconds; `ready` pods by revision."""
        names = tuple(revisions)
        windows = {window: self._arrivals(key, names, window) for window in ARRIVAL_WINDOWS}
        judged, late = self._total(key, names, "judged"), self._total(key, names, "late")
        share = _share(judged, late)
        return Signals(
            arrivals=Arrivals(windows[10], windows[30], windows[60], windows[120]),
            p99=_p99(judged, share, target),
            late=share,
            revisions={name: self._revision(key, name, ready.get(name, 0), target) for name in names},
        )

    def _revision(self, key: Key, name: str, ready: int, target: float) -> RevisionSignals:
        judged, late = self._of(key, name, "judged"), self._of(key, name, "late")
        in_flight = self._of(key, name, "in flight")
        return RevisionSignals(
            p99=_p99(judged, _share(judged, late), target),
            in_flight=in_flight,
            service=self._service(key, name, in_flight, ready),
        )

    def _service(self, key: Key, name: str, in_flight: Count, ready: int) -> Service:
        """From the runtime's batches, or else by Little's law from what the gateway sees."""
        sums = [self._of(key, name, each) for each in _BATCH_SUMS]
        known = [each for each in sums if isinstance(each, Known)]
        if len(known) == len(sums):
            batches, rows, squared, seconds, row_seconds = (each.value for each in known)
            return Known(BatchSums(BATCH_WINDOW, batches, rows, squared, seconds, row_seconds), known[0].at)
        rate = self._of(key, name, "arrivals 60")
        if isinstance(in_flight, Known) and isinstance(rate, Known) and rate.value > 0 and ready > 0:
            latency = GatewayLatency(in_flight.value / rate.value, in_flight.value / ready)
            return Known(latency, in_flight.at)
        return Unknown("neither batches of the runtime nor requests at the gateway were seen")

    def _arrivals(self, key: Key, names: Iterable[str], window: int) -> Rate:
        reporting = self._fleet("gateways")
        if isinstance(reporting, Unavailable):
            return Unknown(reporting.reason)
        seen = [
            found.number for name in names if not isinstance(found := reporting.of(*key, name), Unavailable)
        ]
        if not seen or max(seen) < self.gateways:
            counted = int(max(seen, default=0))
            return Unknown(f"Prometheus has fresh counters of {counted} of {self.gateways} gateways")
        return self._total(key, names, f"arrivals {window}")

    def _total(self, key: Key, names: Iterable[str], signal: str) -> Rate:
        """Of all revisions. One that has no series has had no request, as long as another has one."""
        parts = [self._of(key, name, signal) for name in names]
        known = [part for part in parts if isinstance(part, Known)]
        if known:
            return Known(sum(part.value for part in known), max(part.at for part in known))
        return next(iter(parts), Unknown("there is no revision"))

    def _of(self, key: Key, name: str, signal: str) -> Known[float] | Unknown:
        fleet = self._fleet(signal)
        found = fleet if isinstance(fleet, Unavailable) else fleet.of(*key, name)
        return Unknown(found.reason) if isinstance(found, Unavailable) else Known(found.number, found.at)

    def _fleet(self, signal: str) -> Fleet | Unavailable:
        return self.answers[signal]


async def take(queries: Queries | None, gateways: int) -> Snapshot:
    """Ask everything at once. Without a Prometheus nothing is known."""
    if queries is None:
        why = Unavailable("no Prometheus is set: the chart's prometheus.enabled or prometheus.url does that")
        return Snapshot(dict.fromkeys(QUERIES, why), gateways)
    answers = await asyncio.gather(*(queries.fleet(expression) for expression in QUERIES.values()))
    return Snapshot(dict(zip(QUERIES, answers, strict=True)), gateways)


def _share(judged: Rate, late: Rate) -> float | None:
    """Of the requests that were late. A class that was never counted has no series."""
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
