"""Which of a device's sizes the next run has, from the time that a run of each takes.

A run of a size takes as long whether requests fill it or not. So the run takes as much of what waits as gives
the most rows for its time. What is left over goes into the next run, which comes the sooner.
"""

from collections.abc import Sequence
from itertools import accumulate
from math import inf
from typing import Final

from tailbound_runtime.batch import Batching

NEAR: Final = 0.9
"""The largest size with this share of the best rate is taken: measured times have errors of this order."""


class RunSizes:
    """The sizes of one model's runs. Without measured times all that waits is taken.

    beside: seconds that a run takes beside the model's own, whatever its size
    """

    def __init__(self, batching: Batching) -> None:
        self._batching = batching
        self.beside = 0.0
        self._seconds: dict[int, float] = {}

    def measured(self, rows: int, seconds: float) -> None:
        """A run of this size takes so long alone."""
        if rows in self._batching.fills:
            self._seconds[rows] = seconds

    def seconds(self, rows: int) -> float:
        """The time of a run by its rows of requests; infinite if that is not known."""
        return self._seconds.get(rows + self._batching.padding(rows), inf)

    def count(self, waiting: Sequence[int]) -> int:
        """How many of these requests the next run takes: at least one, the first ones.

        waiting: rows of each, in their order
        """
        total = sum(waiting)
        rates = {size: min(size, total) / (seconds + self.beside) for size, seconds in self._seconds.items()}
        best = max(rates.values(), default=0.0)
        size = max((size for size, rate in rates.items() if rate >= NEAR * best), default=total)
        return max(1, sum(rows <= size for rows in accumulate(waiting)))
