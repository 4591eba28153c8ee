"""The fewest replicas that hold the target at a rate."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Final

from tailbound.autoscale.arithmetic import CeilingOf, Figure, Product, Quotient, Sum, Term, exact
from tailbound.autoscale.batch_time import BatchTimeModel
from tailbound.autoscale.latency import floor, idle, p99
from tailbound.autoscale.model import LatencyTarget

USAGE: Final = 0.88
"""Hard cap of the share of capacity that is planned with. Without it feedback can learn a capacity that no
replica has, from latencies that stay flat until the knee."""
MARGIN: Final = 0.8
"""Share of the target that the modelled P99 may take."""


@dataclass(frozen=True)
class ReplicaEstimate:
    """What turns a rate into replicas."""

    batch_times: BatchTimeModel
    objective: LatencyTarget
    correction: float
    dispersion: float
    """Variance over mean of the requests of a tick."""
    rows_per_request: float = 1.0

    @property
    def capacity(self) -> float:
        """Requests per second of one replica that works on full batches."""
        return self.batch_times.capacity(self.objective.max_batch) / self.rows_per_request

    @property
    def missed(self) -> float | None:
        """The 99th percentile of a replica that has nothing else to do, where that misses the target."""
        least = idle(self.batch_times, self.objective, self.rows_per_request)
        return least if least > self.objective.p99 else None

    def term(self, rate: Term) -> Term:
        """`needed` as arithmetic: pods by the usage, and those added for the latency."""
        usage = (
            Figure(self.capacity, "capacity"),
            Figure(USAGE, "usage"),
            Figure(self._correction, "correction"),
        )
        least = CeilingOf(Quotient(rate, Product(usage)))
        more = self.needed(rate.number) - exact(least)
        return Sum((least, Figure(more, "for latency"))) if more else least

    @property
    def _correction(self) -> float:
        return min(1.0, self.correction)

    def needed(self, rate: float) -> int:
        """Replicas for `rate` requests per second; 0 for none.

        Where even an idle replica misses the target, more replicas don't help, and the usage alone decides.
        """
        if rate <= 0:
            return 0
        least = max(1, ceil(rate / (self.capacity * USAGE * self._correction)))
        allowed = MARGIN * self.objective.p99
        # Rows that come together are as much more scattered as there are of them.
        dispersion = self.dispersion * self.rows_per_request
        if floor(self.batch_times, self.objective, dispersion) > allowed:
            return least
        rows = rate * self.rows_per_request / self.correction
        return fewest(
            least,
            lambda count: p99(count, rows, self.batch_times, self.objective, dispersion) <= allowed,
        )


def fewest(least: int, enough: Callable[[int], bool]) -> int:
    """The lowest number from `least` on that is enough, if all higher ones are. Looks at few of them.

    The number may be any: a server whose times are in another unit than its runtime says seems to need
    hundreds of thousands of replicas, and all services wait while one is sized.
    """
    below, step = least - 1, 1
    while not enough(below + step):
        below, step = below + step, 2 * step
    found = below + step
    while found - below > 1:
        middle = (below + found) // 2
        below, found = (below, middle) if enough(middle) else (middle, found)
    return found
