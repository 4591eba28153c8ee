"""The inference threads: one model with a bounded queue in front of it, and one thread for each of its lanes.

Runs happen outside the event loop so that health checks are answered while the model computes. A request's
failure is its own: a run that several requests share and that fails is halved until the requests
that make it fail are alone. What such a request brought is remembered for a while, and refused without a run.

A model on a CPU has one lane. On a device it has more: one joins the tensors of its requests, or takes the
outputs apart, while another one's run computes. While a run goes on, others begin with full batches only: two
half-full ones would take as long as one after the other, and longer than one that is full. Shortly before the
run is expected to end the next one begins with what waits, so that the device has its tensors by then.

What becomes of a request:

| when its deadline passes or its caller leaves | then |
|---|---|
| waiting | it leaves the queue, and never runs |
| running, others in the same run | the run goes on for them |
| running, no other left in the run | the run is stopped, so that the next one can start |
| done | nothing |

A request that finds the queue full is refused; or one of a later level of priority is, if one waits.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Final

from tailbound_runtime.batch import Batching, Staging, join, split
from tailbound_runtime.deadlines import Deadlines
from tailbound_runtime.engine import Engine, Run
from tailbound_runtime.errors import ModelBrokenError, ModelFailedError, ModelInputError, TooLargeError
from tailbound_runtime.faults import Faults
from tailbound_runtime.inline import SHORT_SECONDS, Inline
from tailbound_runtime.lane import Lane, settle
from tailbound_runtime.metrics import Metrics, no_device, nothing_waits
from tailbound_runtime.queue import Job, Queue, QueueFullError
from tailbound_runtime.refused import Refused
from tailbound_runtime.run_sizes import RunSizes
from tailbound_runtime.scheduling import level_of
from tailbound_runtime.shedding import Bound, Shedding, WouldBeLateError
from tailbound_runtime.signature import InferRequest
from tailbound_runtime.speed import Line
from tailbound_runtime.tensors import Array

SMOOTHING: Final = 0.1
EARLY_SECONDS: Final = 0.0005
"""A lane begins this long before it has to: it may have to wait for the interpreter."""


class InferenceThread:
    """Runs an engine for callers on one event loop. All public methods belong to its thread."""

    def __init__(
        self,
        engine: Engine,
        batching: Batching,
        queue_limit: int,
        metrics: Metrics,
        broken: Callable[[ModelBrokenError], None],
    ) -> None:
        """`broken` is called on the loop, each time that the model was found to fail on everything."""
        self._engine = engine
        self._batching = batching
        self._queue_limit = queue_limit
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._faults = Faults(engine, self._loop, broken)
        # All threads use what follows, under this lock.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._queue = Queue(batching)
        self._shedding = Shedding(self._queue, batching, engine.lanes)
        self._lanes = [Lane(number, Staging(batching, engine.buffer)) for number in range(engine.lanes)]
        self._sizes = RunSizes(batching)
        self._running: set[Lane] = set()
        self._full = batching.max_size if batching.shares else 1  # requests that fill a run, at most
        self._refused = Refused()
        self._warming = threading.Lock()  # one lane after the other, for their times
        self._deadlines = Deadlines(self._loop, partial(_withdraw, self._changed, self._queue))
        self._inline = Inline(batching, engine.inlines, engine.on_device, engine.warm_seconds)
        self._closed = False
        metrics.queue_depth = self._depth
        metrics.device_memory = engine.memory
        for lane in self._lanes:
            threading.Thread(target=self._work, args=(lane,), name="inference", daemon=True).start()

    def check_room(self) -> None:
        """Raises QueueFullError if a request would be refused now."""
        if not self.is_full:
            return
        if self._batching.levels > 1:  # its body will tell its own
            with self._changed:
                if self._queue.last_behind(1) is not None:
                    return
        raise QueueFullError(self._queue_limit)

    @property
    def is_full(self) -> bool:
        """Whether there is no room for one more request, unless it displaces another."""
        # A request that finds the model idle does not wait, though it passes through the queue.
        return self._queue.length >= self._queue_limit + (0 if self._running else 1)

    async def run(self, request: InferRequest, deadline: float, bound: Bound | None = None) -> list[Array]:
        """`here` if that may be, and else `wait`."""
        answers = self.here(request)
        return await self.wait(request, deadline, bound) if answers is None else answers

    def here(self, request: InferRequest, since: float | None = None) -> list[Array] | None:
        """The answer here and now, from a short run: another thread would take longer to wake up.

        `since` is when the request's tensors were there, if that is not now, in the time of `perf_counter`.

        None if it is not known to be short, if the thread has a run that is not short, or if the run failed
        or took too long: then `wait`.
        """
        started = time.perf_counter()
        if not self._inline.allows(request, started) or self._busy(started):
            return None
        run = self._inline.begins(started)
        try:
            arrays = self._engine.run(request.outputs, request.inputs, run)
        except (ModelInputError, ModelFailedError):
            return None
        finally:
            ended = time.perf_counter()
            self._inline.ends(ended - started)
        self._count((started - since if since else 0.0,), request.rows, ended - started)
        return arrays

    def runs_here(self, now: float) -> bool:
        """Whether runs of small requests are made `here`, at a time of `perf_counter`."""
        return self._inline.is_open(now) and not self._busy(now)

    def _busy(self, now: float) -> bool:
        """Whether a thread has a run that is not short. Short ones would only move each other there."""
        return bool(self._running) and any(now - lane.begun > SHORT_SECONDS for lane in tuple(self._running))

    async def wait(
        self,
        request: InferRequest,
        deadline: float,
        bound: Bound | None = None,
        ran: Callable[[Job], None] | None = None,
    ) -> list[Array]:
        """The answer from the thread. `deadline` and `bound` are in the time of `perf_counter`.

        `ran` gets the job once it has run.

        Raises QueueFullError at once, WouldBeLateError at once or later, TimeoutError at the deadline,
        ModelInputError and ModelFailedError.
        """
        over = self._loop.create_future()
        job = self.ask(request, deadline, bound, partial(_wake, over))
        try:
            await over
            arrays = job.outcome()
        except (Exception, asyncio.CancelledError):
            self.leave(job)
            raise
        if ran is not None:
            ran(job)
        return arrays

    def ask(
        self, request: InferRequest, deadline: float, bound: Bound | None, then: Callable[[Job], None]
    ) -> Job:
        """Queue a request; `then` is called on the loop with its job once the outcome is in there.

        That is never before this returns, and never after the caller has called `leave`.

        Raises QueueFullError, WouldBeLateError and ModelInputError at once.
        """
        now, levels = time.perf_counter(), self._batching.levels
        level = level_of(request.priority, levels) if levels > 1 else 1
        with self._lock:
            displaced = self._make_room(level) if self.is_full else None
            known = self._refused.why(request, now) if self._refused.any else None
            if known is not None:
                raise ModelInputError(known)
            late_at = inf if bound is None else self._shedding.late_at(request, bound, now, level)
            job = Job(request, now, late_at, level, then)
            if displaced is not None and self._queue.remove(displaced):
                # Not now: its caller may ask for something else at once.
                self._loop.call_soon(self._fail, displaced, QueueFullError(self._queue_limit))
            self._queue.put(job)
            if len(self._running) < len(self._lanes) and self._may_begin(now):
                self._changed.notify()
        self._deadlines.add(job, deadline)
        return job

    def _may_begin(self, now: float) -> bool:
        """Whether an idle lane looks at the queue: no lane runs, a full batch waits, or a run is due."""
        if not self._running:
            return True
        soon = self._soon()
        return self._queue.length >= self._full or (soon is not None and now >= soon)

    def _make_room(self, level: int) -> Job:
        """The job that has to go for one of this level. Raises QueueFullError if none may."""
        last = self._queue.last_behind(level)
        if last is None:
            raise QueueFullError(self._queue_limit)
        return last

    def _fail(self, job: Job, error: Exception) -> None:
        self._deadlines.done(job)
        job.end(None, error)

    def _answer_all(self, jobs: Sequence[Job], answers: Sequence[list[Array]]) -> None:
        self._deadlines.done_all(jobs)
        for job, arrays in zip(jobs, answers, strict=True):
            job.end(arrays)

    def _depth(self) -> int:
        return self._queue.length

    def leave(self, job: Job) -> None:
        """The caller of this job has gone, or waits no longer."""
        job.leave()
        self._deadlines.done(job)
        with self._changed:
            if self._queue.remove(job):
                return
            for lane in self._lanes:
                if job in lane.jobs and all(other.is_over for other in lane.jobs):
                    lane.run.stop()

    def close(self) -> None:
        """End the threads, once no caller asks for anything any more."""
        self._inline.close()
        if self._metrics.queue_depth == self._depth:  # else the model that was loaded since has them
            self._metrics.queue_depth = nothing_waits
            self._metrics.device_memory = no_device
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._settle([self._deadlines.close])

    async def warm(self) -> int:
        """Wait until each thread has warmed the model up for itself, on a device; the number of threads."""
        for lane in self._lanes:
            await asyncio.wrap_future(lane.warm)
        return len(self._lanes)

    def _work(self, lane: Lane) -> None:
        # On a device: what its libraries prepare for a size, they prepare for each thread.
        with self._warming:
            for rows in self._batching.sizes() if len(self._lanes) > 1 else ():
                with suppress(ModelInputError, ModelFailedError):  # as real requests will tell
                    self._engine.warm_up(rows)
                    self._sizes.measured(rows, self._engine.warm_seconds)
        lane.warm.set_result(None)
        while self._next(lane):
            self._infer(lane)

    def _next(self, lane: Lane) -> bool:
        """Wait for the jobs of the next run, which then begins; False if there will be none."""
        with self._changed:
            lane.jobs = ()
            self._running.discard(lane)
            self._shedding.ends(lane.number)
            # One time for both: a run that is to begin in between would not be waited for.
            while not (jobs := self._take(now := time.perf_counter())):
                if self._closed:
                    return False
                self._changed.wait(self._wait_seconds(now))
            self._begin(lane, jobs)
            if len(self._lanes) > 1:
                self._changed.notify()  # another lane is to begin before this run ends
        return True

    def _wait_seconds(self, now: float) -> float | None:
        """Seconds until a lane without a run is to look again, if nothing changes; None: it need not.

        A lane that ends its run looks by itself.
        """
        due = self._soon() if self._running else self._queue.due(now, self._line())
        if due is None or (self._running and due <= now):
            return None
        return max(0.0, due - now)

    def _take(self, now: float) -> list[Job]:
        late = self._shedding.give_up(now)
        if late:
            self._settle([partial(self._fail, job, WouldBeLateError()) for job in late])
        soon = self._soon()
        early = soon is not None and now >= soon
        full_only = bool(self._running) and not early
        return self._queue.take(now, self._line(), full_only, self._sizes)

    def _line(self) -> Line | None:
        """The time of runs, where the queue waits by it: computing it takes as long as a small run."""
        return self._shedding.line() if self._queue.learns else None

    def _soon(self) -> float | None:
        """When the next run is to be begun, before the one that goes on ends; None if that is not known.

        While several go on, the device has enough to do.
        """
        if len(self._running) != 1:
            return None
        (lane,) = self._running
        return None if lane.ends == inf else lane.ends - self._sizes.beside - EARLY_SECONDS

    def _begin(self, lane: Lane, jobs: Sequence[Job]) -> None:
        """What is stopped from now on is the run of these jobs."""
        lane.begun = time.perf_counter()
        lane.jobs = jobs
        lane.run = Run()
        self._running.add(lane)
        rows = sum(job.request.rows for job in jobs)
        lane.ends = lane.begun + self._sizes.beside + self._sizes.seconds(rows)
        self._shedding.begins(rows, lane.begun, lane.number)

    def _infer(self, lane: Lane) -> None:
        """One run for the jobs of this lane; if it fails, one for each half, and so on."""
        jobs = lane.jobs
        try:
            answers = self._share(lane)
        except Exception as error:  # belongs to these requests alone, whatever it is
            if len(jobs) > 1:
                self._halve(lane)
            else:
                self._settle([partial(self._fail, jobs[0], self._fault(lane, error))])
        else:
            self._settle([partial(self._answer_all, jobs, answers)])

    def _fault(self, lane: Lane, error: Exception) -> Exception:
        """What the caller of a run of one job that failed gets."""
        (job,) = lane.jobs
        if lane.run.stopped:
            return error
        error = self._faults.cause(error, alone=len(self._running) == 1)
        refused = isinstance(error, ModelInputError) and not isinstance(error, TooLargeError)
        if refused and self._batching.shares:
            with self._changed:
                self._refused.add(job.request, str(error), time.perf_counter())
        return error

    def _halve(self, lane: Lane) -> None:
        """Run each half by itself, without the jobs whose callers have left."""
        self._metrics.batches.split()
        jobs = lane.jobs
        middle = len(jobs) // 2
        for half in (jobs[:middle], jobs[middle:]):
            with self._changed:
                wanted = [job for job in half if not job.is_over]
                self._begin(lane, wanted)
            if wanted:
                self._infer(lane)

    def _share(self, lane: Lane) -> list[list[Array]]:
        """The answers to the jobs of this lane, from one run."""
        jobs = lane.jobs
        requests = [job.request for job in jobs]
        rows = [request.rows for request in requests]
        padding = self._batching.padding(sum(rows))
        taken = time.perf_counter()
        inputs = join([request.inputs for request in requests], padding, lane.staging)
        started, begun = time.perf_counter(), self._inline.time()
        arrays = self._engine.run(requests[0].outputs, inputs, lane.run)
        self._sizes.beside += SMOOTHING * (started - taken - self._sizes.beside)
        ended, computed = time.perf_counter(), self._inline.time() - begun
        answers = split(arrays, rows, padding)
        times = (taken, started, ended)
        for job in jobs:
            job.ran = times
        seconds = ended - started
        batching = started - taken + time.perf_counter() - ended
        self._inline.ran(computed)
        self._count([taken - job.arrived for job in jobs], sum(rows), seconds, batching)
        return answers

    def _count(self, waited: Sequence[float], rows: int, seconds: float, batching: float = 0.0) -> None:
        """Count a run that succeeded, and the seconds that each of its requests waited."""
        with self._lock:
            self._shedding.ran(rows, seconds)
        self._metrics.batches.ran(len(waited), rows, seconds)
        self._metrics.shared(waited, batching, seconds)

    def _settle(self, outcomes: Sequence[Callable[[], None]]) -> None:
        settle(self._loop, outcomes)


def _wake(waiting: asyncio.Future[None], _: Job) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _withdraw(changed: threading.Condition, queue: Queue, job: Job) -> bool:
    with changed:
        return queue.remove(job)
