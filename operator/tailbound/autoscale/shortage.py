"""The queue that there will be when a replica that is asked for now is ready."""

from collections.abc import Iterable
from math import sqrt
from typing import Final

from tailbound.autoscale.arithmetic import CeilingOf, Figure, Quotient, Sum, Term
from tailbound.autoscale.model import TICK, Known, Rate, RevisionObservation
from tailbound.autoscale.panic import backlog
from tailbound.autoscale.replica_estimate import MARGIN, ReplicaEstimate

DRAIN: Final = 20.0
"""Seconds in which that queue is to be worked off."""
_FULLNESS: Final = 0.97
"""Fraction of their capacity that replicas with a queue reach."""
_CHANCE: Final = 2.0
"""Standard errors of a counted rate that are not followed to the horizon."""


def short(
    now: float, seen: RevisionObservation, sizing: ReplicaEstimate, rate: Rate, cold_start: float
) -> Term | None:
    """Replicas that work off, in `DRAIN` seconds, the queue that is foreseen; None where none is."""
    if not isinstance(rate, Known) or not isinstance(seen.in_flight, Known):
        return None
    speed = sizing.capacity * min(1.0, sizing.correction) * _FULLNESS
    lasting = rate.value - _CHANCE * sqrt(rate.value / TICK)
    waiting = backlog(seen, sizing.objective, sizing.rows_per_request)
    age = max(0.0, now - seen.in_flight.at)
    coming = [age + max(TICK, cold_start - waited) for waited in seen.replicas.waited]
    queue = foreseen(waiting, lasting, speed, seen.replicas.ready, coming, age + cold_start + TICK)
    queue -= seen.replicas.ready * speed * _tolerable_wait(sizing)
    if queue <= 0:
        return None
    drained = Quotient(Figure(queue, "queue foreseen"), Figure(DRAIN, "drained in"))
    return CeilingOf(Quotient(Sum((Figure(rate.value, "this moment"), drained)), Figure(speed, "speed")))


def _tolerable_wait(sizing: ReplicaEstimate) -> float:
    """Seconds that a request may wait in the queue without being late."""
    objective = sizing.objective
    return max(0.0, MARGIN * objective.p99 - sizing.batch_times.seconds(objective.max_batch))


def foreseen(
    waiting: float, rate: float, speed: float, ready: int, coming: Iterable[float], horizon: float
) -> float:
    """Requests in the queue `horizon` seconds on. Each of `coming` is when one more replica serves."""
    queue, at, serving = waiting, 0.0, ready
    for then in (*sorted(each for each in coming if each < horizon), horizon):
        queue = max(0.0, queue + (rate - serving * speed) * (then - at))
        at, serving = then, serving + 1
    return queue
