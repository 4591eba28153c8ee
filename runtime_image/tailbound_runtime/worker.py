"""The inference thread: one model, one run at a time, with a bounded queue in front of it.

Runs happen outside the event loop so that health checks are answered while the model computes. A request's
failure stays in its own future.

What becomes of a request:

| when its deadline passes | then |
|---|---|
| waiting | it leaves the queue, and never runs |
| running | the run is stopped, so that the next one can start |
| done | nothing |
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tailbound_runtime.metrics import Metrics
from tailbound_runtime.session import Run, Session
from tailbound_runtime.tensors import Array


class QueueFullError(Exception):
    """As many requests wait as may; `waiting` says how many."""

    def __init__(self, waiting: int) -> None:
        super().__init__(waiting)
        self.waiting = waiting


class _Job:
    __slots__ = ("claim", "future", "inputs", "outputs", "run")

    def __init__(
        self, outputs: Sequence[str], inputs: Mapping[str, Array], future: asyncio.Future[Any]
    ) -> None:
        self.outputs = outputs
        self.inputs = inputs
        self.future = future
        self.run = Run()
        # Who takes it first decides: the thread, to run the job, or the loop, to drop it.
        self.claim = threading.Lock()


class InferenceThread:
    """Runs a session for callers on one event loop. All methods belong to that loop's thread."""

    def __init__(self, session: Session, queue_limit: int, metrics: Metrics) -> None:
        self._session = session
        self._queue_limit = queue_limit
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._admitted = 0  # waiting and running
        threading.Thread(target=self._work, name="inference", daemon=True).start()

    def check_room(self) -> None:
        """Raises QueueFullError if a request would be refused now."""
        if self._admitted > self._queue_limit:
            raise QueueFullError(self._admitted - 1)

    async def run(self, outputs: Sequence[str], inputs: Mapping[str, Array], deadline: float) -> list[Array]:
        """Infer. `deadline` is in the loop's time.

        Raises QueueFullError at once, TimeoutError at the deadline, ModelInputError and ModelFailedError.
        """
        self.check_room()
        job = _Job(outputs, inputs, self._loop.create_future())
        self._admit(1)
        self._jobs.put(job)
        timer = self._loop.call_at(deadline, self._expire, job)
        try:
            arrays: list[Array] = await job.future
            return arrays
        finally:
            timer.cancel()

    def _admit(self, change: int) -> None:
        self._admitted += change
        self._metrics.queue_depth.set(max(0, self._admitted - 1))

    def _expire(self, job: _Job) -> None:
        if job.claim.acquire(blocking=False):
            job.inputs = {}
            self._admit(-1)
        else:
            job.run.stop()
        if not job.future.done():
            job.future.set_exception(TimeoutError())

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job.claim.acquire(blocking=False):
                settle = self._infer(job)
                self._loop.call_soon_threadsafe(self._finish, job, settle)

    def _infer(self, job: _Job) -> Callable[[], None]:
        started = time.perf_counter()
        try:
            arrays = self._session.run(job.outputs, job.inputs, job.run)
        except Exception as error:  # belongs to this request alone, whatever it is
            failure = error
            return lambda: job.future.set_exception(failure)
        self._metrics.inference_seconds.observe(time.perf_counter() - started)
        return lambda: job.future.set_result(arrays)

    def _finish(self, job: _Job, settle: Callable[[], None]) -> None:
        self._admit(-1)
        if not job.future.done():
            settle()
