"""The requests that wait for the model, grouped by what may share a run. Knows no threads and no clock."""

import asyncio
from collections.abc import Hashable
from typing import Any

from tailbound_runtime.batch import Batching, to_take
from tailbound_runtime.protocol import InferRequest


class Job:
    """One request on its way through the model.

    arrived: when it began to wait, in seconds of whatever clock the queue's caller uses
    future: what its caller waits for; done early if the caller has left
    """

    __slots__ = ("arrived", "future", "key", "request")

    def __init__(self, request: InferRequest, arrived: float, future: asyncio.Future[Any]) -> None:
        self.request = request
        self.arrived = arrived
        self.future = future
        self.key = _key(request)


def _key(request: InferRequest) -> Hashable:
    """Equal for requests whose tensors fit together: names and datatypes are the model's for all of them."""
    shapes = tuple((name, array.shape[1:]) for name, array in sorted(request.inputs.items()))
    return request.outputs, shapes


class Queue:
    """Waiting jobs, oldest first within each group."""

    def __init__(self, batching: Batching) -> None:
        self._batching = batching
        self._groups: dict[Hashable, dict[Job, None]] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def put(self, job: Job) -> None:
        """Add a job at the end of its group."""
        self._groups.setdefault(job.key, {})[job] = None
        self._length += 1

    def remove(self, job: Job) -> bool:
        """Take out a job whose caller has left; False if it is not here any more."""
        group = self._groups.get(job.key, {})
        if job not in group:
            return False
        self._drop(job.key, [job])
        return True

    def take(self, now: float) -> list[Job]:
        """The jobs of the next run, oldest group first; empty while it is better to wait for more."""
        for key, group in sorted(self._groups.items(), key=lambda item: _oldest(item[1]).arrived):
            waited = now - _oldest(group).arrived
            count = to_take((job.request.rows for job in group), waited, self._batching)
            if count:
                jobs = [job for job, _ in zip(group, range(count), strict=False)]
                self._drop(key, jobs)
                return jobs
        return []

    def due(self) -> float | None:
        """When a job will have waited for long enough, if no other comes; None while the queue is empty."""
        oldest = (_oldest(group).arrived for group in self._groups.values())
        return min((arrived + self._batching.delay_seconds for arrived in oldest), default=None)

    def _drop(self, key: Hashable, jobs: list[Job]) -> None:
        group = self._groups[key]
        for job in jobs:
            del group[job]
        self._length -= len(jobs)
        if not group:
            del self._groups[key]


def _oldest(group: dict[Job, None]) -> Job:
    return next(iter(group))
