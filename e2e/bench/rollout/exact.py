"""What the absolute test does with independent requests, computed, not sampled: chance and time to stop."""

from dataclasses import dataclass
from math import exp, inf, log

import numpy as np
import numpy.typing as npt
from tailbound.judge.evidence import AT_LEAST_BAD, Tally, absolute


@dataclass(frozen=True)
class Boundary:
    """The least number of bad requests at which the test speaks, by number of requests up to `horizon`."""

    allowed: float
    threshold: float
    horizon: int
    limits: tuple[tuple[int, int], ...]
    """(bad, judged): that many bad requests speak as long as no more than `judged` were judged."""

    @classmethod
    def of(cls, allowed: float, threshold: float, horizon: int) -> "Boundary":
        """The boundary of the product's own test. `threshold` is ln E, the credit taken off already."""
        limits: list[tuple[int, int]] = []
        bad = AT_LEAST_BAD
        while not limits or limits[-1][1] < horizon:
            limits.append((bad, _last_that_speaks(bad, allowed, threshold, horizon)))
            bad += 1
        return cls(allowed, threshold, horizon, tuple(limits))


def _last_that_speaks(bad: int, allowed: float, threshold: float, horizon: int) -> int:
    """The most requests among which `bad` bad ones still speak; fewer than `bad` if they never do."""

    def speaks(judged: int) -> bool:
        return absolute(Tally(judged, bad), allowed) >= threshold

    low, high = bad - 1, horizon + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if speaks(middle) else (low, middle)
    return low


@dataclass(frozen=True)
class Stopping:
    """When the test speaks about requests of one true fraction, looking after every request."""

    by_count: npt.NDArray[np.float64]
    """Chance to stop at exactly that many requests; the index is the number."""
    open_ended: float
    """Bound on the chance to stop after the horizon (Ville); only true at or below the allowed fraction."""

    @property
    def chance(self) -> float:
        """Chance to stop within the horizon."""
        return float(self.by_count.sum())

    @property
    def mean(self) -> float:
        """Mean number of requests, of those that stop within the horizon."""
        return float((np.arange(len(self.by_count)) * self.by_count).sum() / self.by_count.sum())

    def quantile(self, share: float) -> float:
        """Number of requests by which `share` of all canaries are stopped."""
        reached = np.flatnonzero(np.cumsum(self.by_count) >= share)
        return float(reached[0]) if len(reached) else inf


def stopping(boundary: Boundary, fraction: float) -> Stopping:
    """Dynamic programming over the number of bad requests, one request at a time."""
    states = np.zeros(boundary.limits[-1][0] + 1)
    states[0] = 1.0
    stopped = np.zeros(boundary.horizon + 1)
    row = 0
    for judged in range(1, boundary.horizon + 1):
        while boundary.limits[row][1] < judged:
            row += 1
        edge = boundary.limits[row][0]
        states[1 : edge + 1] = states[1 : edge + 1] * (1 - fraction) + states[:edge] * fraction
        states[0] *= 1 - fraction
        stopped[judged] = states[edge]
        states[edge] = 0.0
    rest = sum(
        mass * exp(min(absolute(Tally(boundary.horizon, bad), boundary.allowed) - boundary.threshold, 0.0))
        for bad, mass in enumerate(states)
        if mass > 0
    )
    return Stopping(stopped, float(rest))


def floor(alpha: float, allowed: float, fraction: float) -> float:
    """Requests that no test at `alpha` can do with fewer of, on average, if it knew the true fraction."""
    divergence = fraction * log(fraction / allowed) + (1 - fraction) * log((1 - fraction) / (1 - allowed))
    return log(1 / alpha) / divergence
