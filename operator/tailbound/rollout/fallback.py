"""Which of its hardware classes the pods of a revision are for. Pure.

| the revision | a next class | what follows |
|---|---|---|
| has pods of another class with a node, and none of the present one | any | Move to that class |
| has a pod of the present class with a node, or none that waits for one | any | Stay |
| its pods wait for a node, for less than `after` | there is one | Wait |
| its pods wait for a node, for `after` | there is one | Move to it |
| its pods wait for a node | there is none | Stay |

The next class is the one behind in the order of preference; behind the last comes the first again, as nothing
is lost by another try. Beside a revision that serves, no class is tried that is less preferred than the one
that serves: an update waits for room there instead of moving the service away from it.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias


@dataclass(frozen=True)
class Waiting:
    """All pods of the revision wait for a node."""

    since: datetime
    why: str
    """What the scheduler says."""


@dataclass(frozen=True)
class ClassPlacement:
    """How the pods of a revision stand."""

    classes: tuple[str, ...]
    """In order of preference."""
    present: str
    """The class that its pods are for."""
    waiting: Waiting | None
    after: timedelta
    """For how long pods wait before the next class is tried."""
    running: str | None = None
    """The class of pods that have a node, where none of the present class has one."""
    serving: str | None = None
    """The class of another revision that serves; None if there is none."""

    returns: bool = False
    """Whether it was made to return to a preferred class: the class that serves is none to try."""

    @property
    def next(self) -> str | None:
        """The class to try next; None if there is none."""
        allowed = self.classes
        if self.serving in self.classes:
            allowed = self.classes[: self.classes.index(self.serving) + (not self.returns)]
        behind = self.classes[self.classes.index(self.present) + 1 :]
        order = [*(each for each in behind if each in allowed), *allowed]
        return next((each for each in order if each != self.present), None)


@dataclass(frozen=True)
class Stay:
    """Nothing changes."""


@dataclass(frozen=True)
class Wait:
    """Nothing changes before this time."""

    until: datetime


@dataclass(frozen=True)
class Move:
    """The pods are for this class from now on."""

    to: str
    why: str


FallbackDecision: TypeAlias = Stay | Wait | Move


def fall_back(placement: ClassPlacement, now: datetime) -> FallbackDecision:
    """The decision."""
    waiting, following = placement.waiting, placement.next
    if placement.running is not None:
        return Move(placement.running, f"pods found a node of HardwareClass {placement.running} first")
    if waiting is None or following is None:
        return Stay()
    until = waiting.since + placement.after
    if now < until:
        return Wait(until)
    return Move(following, f"no pod found a node of HardwareClass {placement.present}: {waiting.why}")
