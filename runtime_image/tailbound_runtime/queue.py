"""The requests that wait for the model, grouped by what may share a run. Knows no threads and no clock."""

import asyncio
from collections.abc import Callable, Hashable
from math import inf
from typing import Any

from tailbound_runtime.batch import Batching, to_take
from tailbound_runtime.signature import InferRequest
from tailbound_runtime.speed import Line


class Job:
    """One request on its way through the model.

    arrived: when it began to wait, in seconds of whatever clock the queue's caller uses
    future: what its caller waits for; done early if the caller has left
    late_at: when, on the same clock, it is too late for an answer; infinite for one that runs in any case
    """

    __slots__ = ("arrived", "future", "key", "late_at", "request")

    def __init__(
        self, request: InferRequest, arrived: float, future: asyncio.Future[Any], late_at: float = inf
    ) -> None:
        self.request = request
        self.arrived = arrived
        self.future = future
        self.late_at = late_at
        self.key = key_of(request)


def key_of(request: InferRequest) -> Hashable:
    """Equal for requests whose tensors fit together: names and datatypes are the model's for all of them."""
    inputs = request.inputs.items()
    if len(inputs) == 1:
        ((name, array),) = inputs
        return request.outputs, name, array.shape[1:]
    shapes = tuple((name, array.shape[1:]) for name, array in sorted(inputs))
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

    def remove_if(self, unwanted: Callable[[Job], bool]) -> list[Job]:
        """Take out the jobs of which this is true."""
        found = [job for group in self._groups.values() for job in group if unwanted(job)]
        for job in found:
            self._drop(job.key, [job])
        return found

    def seconds_with(self, request: InferRequest, line: Line) -> float:
        """The time of all runs for what waits and for one more request."""
        own = key_of(request)
        groups = {key: (len(group), _rows(group)) for key, group in self._groups.items()}
        count, rows = groups.pop(own, (0, 0))
        others = sum(line.seconds(*each, self._batching) for each in groups.values())
        return others + line.seconds(count + 1, rows + request.rows, self._batching)

    def full_at(self, request: InferRequest, now: float) -> float:
        """When the run that one more request would be in need not wait for others to join it."""
        group = self._groups.get(key_of(request), {})
        if not self._batching.shares or _rows(group) + request.rows >= self._batching.max_size:
            return now
        return (_oldest(group).arrived if group else now) + self._batching.delay_seconds

    def late_with(self, request: InferRequest) -> float:
        """The earliest `late_at` of the jobs that one more request would share its run with."""
        if not self._batching.shares:
            return inf
        total, earliest = 0, inf
        for job in self._groups.get(key_of(request), {}):
            if total + job.request.rows > self._batching.max_size:
                total, earliest = 0, inf
            total += job.request.rows
            earliest = min(earliest, job.late_at)
        return earliest if total + request.rows <= self._batching.max_size else inf

    def take(self, now: float, full_only: bool = False) -> list[Job]:
        """The jobs of the next run, oldest group first; empty while it is better to wait for more.

        full_only: however long they have waited
        """
        for key, group in sorted(self._groups.items(), key=lambda item: _oldest(item[1]).arrived):
            waited = -inf if full_only else now - _oldest(group).arrived
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


def _rows(group: dict[Job, None]) -> int:
    return sum(job.request.rows for job in group)


def _oldest(group: dict[Job, None]) -> Job:
    return next(iter(group))
