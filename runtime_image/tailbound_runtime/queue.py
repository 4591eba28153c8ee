"""The requests that wait for the model, grouped by what may share a run. Knows no threads and no clock."""

from collections.abc import Callable, Hashable
from math import inf

import structlog

from tailbound_runtime.batch import Batching, Mode, to_take
from tailbound_runtime.queue_delay import QueueDelay
from tailbound_runtime.run_sizes import RunSizes
from tailbound_runtime.signature import InferRequest
from tailbound_runtime.speed import Line
from tailbound_runtime.tensors import Array

log = structlog.get_logger(__name__)


class Job:
    """One request on its way through the model.

    arrived: when it began to wait, in seconds of whatever clock the queue's caller uses
    is_over: whether it has an outcome, or its caller has left; set by the thread of the loop
    arrays, error: its outcome; both None before, and one of them after
    level: of its priority, 1 being the first
    ran: when a run took it, began and ended, on the clock of the inference thread; None before
    late_at: when, on the same clock, it is too late for an answer; infinite for one that runs in any case
    """

    __slots__ = (
        "_then",
        "arrays",
        "arrived",
        "error",
        "is_over",
        "key",
        "late_at",
        "level",
        "ran",
        "request",
    )

    def __init__(
        self,
        request: InferRequest,
        arrived: float,
        late_at: float = inf,
        level: int = 1,
        then: "Callable[[Job], None] | None" = None,
    ) -> None:
        """`then` is called once with the job when its outcome is there, and not if its caller has left."""
        self.request = request
        self.arrived = arrived
        self._then = then
        self.is_over = False
        self.arrays: list[Array] | None = None
        self.error: Exception | None = None
        self.late_at = late_at
        self.level = level
        self.ran: tuple[float, float, float] | None = None
        self.key = key_of(request)

    def outcome(self) -> list[Array]:
        """What the model answered, once the job is over. Raises its error."""
        if self.arrays is None:
            assert self.error is not None
            raise self.error
        return self.arrays

    def end(self, arrays: list[Array] | None, error: Exception | None = None) -> None:
        """Tell the outcome to the caller who still waits for it. What fails there concerns no other job."""
        if self.is_over:
            return
        then = self._then
        self.is_over, self._then = True, None  # as by `leave`
        self.arrays, self.error = arrays, error
        try:
            if then is not None:
                then(self)
        except Exception:
            log.exception("an answer failed unexpectedly")

    def leave(self) -> None:
        """Forget the caller, who has left."""
        self.is_over = True
        self._then = None  # who waits for a job has it: both would be garbage in a cycle


def key_of(request: InferRequest) -> Hashable:
    """Equal for requests whose tensors fit together: names and datatypes are the model's for all of them."""
    inputs = request.inputs.items()
    if len(inputs) == 1:
        ((name, array),) = inputs
        return request.outputs, name, array.shape[1:]
    shapes = tuple((name, array.shape[1:]) for name, array in sorted(inputs))
    return request.outputs, shapes


class QueueFullError(Exception):
    """The queue is full; `waiting` is the number of requests in it."""

    def __init__(self, waiting: int) -> None:
        super().__init__(waiting)
        self.waiting = waiting


Group = dict[Job, None]


class Queue:
    """Waiting jobs, by level within each group, and oldest first within each level.

    length: how many they are
    bounded: how many of them may be too late
    learns: whether how long it waits for more follows from how long runs take
    """

    def __init__(self, batching: Batching) -> None:
        self._batching = batching
        self.learns = batching.mode is Mode.DYNAMIC and batching.delay_seconds > 0
        self._delay = QueueDelay() if self.learns else None
        self._groups: dict[Hashable, Group] = {}
        self.length = self.bounded = 0

    def put(self, job: Job) -> None:
        """Add a job at the end of its level in its group."""
        group = self._groups.get(job.key)
        if group is None:
            group = self._groups[job.key] = {}
        overtakes = self._batching.levels > 1 and group and next(reversed(group)).level > job.level
        group[job] = None
        if overtakes:
            self._groups[job.key] = dict.fromkeys(sorted(group, key=_level))
        self.length += 1
        self.bounded += job.late_at != inf
        if self._delay is not None:
            self._delay.came(job.arrived)

    def last_behind(self, level: int) -> Job | None:
        """The job that would go last, if it is of a later level than this one."""
        last = max(
            (next(reversed(group)) for group in self._groups.values()),
            key=lambda job: (job.level, job.arrived),
            default=None,
        )
        return last if last is not None and last.level > level else None

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

    def seconds_with(self, request: InferRequest, line: Line, level: int = 1) -> float:
        """The time of all runs for what waits up to this level, and for one more request."""
        own = key_of(request)
        ahead = {key: self._up_to(level, group) for key, group in self._groups.items()}
        groups = {key: (len(group), _rows(group)) for key, group in ahead.items() if group}
        count, rows = groups.pop(own, (0, 0))
        others = sum(line.seconds(*each, self._batching) for each in groups.values())
        return others + line.seconds(count + 1, rows + request.rows, self._batching)

    def full_at(self, request: InferRequest, now: float, line: Line) -> float:
        """When the run that one more request would be in need not wait for others to join it."""
        group = self._groups.get(key_of(request), {})
        if not self._batching.shares or _rows(group) + request.rows >= self._batching.max_size:
            return now
        latest = (self._since(group) if group else now) + self._batching.delay_seconds
        return min(latest, now + self._waits(len(group) + 1, line, now))

    def late_with(self, request: InferRequest, level: int = 1) -> float:
        """The earliest `late_at` of the jobs that one more request would share its run with."""
        if not self._batching.shares:
            return inf
        total, earliest = 0, inf
        for job in self._up_to(level, self._groups.get(key_of(request), {})):
            if total + job.request.rows > self._batching.max_size:
                total, earliest = 0, inf
            total += job.request.rows
            earliest = min(earliest, job.late_at)
        return earliest if total + request.rows <= self._batching.max_size else inf

    def take(
        self, now: float, line: Line | None = None, full_only: bool = False, sizes: RunSizes | None = None
    ) -> list[Job]:
        """The jobs of the next run, of the first level and the oldest group; empty while it waits for more.

        line: how long runs take; None if that is not known
        full_only: however long they have waited
        sizes: those of a device; None: any
        """
        for key, group in sorted(self._groups.items(), key=lambda item: self._turn(item[1])):
            over = not full_only and now >= self._begins(group, line, now)
            waited = inf if over else -inf
            count = to_take((job.request.rows for job in group), waited, self._batching)
            if count and sizes is not None:
                count = sizes.count([job.request.rows for job, _ in zip(group, range(count), strict=False)])
            if count:
                jobs = [job for job, _ in zip(group, range(count), strict=False)]
                self._drop(key, jobs)
                return jobs
        return []

    def due(self, now: float, line: Line | None = None) -> float | None:
        """When a job will have waited for long enough, if no other comes; None while the queue is empty."""
        return min((self._begins(group, line, now) for group in self._groups.values()), default=None)

    def _begins(self, group: Group, line: Line | None, now: float) -> float:
        """When these jobs are to run, if no other comes: in time for each of them, with a run to spare."""
        latest = self._since(group) + self._batching.delay_seconds
        if line is not None and self._delay is not None and self.bounded:
            run = line.seconds(len(group), _rows(group), self._batching)
            latest = min(latest, min(job.late_at for job in group) - 2 * run)
        return min(latest, now + self._waits(len(group), line, now))

    def _waits(self, jobs: int, line: Line | None, now: float) -> float:
        """How long a number of jobs gains by waiting on; infinite if that is not known."""
        seconds = None if self._delay is None else self._delay.seconds(jobs, line, now)
        return inf if seconds is None else seconds

    def _turn(self, group: Group) -> tuple[int, float]:
        return next(iter(group)).level, self._since(group)

    def _since(self, group: Group) -> float:
        """When the oldest of these jobs arrived."""
        if self._batching.levels > 1:
            return min(job.arrived for job in group)
        return next(iter(group)).arrived

    def _up_to(self, level: int, group: Group) -> Group:
        if self._batching.levels > 1:
            return {job: None for job in group if job.level <= level}
        return group

    def _drop(self, key: Hashable, jobs: list[Job]) -> None:
        group = self._groups[key]
        for job in jobs:
            del group[job]
            self.bounded -= job.late_at != inf
        self.length -= len(jobs)
        if not group:
            del self._groups[key]


def _rows(group: Group) -> int:
    return sum(job.request.rows for job in group)


def _level(job: Job) -> int:
    return job.level
