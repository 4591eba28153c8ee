"""Derives the requests since the last poll from the raw counters of many gateway processes.

A counter starts again from zero with its process, which then has another start time, or after Envoy dropped
it because it was idle for long. Another decrease is a stale or foreign answer: it is no data, and taking it
for a new beginning would count thousands of requests that never were. The age of the earlier reading tells
which: no answer is as old as a reading that is settled, so what is lower than that reading began again.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Final

from tailbound.objects.unknown import Unknown

FELL: Final = Unknown("a counter went down though its process did not restart")
"""The increment of a counter that fell, until it is settled that the process has begun again."""


@dataclass(frozen=True)
class Classes:
    """Requests of one service and revision by class; each request is in exactly one."""

    good: int = 0
    slow: int = 0
    timed_out: int = 0
    failed: int = 0
    abandoned: int = 0
    shed: int = 0

    def __add__(self, other: "Classes") -> "Classes":
        return Classes(*(mine + theirs for mine, theirs in zip(self._values(), other._values(), strict=True)))

    def __sub__(self, other: "Classes") -> "Classes":
        return Classes(*(mine - theirs for mine, theirs in zip(self._values(), other._values(), strict=True)))

    def _values(self) -> tuple[int, ...]:
        return (self.good, self.slow, self.timed_out, self.failed, self.abandoned, self.shed)

    @property
    def falls_anywhere(self) -> bool:
        """Whether a difference of two readings has a class that went down."""
        return min(self._values()) < 0

    def since_reset(self, before: "Classes") -> "Classes":
        """The increments since `before`, where each class that is lower than before began again from zero."""
        pairs = zip(self._values(), before._values(), strict=True)
        return Classes(*(now if now < then else now - then for now, then in pairs))

    @property
    def with_latency(self) -> int:
        """Requests of which it is known whether they were in time."""
        return self.good + self.late

    @property
    def late(self) -> int:
        """Requests over the latency target, and those that were refused because they would have been."""
        return self.slow + self.timed_out + self.shed

    @property
    def answered(self) -> int:
        """Requests whose success is known: all but those that the client gave up and those that were shed."""
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

    def only(self, revisions: Set[str]) -> "Reading":
        """The reading without the counters of other revisions."""
        kept = {name: counted for name, counted in self.classes.items() if name in revisions}
        return replace(self, classes=kept)


def increment(before: Reading | None, now: Reading, revision: str, *, settled: bool) -> Classes | Unknown:
    """Requests of `revision` that one process counted between two readings.

    A process that was never read must have started after the counting did: `polls` sees to it. `settled` says
    that `now` cannot be an answer from before `before`. A counter that began again and has by now passed its
    former value looks like one that went on: as many requests as it had counted before are missed then.

    | before     | start time | counters | settled | increment                                            |
    |------------|------------|----------|---------|------------------------------------------------------|
    | never read | any        | any      | any     | all of them                                          |
    | read       | changed    | any      | any     | all of them                                          |
    | read       | the same   | none fell | any    | the difference                                       |
    | read       | the same   | one fell | yes     | of what fell all of it, of the others the difference |
    | read       | the same   | one fell | no      | Unknown                                              |
    """
    current = now.classes.get(revision, Classes())
    if before is None or before.start_time != now.start_time:
        return current
    counted = before.classes.get(revision, Classes())
    difference = current - counted
    if difference.falls_anywhere:
        return current.since_reset(counted) if settled else FELL
    return difference
