"""Other projects' rules, with their defaults, as their sources and documentation have them.

HPA: counts after `replica_calculator.go` of kube-controller-manager, tolerance and stabilisation after its
documentation. Pods that start are Pending, as they are while their model is fetched. Knative:
`autoscaler.go` of its autoscaler with the documented defaults, without activators. KEDA, by its
documentation, only switches between none and one itself (every 30 s, back after five idle minutes), which
never happens here as one replica is the least; from there on HPA decides on KEDA's metric, asked for at
each of its syncs.

The rules on arrivals are told the true capacity of a replica, as if somebody had measured it before, and
never learn that it has changed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from math import ceil
from typing import Final

from e2e.bench.autoscale import signals
from e2e.bench.autoscale.fleet import FIRST_DECISION, Fleet

_TOLERANCE: Final = 0.1
_STABILISATION: Final = 300
"""Seconds of which HPA takes the highest recommendation before it scales down."""

Measure = Callable[[Fleet], float | None]
"""What HPA compares with 1; None while it is missing."""


def usage(target: float) -> Measure:
    """Arrivals over the capacity of the ready replicas, over the target."""
    return lambda fleet: signals.rate(fleet, 30) / max(1, fleet.ready) / fleet.server.capacity / target


def busy(target: float) -> Measure:
    """Time that the ready replicas spend on batches, over the target."""
    return lambda fleet: signals.busy(fleet, 30) / target


def latency(fleet: Fleet) -> float | None:
    """P99 of two minutes over the promised one."""
    seen = signals.p99(fleet, 120)
    return None if seen is None else seen / fleet.server.target


class Kind(Enum):
    """What HPA takes a metric for."""

    PODS = "Pods"
    """The mean of the pods' own values."""
    VALUE = "Value"
    """One value, compared with the target as it is."""
    SHARED = "AverageValue"
    """One value, divided by all the replicas that there are."""


@dataclass
class Hpa:
    """HorizontalPodAutoscaler v2: every 15 s, tolerance 10 %, up by 100 % or 4, down after five minutes.

    A metric of pods leaves those that are not ready out when scaling down and takes them for 0 when scaling
    up. A value that is compared as it is counts the ready ones, and one that is shared out counts all.
    """

    measure: Measure
    kind: Kind = Kind.PODS
    missing_is_zero: bool = False
    every: int = 15
    recommendations: list[tuple[int, int]] = field(default_factory=list)

    def replicas(self, fleet: Fleet) -> int | None:
        """One sync."""
        ratio = None if fleet.blind else self.measure(fleet)
        if ratio is None:
            if not self.missing_is_zero:
                return None
            ratio = 0.0
        return self._stabilised(fleet, self._recommended(fleet, ratio))

    def _recommended(self, fleet: Fleet, ratio: float) -> int:
        present = fleet.requested
        counted = present if self.kind is Kind.SHARED else max(1, fleet.ready)
        if self.kind is Kind.PODS and ratio > 1 and counted < present:
            with_unready = ratio * counted / present
            return present if with_unready <= 1 + _TOLERANCE else ceil(with_unready * present)
        return present if abs(ratio - 1) <= _TOLERANCE else ceil(ratio * counted)

    def _stabilised(self, fleet: Fleet, wanted: int) -> int:
        now, present = fleet.now, fleet.requested
        past = self.recommendations or [(now, present)]
        self.recommendations = [*((at, n) for at, n in past if at > now - _STABILISATION), (now, wanted)]
        if wanted > present:
            return min(wanted, max(2 * present, present + 4))
        return min(present, max(n for _, n in self.recommendations))


def keda() -> Hpa:
    """KEDA's Prometheus scaler with its defaults: a shared metric, and an empty answer read as 0.

    The query is that of its documentation, a rate over two minutes; the threshold is 0.7 of a replica's
    capacity, in requests per second.
    """

    def per_replica(fleet: Fleet) -> float:
        wanted = signals.rate(fleet, 120) / (0.7 * fleet.server.capacity)
        return wanted / max(1, fleet.requested)

    return Hpa(per_replica, Kind.SHARED, missing_is_zero=True)


@dataclass
class Kpa:
    """Knative's: every 2 s on concurrency, 60 s windows, 6 s ones in panic, fresh from its own proxies.

    Panic begins at twice the ready replicas, lasts until a minute after, and gives nothing up. At most half
    of the replicas are given up at once; growth is unbounded. With more than one replica it starts in panic.
    """

    share: float = 0.7
    """Fraction of the batch that a replica is to have in flight."""
    every: int = 2
    panic_since: int | None = None
    panic_most: int = 0

    def replicas(self, fleet: Fleet) -> int | None:
        """One tick."""
        if fleet.blind:
            return None
        target, ready, now = self.share * fleet.server.batch, max(1, fleet.ready), fleet.now
        if now <= FIRST_DECISION + 1 and fleet.ready > 1:
            self.panic_since, self.panic_most = now, fleet.requested
        stable = ceil(signals.mean_in_flight(fleet, 60) / target)
        panic = ceil(signals.mean_in_flight(fleet, 6) / target)
        if panic / ready >= 2:
            self.panic_since = now
        elif self.panic_since is not None and now - self.panic_since > 60:
            self.panic_since, self.panic_most = None, 0
        stable, panic = max(stable, ready // 2), max(panic, ready // 2)
        if self.panic_since is None:
            return stable
        self.panic_most = max(self.panic_most, stable, panic)
        return self.panic_most
