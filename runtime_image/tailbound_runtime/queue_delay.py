"""How long requests that could run now wait for others, learned within spec.batching.maxQueueDelay.

A run takes `base`, and `per_row` for each row. To wait for one more request, which comes after `gap` seconds,
costs each of the `waiting` ones that gap, and spares that one the end of the run that it would have met
and a run of its own: base - gap. The gaps between the last requests say how likely that is. Of all times to
wait, the one with the greatest gain is chosen:

| what is known | requests wait |
|---|---|
| too few runs or gaps | for the whole delay, as it is written |
| no gap that is left is short enough to gain by | not at all: the run begins |
| otherwise | for the time with the greatest gain, counted from the last arrival; at most for the delay |

So bursts are waited for to their end and not beyond, and what comes alone runs at once. Time is a parameter.
"""

from collections import deque
from typing import Final

from tailbound_runtime.speed import Line

GAPS: Final = 64
LEAST_GAPS: Final = 8
"""With fewer, nothing is known."""


class QueueDelay:
    """Knows the last gaps between the arrivals of requests."""

    def __init__(self) -> None:
        self._gaps: deque[float] = deque(maxlen=GAPS)
        self._last: float | None = None

    def came(self, now: float) -> None:
        """A request arrives."""
        if self._last is not None:
            self._gaps.append(now - self._last)
        self._last = now

    def seconds(self, waiting: int, line: Line | None, now: float) -> float | None:
        """How long so many requests gain by waiting for one more, from now on; None if that is not known."""
        if line is None or self._last is None or len(self._gaps) < LEAST_GAPS:
            return None
        passed = now - self._last
        return best_wait([gap - passed for gap in self._gaps if gap > passed], waiting, line.base)


def best_wait(gaps: list[float], waiting: int, base: float) -> float:
    """The time to wait that gains most if the next request comes after one of these gaps; 0 for none."""
    best_seconds = best_gain = met = 0.0
    ordered = sorted(gaps)
    for index, gap in enumerate(ordered):
        if gap >= base:
            break
        met += base - gap - waiting * gap
        gain = met - waiting * gap * (len(ordered) - index - 1)
        if gain > best_gain:
            best_seconds, best_gain = gap, gain
    return best_seconds
