"""From raw counters of many gateway processes to what happened since the last poll.

A counter starts again from zero only when its process does, and a process that started again says so by its
start time. Every other decrease is a stale or foreign answer: it is no data, and taking it for a reset would
count thousands of requests that never were.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Unknown(Enum):
    """There is no knowing. Not zero, and not a number that could be added."""

    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Classes:
    """Requests of one service and revision by class; each request is in exactly one."""

    good: int = 0
    slow: int = 0
    timed_out: int = 0
    failed: int = 0
    abandoned: int = 0

    def __add__(self, other: "Classes") -> "Classes":
        return Classes(*(mine + theirs for mine, theirs in zip(self._values(), other._values(), strict=True)))

    def __sub__(self, other: "Classes") -> "Classes":
        return Classes(*(mine - theirs for mine, theirs in zip(self._values(), other._values(), strict=True)))

    def _values(self) -> tuple[int, ...]:
        return (self.good, self.slow, self.timed_out, self.failed, self.abandoned)

    @property
    def falls_anywhere(self) -> bool:
        """Whether a difference of two readings has a class that went down."""
        return min(self._values()) < 0

    @property
    def with_latency(self) -> int:
        """Requests of which it is known whether they were in time."""
        return self.good + self.slow + self.timed_out

    @property
    def late(self) -> int:
        """Requests over the latency target."""
        return self.slow + self.timed_out

    @property
    def answered(self) -> int:
        """Requests whose success is known: all but those that the client gave up."""
        return self.good + self.slow + self.timed_out + self.failed

    @property
    def errors(self) -> int:
        """Requests that failed, time-outs included."""
        return self.timed_out + self.failed


@dataclass(frozen=True)
class Reading:
    """What one process answered: when it started, and its counters by revision.

    A revision that is absent from an answer has counted nothing.
    """

    start_time: str
    classes: Mapping[str, Classes]


def increment(before: Reading | None, now: Reading, revision: str) -> Classes | Unknown:
    """Requests of `revision` that one process counted between two readings.

    A process that was never read must have started after the counting did: `polls` sees to it.

    | before            | start time | counters   | increment        |
    |-------------------|------------|------------|------------------|
    | never read        | any        | any        | all of them      |
    | read              | changed    | any        | all of them      |
    | read              | the same   | none fell  | the difference   |
    | read              | the same   | one fell   | Unknown          |
    """
    current = now.classes.get(revision, Classes())
    if before is None or before.start_time != now.start_time:
        return current
    difference = current - before.classes.get(revision, Classes())
    return Unknown.UNKNOWN if difference.falls_anywhere else difference
