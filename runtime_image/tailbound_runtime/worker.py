"""The inference thread: one model, one run at a time, with a bounded queue in front of it.

Runs happen outside the event loop so that health checks are answered while the model computes. A request's
failure stays in its own future: if a run that several requests share fails, each gets a run of its own.

What becomes of a request:

| when its deadline passes or its caller leaves | then |
|---|---|
| waiting | it leaves the queue, and never runs |
| running, others in the same run | the run goes on for them |
| running, no other left in the run | the run is stopped, so that the next one can start |
| done | nothing |

A run of one request that fails, though its tensors agree with the model's signature, casts a doubt on the
model: it has to show that it still does what it did when it was warmed up.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Final

from tailbound_runtime.batch import Batching, join, split
from tailbound_runtime.errors import ModelBrokenError, ModelFailedError
from tailbound_runtime.metrics import Metrics, Stage
from tailbound_runtime.protocol import InferRequest
from tailbound_runtime.queue import Job, Queue
from tailbound_runtime.session import Run, Session
from tailbound_runtime.shedding import Bound, Shedding, WouldBeLateError
from tailbound_runtime.tensors import Array

CHECK_SECONDS: Final = 1.0


class QueueFullError(Exception):
    """As many requests wait as may; `waiting` says how many."""

    def __init__(self, waiting: int) -> None:
        super().__init__(waiting)
        self.waiting = waiting


class InferenceThread:
    """Runs a session for callers on one event loop, whose thread all public methods belong to."""

    def __init__(
        self,
        session: Session,
        batching: Batching,
        queue_limit: int,
        metrics: Metrics,
        broken: Callable[[ModelBrokenError], None],
    ) -> None:
        """`broken` is called on the loop, each time that the model was found to fail on everything."""
        self._session = session
        self._broken = broken
        self._checked = -CHECK_SECONDS
        self._batching = batching
        self._queue_limit = queue_limit
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        # Both threads use what follows, under this lock.
        self._changed = threading.Condition()
        self._queue = Queue(batching)
        self._shedding = Shedding(self._queue, batching)
        self._running: Sequence[Job] = ()
        self._run = Run()
        metrics.queue_depth.set_function(self._depth)
        threading.Thread(target=self._work, name="inference", daemon=True).start()

    def check_room(self) -> None:
        """Raises QueueFullError if a request would be refused now."""
        waiting = self._depth()
        # A request that finds the model idle does not wait, though it passes through the queue.
        if waiting >= self._queue_limit + (0 if self._running else 1):
            raise QueueFullError(self._queue_limit)

    async def run(self, request: InferRequest, deadline: float, bound: Bound | None = None) -> list[Array]:
        """Infer. `deadline` is in the loop's time, `bound` in that of `time.perf_counter`.

        Raises QueueFullError at once, WouldBeLateError at once or later, TimeoutError at the deadline,
        ModelInputError and ModelFailedError.
        """
        self.check_room()
        future: asyncio.Future[list[Array]] = self._loop.create_future()
        now = time.perf_counter()
        with self._changed:
            job = Job(request, now, future, self._shedding.late_at(request, bound, now))
            self._queue.put(job)
            self._changed.notify()
        timers = [self._loop.call_at(deadline, _expire, future)]
        if job.late_at < inf:  # also while the run before it does not end
            timers.append(self._loop.call_later(max(0.0, job.late_at - now), self._give_up, job))
        try:
            return await future
        except (TimeoutError, asyncio.CancelledError):
            self._leave(job)
            raise
        finally:
            for timer in timers:
                timer.cancel()

    def _give_up(self, job: Job) -> None:
        with self._changed:
            if self._queue.remove(job):
                _fail(job, WouldBeLateError())

    def _depth(self) -> int:
        return len(self._queue)

    def _leave(self, job: Job) -> None:
        with self._changed:
            if not self._queue.remove(job) and all(other.future.done() for other in self._running):
                self._run.stop()

    def _work(self) -> None:
        while True:
            jobs = self._next()
            self._infer(jobs)

    def _next(self) -> list[Job]:
        """Wait for the jobs of the next run."""
        with self._changed:
            self._running = ()
            self._shedding.ends()
            while not (jobs := self._take(time.perf_counter())):
                due = self._queue.due()
                self._changed.wait(None if due is None else max(0.0, due - time.perf_counter()))
            self._begin(jobs)
            return jobs

    def _take(self, now: float) -> list[Job]:
        late = self._shedding.give_up(now)
        if late:
            self._settle([partial(_fail, job, WouldBeLateError()) for job in late])
        return self._queue.take(now)

    def _begin(self, jobs: list[Job]) -> None:
        """What is stopped from now on is the run of these jobs."""
        self._running = jobs
        self._run = Run()
        self._shedding.begins(sum(job.request.rows for job in jobs), time.perf_counter())

    def _infer(self, jobs: list[Job]) -> None:
        try:
            answers = self._share(jobs)
        except Exception as error:  # belongs to these requests alone, whatever it is
            if len(jobs) == 1:
                self._settle([partial(_fail, jobs[0], error)])
                if isinstance(error, ModelFailedError) and not self._run.stopped:
                    self._check(time.monotonic())
            else:
                self._one_by_one(jobs)
        else:
            self._settle([partial(_answer, job, arrays) for job, arrays in zip(jobs, answers, strict=True)])

    def _check(self, now: float) -> None:
        """Now and then: a model that fails on some tensors only must not have twice the work of it."""
        if now - self._checked < CHECK_SECONDS:
            return
        self._checked = now
        try:
            self._session.check()
        except ModelBrokenError as error:
            self._settle([partial(self._broken, error)])

    def _one_by_one(self, jobs: Sequence[Job]) -> None:
        """Each job gets its own result, unless nobody waits for it any more."""
        self._metrics.batches.split.inc()
        for job in jobs:
            with self._changed:
                wanted = not job.future.done()
                self._begin([job])
            if wanted:
                self._infer([job])

    def _share(self, jobs: Sequence[Job]) -> list[list[Array]]:
        """The answers to these jobs, from one run."""
        requests = [job.request for job in jobs]
        rows = [request.rows for request in requests]
        padding = self._batching.padding(sum(rows))
        inputs = join([request.inputs for request in requests], padding)
        started = time.perf_counter()
        arrays = self._session.run(requests[0].outputs, inputs, self._run)
        seconds = time.perf_counter() - started
        answers = split(arrays, rows, padding)
        with self._changed:
            self._shedding.ran(sum(rows), seconds)
        self._metrics.batches.ran(len(jobs), sum(rows), seconds)
        for job in jobs:
            self._metrics.stage_seconds[Stage.QUEUE].observe(started - job.arrived)
            self._metrics.stage_seconds[Stage.INFERENCE].observe(seconds)
        return answers

    def _settle(self, outcomes: Sequence[Callable[[], None]]) -> None:
        with suppress(RuntimeError):  # the loop is closed: the process ends, and no caller is left
            self._loop.call_soon_threadsafe(_call_all, outcomes)


def _call_all(outcomes: Sequence[Callable[[], None]]) -> None:
    for outcome in outcomes:
        outcome()


def _answer(job: Job, arrays: list[Array]) -> None:
    if not job.future.done():
        job.future.set_result(arrays)


def _fail(job: Job, error: Exception) -> None:
    if not job.future.done():
        job.future.set_exception(error)


def _expire(future: asyncio.Future[list[Array]]) -> None:
    if not future.done():
        future.set_exception(TimeoutError())
