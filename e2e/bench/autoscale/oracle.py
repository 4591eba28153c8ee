"""The fewest replicas, with every arrival known beforehand: ready at once, or after a start that is paid."""

from functools import cache

import numpy as np
import numpy.typing as npt

from e2e.bench.autoscale.fleet import HIGHEST, Floats, Plan, Server, draw, simulate

_MEASURED = (1, 2, 3, 5, 8, 12, 18, 26)
_HALVINGS = 6
_REACH = 2
"""Seconds to either side of which the busiest five-second mean counts."""


@cache
def frontier(server: Server) -> tuple[float, ...]:
    """Highest steady rate that 1, 2, 3, … replicas serve with the 99th percentile on target. Simulated."""
    seconds = 300 if server.base < 1 else 1500
    found = []
    for replicas in _MEASURED:
        low, high, top = 0.3, 1.0, replicas * server.capacity
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            arrivals = draw(np.full(seconds, middle * top), 3)
            outcome = simulate(arrivals, seconds, server, Plan(np.array([replicas])), replicas)
            good = outcome.p99 <= server.target and outcome.late_pct <= 1
            low, high = (middle, high) if good else (low, middle)
        found.append(low * top)
    known = [float(np.interp(k, _MEASURED, found)) for k in range(1, _MEASURED[-1] + 1)]
    return (*known, *(found[-1] * k / _MEASURED[-1] for k in range(_MEASURED[-1] + 1, HIGHEST + 1)))


def plan(arrivals: Floats, duration: int, server: Server) -> npt.NDArray[np.int64]:
    """Replicas by second."""
    counts = np.diff(np.searchsorted(arrivals, np.arange(duration + 1)))
    smooth = np.convolve(counts, np.ones(5) / 5, "same")
    busiest = np.maximum.reduce([np.roll(smooth, shift) for shift in range(-_REACH, _REACH + 1)])
    found = np.asarray(np.searchsorted(np.array(frontier(server)), busiest) + 1, dtype=np.int64)
    return np.minimum(found, HIGHEST)


def paid_hours(planned: npt.NDArray[np.int64], cold_start: float) -> float:
    """Fewest replica-hours that serve `planned` where a replica costs from the moment it is asked for.

    A replica that is not needed for a while is kept where that is shorter than a start, and else asked for
    again one start before it is needed. No rule that has to start its replicas serves the plan with fewer.
    """
    seconds = 0.0
    for number in range(1, int(planned.max()) + 1):
        needed = np.flatnonzero(planned >= number)
        gaps = np.diff(needed, prepend=-1) - 1
        seconds += len(needed) + float(np.minimum(gaps, cold_start).sum())
    return seconds / 3600
