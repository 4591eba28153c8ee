"""What a policy can read of a fleet: by Prometheus, so `LAG` seconds old, or as it is."""

from typing import Final

import numpy as np

from e2e.bench.autoscale.fleet import Fleet

LAG: Final = 15
"""Age of every value that was scraped, in seconds."""
_FEW: Final = 20
"""Requests of which no 99th percentile is taken."""


def scraped(fleet: Fleet) -> int:
    """The second that scraped values describe."""
    return max(1, fleet.now - LAG)


def rate(fleet: Fleet, window: int) -> float:
    """Arrivals per second over the `window` seconds before the last scrape."""
    return rate_until(fleet, scraped(fleet), window)


def rate_until(fleet: Fleet, end: int, window: int) -> float:
    """Arrivals per second over the `window` seconds before `end`."""
    start = max(0, end - window)
    return (fleet.arrived[end] - fleet.arrived[start]) / (end - start)


def p99(fleet: Fleet, window: int) -> float | None:
    """99th percentile of the requests completed in the window; None for too few."""
    end = scraped(fleet)
    seen = [latency for second in fleet.latencies[max(0, end - window) : end] for latency in second]
    return float(np.percentile(seen, 99)) if len(seen) > _FEW else None


def busy(fleet: Fleet, window: int) -> float:
    """Share of the ready replicas' time that was spent on batches, counted at their start."""
    end = scraped(fleet)
    seconds = fleet.busy[max(0, end - window) : end]
    return sum(seconds) / max(1, len(seconds)) / max(1, fleet.ready)


def mean_in_flight(fleet: Fleet, window: int) -> float:
    """Over the last `window` seconds, fresh."""
    seen = fleet.in_flight[max(0, fleet.now + 1 - window) : fleet.now + 1]
    return sum(seen) / len(seen)
