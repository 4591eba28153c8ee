"""Observations of one revision, and decisions about it, for tests."""

from random import Random

from tailbound.autoscale.decide import decide
from tailbound.autoscale.decision import ReplicaDecision
from tailbound.autoscale.model import (
    Arrivals,
    BatchSums,
    Known,
    LatencyTarget,
    LearnedCapacity,
    Limits,
    Replicas,
    RevisionObservation,
)
from tailbound.autoscale.state import State
from tailbound.objects.unknown import Unknown

OBJECTIVE = LatencyTarget(p99=2.0, max_batch=16, max_queue_delay=0.05)
LIMITS = Limits(1, 60)
SQUARE = [Random(tick).gauss(140.0 if tick % 48 >= 24 else 70.0, 3.0) for tick in range(240)]
"""The rates of traffic that doubles for four minutes every eight minutes, a tick each."""
LEARNED = LearnedCapacity(0.2, 0.05)
LOST = Unknown("Prometheus does not answer")


def batches(rows: float = 8.0, factor: float = 1.0, per_request: float = 1.0) -> BatchSums:
    """A window of batches of about `rows`, exactly on the curve 0.2 + 0.05 n."""
    sizes = [max(1.0, rows - 4), rows, rows + 4] * 20
    times = [factor * (0.2 + 0.05 * size) for size in sizes]
    pairs = list(zip(sizes, times, strict=True))
    return BatchSums(
        window=30.0,
        requests=sum(sizes) / per_request,
        batches=60,
        rows=sum(sizes),
        rows_squared=sum(n * n for n in sizes),
        seconds=sum(times),
        rows_seconds=sum(n * s for n, s in pairs),
    )


def seen(
    at: float, rate: float, replicas: Replicas, p99: float | None = 0.8, waiting: float = 0.0
) -> RevisionObservation:
    """Everything known, and fresh."""
    known = Known(rate, at)
    return RevisionObservation(
        Arrivals(known, known, known, known),
        Unknown("nothing completed") if p99 is None else Known(p99, at),
        Known(waiting, at),
        Known(batches(), at) if rate else Unknown("no batches"),
        replicas,
        Known(60.0, at),
    )


def blind(replicas: Replicas) -> RevisionObservation:
    """Nothing known but the pods."""
    return RevisionObservation(Arrivals(LOST, LOST, LOST, LOST), LOST, LOST, LOST, replicas, LOST)


def ready(count: int) -> Replicas:
    return Replicas(count, count, 0)


def steady(rate: float, ticks: int, replicas: int = 0, limits: Limits = LIMITS) -> ReplicaDecision:
    """The decision after `ticks` at one rate, the replicas ready as soon as they are asked for."""
    state, count = State(learned=LEARNED), replicas or 1
    for tick in range(ticks):
        at = tick * 10.0
        decision = decide(at, seen(at, rate, ready(count)), OBJECTIVE, limits, state)
        state, count = decision.state, decision.replicas
    return decision
