"""The 99th percentile of latency that a number of replicas gives at a steady rate."""

from math import erfc, exp, inf, log, pi, sqrt
from typing import Final

from tailbound.autoscale.batch_time import BatchTimeModel
from tailbound.autoscale.model import LatencyTarget

_SERVICE_SPREAD: Final = 0.14
"""Standard deviation over mean of the time of batches of one size."""
_NORMAL_99: Final = 2.33
_SLOWEST: Final = 1 + 0.7 * _NORMAL_99 * _SERVICE_SPREAD
"""What a slow batch takes, over what a mean one does."""
_MANY: Final = 1000
"""Replicas from which on Erlang's C is approximated: the time that it takes grows with their number."""


def waiting_chance(replicas: int, load: float) -> float:
    """Erlang's C: the chance that all of `replicas` are busy at `load`, in replicas' worth of work.

    Of many replicas it is what Halfin and Whitt found that it approaches.
    """
    if load >= replicas:
        return 1.0
    if replicas >= _MANY:
        free = (1 - load / replicas) * sqrt(replicas)
        busy_below = 0.5 * erfc(-free / sqrt(2))
        density = exp(-(free**2) / 2) / sqrt(2 * pi)
        return density / (density + free * busy_below)
    blocked = 1.0
    for servers in range(1, replicas + 1):
        blocked = load * blocked / (servers + load * blocked)
    return blocked / (1 - load / replicas * (1 - blocked))


def floor(batch_times: BatchTimeModel, objective: LatencyTarget, dispersion: float) -> float:
    """Seconds that the 99th percentile cannot fall below, however many replicas there are."""
    large = min(float(objective.max_batch), 1 + _NORMAL_99 * sqrt(dispersion))
    return objective.max_queue_delay + batch_times.seconds(large) * _SLOWEST


def idle(batch_times: BatchTimeModel, objective: LatencyTarget, rows: float) -> float:
    """Seconds of the 99th percentile of requests of `rows` that come one at a time."""
    return objective.max_queue_delay + batch_times.seconds(rows) * _SLOWEST


def p99(
    replicas: int, rate: float, batch_times: BatchTimeModel, objective: LatencyTarget, dispersion: float
) -> float:
    """Seconds, infinite where `rate`, in rows per second, is more than the replicas can do.

    A replica under load finds at its next batch what arrived during the last one. To that batch's time comes
    the wait for a replica to be free (a share of a batch), and the queue before full batches, as far as
    batches get full: Allen and Cunneen's approximation with an exponential tail. `dispersion` is the variance
    over the mean of counts of rows.
    """
    batch = objective.max_batch
    each, full = rate / replicas, batch_times.seconds(batch)
    usage = each * full / batch
    if usage >= 1:
        return inf
    typical = min(float(batch), max(1.0, each * batch_times.base / max(1e-9, 1 - each * batch_times.per_row)))
    large = min(float(batch), typical + _NORMAL_99 * sqrt(typical * dispersion))
    chance = waiting_chance(replicas, usage * replicas)
    queue = max(0.0, log(max(1e-9, 100 * chance)))
    variability = ((2 - 1 / batch) * dispersion / batch + _SERVICE_SPREAD**2) / 2
    return (
        objective.max_queue_delay
        + batch_times.seconds(large) * _SLOWEST
        + batch_times.seconds(typical) / replicas
        + typical / batch * queue * variability * full / (replicas * (1 - usage))
    )
