"""How long runs of the model take, as the last ones show. Seconds."""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import Final

from tailbound_runtime.batch import Batching, Mode

RUNS: Final = 32
"""The last runs, which the next one is expected to be like. With fewer, errors of the expectation refuse what
would be in time; with more, a change of speed is seen later."""
LEAST_RUNS: Final = 4
"""With fewer, nothing is known."""


@dataclass(frozen=True)
class Line:
    """A run takes `base`, and `per_row` for each of its rows."""

    base: float
    per_row: float

    def seconds(self, requests: int, rows: int, batching: Batching) -> float:
        """The time of the runs that these requests take, by their rows in all."""
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
        """The line through the runs that were measured; None until there are enough."""
        if self._line is None and len(self._runs) >= LEAST_RUNS:
            self._line = _through(self._runs)
        return self._line


def _through(runs: Collection[tuple[int, float]]) -> Line:
    """Theil's incomplete method: the median slope between runs with few rows and runs with many, and the
    median of what is left. One large run after a calm is enough to see how much longer it takes.
    """
    ordered = sorted(runs)
    half = len(ordered) // 2
    pairs = zip(ordered[:half], ordered[-half:], strict=True)
    slopes = [(long - short) / (many - few) for (few, short), (many, long) in pairs if many > few]
    per_row = max(0.0, median(slopes)) if slopes else 0.0
    return Line(max(0.0, median(seconds - per_row * rows for rows, seconds in ordered)), per_row)
