"""Which requests are refused because they would be answered late anyway.

A request may come with a bound on its latency; without one it waits, however long. With one, first row that
fits:

| the request | then |
|---|---|
| finds nothing running and nothing waiting | it runs, whatever is expected of it |
| comes before the speed of the model is known | it waits, however long |
| would be late even if it ran alone and at once: the bound cannot be reached | it waits, however long |
| is expected to be late behind what waits already | it is refused as it arrives |
| would make its run so long that one which waits in it already is late | it is refused as it arrives |
| has waited until it would be late even if it ran alone from now on | it is refused before a run takes it |
| otherwise | it runs |

What waits at later levels of priority is not ahead of a request, and does not count for it.

The first row lets every wrong expectation mend itself: a server that refuses becomes idle and measures again.
"""

from dataclasses import dataclass
from math import inf

import structlog

from tailbound_runtime.batch import Batching
from tailbound_runtime.queue import Job, Queue
from tailbound_runtime.signature import InferRequest
from tailbound_runtime.speed import Line, Speed

log = structlog.get_logger(__name__)


class WouldBeLateError(Exception):
    """The request is refused: its answer would be late."""


@dataclass(frozen=True)
class Bound:
    """An answer is wanted within `seconds` of `since`, a time of the queue's clock."""

    since: float
    seconds: float


@dataclass(frozen=True)
class _Running:
    since: float
    rows: int


class Shedding:
    """Decides on the requests of one queue, from the runs that it is given. Reads no clock.

    A model with several lanes has as many runs at once, which are the slower for it: a run's time is measured
    beside the others.
    """

    def __init__(self, queue: Queue, batching: Batching, lanes: int = 1) -> None:
        self._queue = queue
        self._batching = batching
        self._speed = Speed()
        self._lanes = lanes
        self._running: dict[int, _Running] = {}
        self._logged = False

    def line(self) -> Line | None:
        """How long runs take; None if too few were measured."""
        return self._speed.line()

    def begins(self, rows: int, now: float, lane: int = 0) -> None:
        """Count a run that begins in this lane, by its rows."""
        self._running[lane] = _Running(now, rows)

    def ends(self, lane: int = 0) -> None:
        """No run goes on in this lane any more."""
        self._running.pop(lane, None)

    def ran(self, rows: int, seconds: float) -> None:
        """A run has succeeded."""
        self._speed.ran(rows + self._batching.padding(rows), seconds)

    def late_at(self, request: InferRequest, bound: Bound | None, now: float, level: int = 1) -> float:
        """Until when a request that arrives now may wait; infinite for one that is to run in any case.

        Raises WouldBeLateError.
        """
        if bound is None:
            return inf
        line = self._speed.line()
        idle = not self._running and not self._queue.length
        if line is None or idle or not self._reachable(request, bound, line):
            return inf
        ends = bound.since + bound.seconds
        begins = max(self._free(line, now), self._queue.full_at(request, now, line))
        seconds = max(
            self._queue.seconds_with(request, line, level) / self._lanes, self._least(request, line)
        )
        if begins + seconds > min(ends, self._queue.late_with(request, level)):
            raise WouldBeLateError
        return ends

    def give_up(self, now: float) -> list[Job]:
        """The jobs that have waited for too long, taken out of the queue."""
        if not self._queue.bounded:  # to look at all that wait takes as long as a few requests
            return []
        line = self._speed.line() or Line(0.0, 0.0)
        return self._queue.remove_if(lambda job: now + self._least(job.request, line) > job.late_at)

    def _reachable(self, request: InferRequest, bound: Bound, line: Line) -> bool:
        least = self._least(request, line)
        if least > bound.seconds and not self._logged:
            self._logged = True
            log.warning(
                "the latency target cannot be reached, and nothing is refused for it: one run takes longer",
                run_seconds=round(least, 4),
                target_seconds=bound.seconds,
            )
        return least <= bound.seconds

    def _least(self, request: InferRequest, line: Line) -> float:
        """Seconds of a run of this request alone."""
        return line.seconds(1, request.rows, self._batching)

    def _free(self, line: Line, now: float) -> float:
        """When a lane is expected to be free; now if its run takes longer than expected."""
        if len(self._running) < self._lanes:
            return now
        ends = (one.since + line.seconds(1, one.rows, self._batching) for one in self._running.values())
        return max(now, min(ends))
