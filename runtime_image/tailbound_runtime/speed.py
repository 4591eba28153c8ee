"""How long runs of the model take, as the last ones show. Seconds."""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import Final

from tailbound_runtime.batch import Batching, Mode

RUNS: Final = 32
"""The last runs, which the next one is expected to be like. With half as many, the error of the expectation
refuses one request in a hundred at 85 % load; with twice as many a change of speed is seen later."""
LEAST_RUNS: Final = 4
"""With fewer, nothing is known."""


@dataclass(frozen=True)
class Line:
    """A run takes `base`, and `per_row` for each of its rows."""

    base: float
    per_row: float

    def seconds(self, requests: int, rows: int, batching: Batching) -> float:
        """The time of the runs that these requests take, with so many rows in all."""
        if not batching.shares:
            return requests * self.base + rows * self.per_row
        runs = max(1, ceil(rows / batching.max_size))
        padded = runs * batching.max_size if batching.mode is Mode.STATIC else rows
        return runs * self.base + padded * self.per_row


class Speed:
    """A line through medians of the last runs: a few that were slow by accident do not move it."""

    def __init__(self) -> None:
        self._runs: deque[tuple[int, float]] = deque(maxlen=RUNS)
        self._line: Line | None = None

    def ran(self, rows: int, seconds: float) -> None:
        """Take in one run; rows with the padding."""
        self._runs.append((rows, seconds))
        self._line = None

    def line(self) -> Line | None:
        """None until enough runs were measured."""
        if self._line is None and len(self._runs) >= LEAST_RUNS:
            self._line = _through(self._runs)
        return self._line


def _through(runs: Collection[tuple[int, float]]) -> Line:
    """Through the median of the runs with few rows and that of the runs with many.

    They are split halfway between the fewest and the most: one large run after a calm is enough to see how
    much longer it takes.
    """
    sizes = [rows for rows, _ in runs]
    middle = (min(sizes) + max(sizes)) / 2
    few, short = _medians([run for run in runs if run[0] <= middle])
    if max(sizes) <= middle:
        return Line(short, 0.0)
    many, long = _medians([run for run in runs if run[0] > middle])
    per_row = max(0.0, (long - short) / (many - few))
    return Line(max(0.0, short - per_row * few), per_row)


def _medians(runs: Sequence[tuple[int, float]]) -> tuple[float, float]:
    return median(rows for rows, _ in runs), median(seconds for _, seconds in runs)
