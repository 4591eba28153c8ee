"""When requests are given up that are asked for and not answered yet, also while a run does not end.

One timer serves all of them, for the one that is due first: a timer for each would cost more than its queue,
and each time that the loop wakes up, the model's run loses what it has in the caches. Times are those of
`perf_counter`.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from tailbound_runtime.queue import Job
from tailbound_runtime.shedding import WouldBeLateError

LEAST_SECONDS: Final = 0.01
"""Between two looks for requests that are due."""


class Deadlines:
    """The loop's own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, withdraw: Callable[[Job], bool]) -> None:
        """`withdraw` takes a job out of its queue; False if it runs by then."""
        self._loop = loop
        self._withdraw = withdraw
        self._due: dict[Job, tuple[float, float]] = {}  # its deadline, and until then its `late_at`
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = inf

    def add(self, job: Job, deadline: float) -> None:
        """Fail this job unless it is done in time: with TimeoutError at the deadline, and with
        WouldBeLateError if it still waits at its `late_at`.
        """
        late_at = job.late_at
        self._due[job] = deadline, late_at
        due = deadline if deadline < late_at else late_at
        if due < self._looks_at:
            self._look(due)

    def done(self, job: Job) -> None:
        """Forget a job that is answered, or whose caller has left."""
        self._due.pop(job, None)

    def done_all(self, jobs: Sequence[Job]) -> None:
        """Forget these, of which some may have been forgotten before."""
        forget = self._due.pop
        for job in jobs:
            forget(job, None)

    def close(self) -> None:
        """There are no more jobs."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._looks_at = None, inf

    def _look(self, due: float) -> None:
        """Look for jobs that are due at this time, or a little later."""
        now = time.perf_counter()
        at = max(due, now + LEAST_SECONDS)
        if at < self._looks_at:  # else requests that come again and again would put it off for ever
            self.close()
            self._looks_at = at
            self._timer = self._loop.call_later(at - now, self._fail_due)

    def _fail_due(self) -> None:
        self.close()
        now = time.perf_counter()
        for job, (deadline, late_at) in tuple(self._due.items()):
            if job.is_over:  # by what the caller of one before it did
                continue
            if deadline <= now:
                self.done(job)
                job.end(None, TimeoutError())
            elif late_at <= now:
                self._due[job] = deadline, inf
                if self._withdraw(job):
                    self.done(job)
                    job.end(None, WouldBeLateError())
        if self._due:
            self._look(min(map(min, self._due.values())))
