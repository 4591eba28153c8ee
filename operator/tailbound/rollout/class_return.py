"""The decision whether a service that fell back to a later hardware class returns to a preferred one. Pure.

First row that fits:

| obstacle | room in preferred classes | for how long, and how long after the last move | what follows |
|---|---|---|---|
| some | any | any | ReturnHold, with the obstacle |
| none | for fewer pods than the service has, in each | any | ReturnHold: there is no room |
| none | for all pods in one, or not known | less than `after`, or than the patience | ReturnHold: until |
| none | the same | longer | ReturnStart |

A return is a rollout of a new revision of the same spec. One that finds no room after all, or is rejected for
anything else, costs the pods that it made. So the patience doubles with each return that did not last, up to
a day; a return that lasted as long as it had been waited for ends that.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from tailbound.objects.unknown import Unknown

LONGEST_PATIENCE: Final = timedelta(days=1)
_MOST_DOUBLINGS: Final = 20


@dataclass(frozen=True)
class ReturnCase:
    """A service that serves from another class than its first one."""

    room: Mapping[str, int | Unknown]
    """By preferred class, the number of further pods for which its nodes have devices."""
    pods: int
    """Pods that the service has."""
    obstacle: str
    """What keeps a return from beginning, whatever the room; empty if nothing does."""
    room_since: datetime | None
    """Since when there has been room at each look; None if there was none at the last one."""
    last: datetime
    """When the present class was chosen, or the last return ended."""
    vain: int
    """Returns that did not last, one after the other."""
    after: timedelta
    """The time for which there must have been room."""
    failure: str = ""
    """The last of these returns, and why it did not last; empty if it is not on record."""


@dataclass(frozen=True)
class ReturnHold:
    """No return for now."""

    why: str
    room_since: datetime | None = None
    until: datetime | None = None
    """When it begins if nothing changes; None if something has to change."""


@dataclass(frozen=True)
class ReturnStart:
    """A return begins."""

    hardware_class: str
    """The class with room, to be said."""


ReturnDecision: TypeAlias = ReturnHold | ReturnStart


def patience(after: timedelta, vain: int) -> timedelta:
    """The time for which no return begins after the last move or return."""
    doubled: timedelta = after * 2 ** min(vain, _MOST_DOUBLINGS)
    return max(min(doubled, LONGEST_PATIENCE), after)


def lasted(after: timedelta, vain: int, began: datetime, ended: datetime) -> bool:
    """Whether what was promoted after `vain` failed returns served for as long as it had been waited for."""
    return ended - began >= patience(after, vain)


def decide(case: ReturnCase, now: datetime) -> ReturnDecision:
    """The decision."""
    if case.obstacle:
        return ReturnHold(case.obstacle)
    roomy = [name for name, room in case.room.items() if isinstance(room, Unknown) or room >= case.pods]
    if not roomy:
        return ReturnHold(f"there is no room for its {case.pods} pods in {_listed(case.room)}")
    since = min(case.room_since or now, now)
    last = case.last if case.last <= now else since
    until = max(since + case.after, last + patience(case.after, case.vain))
    if now < until:
        return ReturnHold(_waits(roomy[0], case), since, until)
    return ReturnStart(roomy[0])


def _listed(classes: Iterable[str]) -> str:
    """The classes without their room: that changes with pods of others, and each change would be a write."""
    return ", ".join(f"HardwareClass {name}" for name in classes)


def _waits(name: str, case: ReturnCase) -> str:
    room = case.room[name]
    known = f"there may be room in HardwareClass {name}" if isinstance(room, Unknown) else ""
    vain = f", and returns that did not last: {case.vain}" if case.vain else ""
    vain += f" (the last one, {case.failure})" if case.failure else ""
    return (known or f"HardwareClass {name} has room for its {case.pods} pods") + vain
