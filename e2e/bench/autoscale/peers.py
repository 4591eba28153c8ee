"""Other projects' rules, with their defaults, as their documentation describes them.

KEDA's is simplified: the rate over two minutes against 0.7 of the capacity.

The rules on arrivals are told the true capacity of a replica, as if somebody had measured it before, and
never learn that it has changed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
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


@dataclass
class Hpa:
    """HorizontalPodAutoscaler v2: every 15 s, tolerance 10 %, up by 100 % or 4, down after five minutes.

    Metrics of pods leave pods that are not ready out when scaling down and take them for 0 when scaling up.
    """

    measure: Measure
    of_pods: bool = True
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
        present, ready = fleet.requested, max(1, fleet.ready)
        if self.of_pods and ratio > 1 and ready < present:
            with_unready = ratio * ready / present
            if with_unready <= 1 + _TOLERANCE:
                return present
            return ceil(with_unready * present)
        return present if abs(ratio - 1) <= _TOLERANCE else ceil(ratio * ready)

    def _stabilised(self, fleet: Fleet, wanted: int) -> int:
        now, present = fleet.now, fleet.requested
        past = self.recommendations or [(now, present)]
        self.recommendations = [*((at, n) for at, n in past if at > now - _STABILISATION), (now, wanted)]
        if wanted > present:
            return min(wanted, max(2 * present, present + 4))
        return min(present, max(n for _, n in self.recommendations))


def keda() -> Hpa:
    """KEDA's Prometheus scaler with its defaults: an external metric through HPA, and no data read as 0.

    Its threshold is 0.7 of a replica's capacity, in requests per second.
    """

    def per_replica(fleet: Fleet) -> float:
        wanted = signals.rate(fleet, 120) / (0.7 * fleet.server.capacity)
        return wanted / max(1, fleet.ready)

    return Hpa(per_replica, of_pods=False, missing_is_zero=True)


@dataclass
class Kpa:
    """Knative's: every 2 s on concurrency, 60 s windows, 6 s ones in panic, fresh from its own proxies."""

    share: float = 0.7
    """Of the batch that a replica is to have in flight."""
    every: int = 2
    panic_since: int | None = None
    panic_most: int = 0

    def replicas(self, fleet: Fleet) -> int | None:
        """One tick."""
        if fleet.blind:
            return None
        target, ready, now = self.share * fleet.server.batch, max(1, fleet.ready), fleet.now
        if now <= FIRST_DECISION + 1:
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
