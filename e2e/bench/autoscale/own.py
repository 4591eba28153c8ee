"""The product's own decisions, fed with what its operator would see."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from tailbound.autoscale import gateway_load
from tailbound.autoscale.decide import decide
from tailbound.autoscale.model import (
    BATCH_WINDOW,
    Arrivals,
    BatchSums,
    GatewayLoad,
    Known,
    LatencyTarget,
    Limits,
    Replicas,
    RevisionObservation,
)
from tailbound.autoscale.state import State, restored
from tailbound.objects.unknown import Unknown

from e2e.bench.autoscale import signals
from e2e.bench.autoscale.fleet import HIGHEST, Fleet

_SUMS: Final = int(BATCH_WINDOW)
_SCRAPES: Final = 5
"""Seconds between two looks at what is in flight."""
_OVERDUE: Final = 2
"""Cold starts after which the operator calls a pod stuck."""
_OUTAGE: Final = Unknown("Prometheus reaches no gateway")


@dataclass
class Own:
    """Starts as after a restart of the operator: with the rates that Prometheus has, and nothing learned."""

    every: int = 10
    tells_batches: bool = True
    """Whether the runtime exports the times of its batches. Else all is learned at the gateway."""
    state: State = field(default_factory=State)
    started: bool = False

    def replicas(self, fleet: Fleet) -> int | None:
        """One tick."""
        server = fleet.server
        objective = LatencyTarget(server.target, server.batch, server.delay)
        if not self.started:
            self.started = True
            end = signals.scraped(fleet)
            rates = [
                Known(signals.rate_until(fleet, at, 10), float(at)) for at in range(end % 10 + 10, end, 10)
            ]
            self.state = restored(rates, fleet.cold_start + signals.LAG, objective)
        decision = decide(
            float(fleet.now), observe(fleet, self.tells_batches), objective, Limits(1, HIGHEST), self.state
        )
        self.state = decision.state
        return decision.replicas


def observe(fleet: Fleet, tells_batches: bool = True) -> RevisionObservation:
    """One tick's observation."""
    pods = _pods(fleet)
    cold_start = Known(fleet.cold_start, float(fleet.now))
    if fleet.blind:
        arrivals = Arrivals(_OUTAGE, _OUTAGE, _OUTAGE, _OUTAGE)
        return RevisionObservation(arrivals, _OUTAGE, _OUTAGE, _OUTAGE, pods, cold_start)
    at = float(signals.scraped(fleet))
    rates = (Known(signals.rate(fleet, window), at) for window in (10, 30, 60, 120))
    latency = signals.p99(fleet, 60)
    return RevisionObservation(
        Arrivals(*rates),
        Unknown("too few requests completed") if latency is None else Known(latency, at),
        Known(float(fleet.in_flight[int(at)]), at),
        Known(_sums(fleet, int(at)) if tells_batches else _load(fleet, int(at)), at),
        pods,
        cold_start,
    )


def _pods(fleet: Fleet) -> Replicas:
    pending = [name for name, ready in fleet.alive.items() if ready > fleet.now]
    overdue = fleet.now - _OVERDUE * fleet.cold_start
    made = [fleet.made_at[name] for name in pending]
    waited = tuple(fleet.now - at for at in made if at >= overdue)
    ready = fleet.requested - len(pending)
    return Replicas(fleet.requested, ready, len(pending), len(pending) - len(waited), waited)


def _sums(fleet: Fleet, end: int) -> BatchSums:
    batches = [batch for second in fleet.batches[max(0, end - _SUMS) : end] for batch in second]
    return BatchSums(
        window=_SUMS,
        requests=sum(rows for rows, _ in batches),
        batches=len(batches),
        rows=sum(rows for rows, _ in batches),
        rows_squared=sum(rows * rows for rows, _ in batches),
        seconds=sum(seconds for _, seconds in batches),
        rows_seconds=sum(rows * seconds for rows, seconds in batches),
    )


def _load(fleet: Fleet, end: int) -> GatewayLoad:
    window = slice(max(0, end - int(gateway_load.WINDOW)), end)
    inside, replicas = fleet.in_flight[window][::_SCRAPES], fleet.serving[window]
    return GatewayLoad(
        answered=float(np.mean(fleet.finished[window])),
        inside=float(np.mean(inside)),
        least_inside=min(inside),
        most_inside=max(inside),
        replicas=float(np.mean(replicas)),
        fewest_replicas=min(replicas),
    )
