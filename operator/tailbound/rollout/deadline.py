"""The deadline within which one more pod of a revision must get ready. Pure.

| pods of the revision | the deadline |
|---|---|
| more are ready than ever before | begins again |
| one is missing that has a place, or is still to be made | runs |
| one is missing, and all that are lack a place | stands still |
| none is missing | stands still |
| one is missing again, after none was for as long as the deadline | begins again, and runs |

It stands still and goes on where it stood. So a pod that gets ready and unready again and again, or that
finds a place and loses it, uses the deadline up.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tailbound.api.quantities import Duration
from tailbound.api.rollout import RolloutStatus


@dataclass(frozen=True)
class Pods:
    """The pods of one revision, as far as its deadline is concerned."""

    ready: int
    missing: bool
    """Fewer are ready than it needs."""
    lacks_room: bool
    """All that are missing lack nothing but a place."""


def begins(now: datetime) -> dict[str, datetime | None]:
    """The fields of a rollout whose deadline begins now, as a new step wants more pods."""
    return {"progress_at": now, "still_since": None}


OVER: Final[dict[str, datetime | None]] = {"progress_at": None, "still_since": None, "no_room_since": None}
"""The fields of a rollout that has ended, or waits for others to go: nothing of its own is awaited."""


def counted(rollout: RolloutStatus, pods: Pods, deadline: Duration, now: datetime) -> RolloutStatus:
    """The rollout with its deadline at the present time; it has begun."""
    assert rollout.progress_at is not None
    runs = pods.missing and not pods.lacks_room
    still, more = rollout.still_since, pods.ready > rollout.high_water
    if more:
        began = {**begins(now), "still_since": None if runs else now}
        return rollout.model_copy(update={**began, "high_water": pods.ready})
    if runs and still is not None:
        whole = rollout.no_room_since is None and now - still >= deadline.timedelta
        began = begins(now if whole else rollout.progress_at + (now - still))
    else:
        began = {"still_since": None if runs else still or now}
    return rollout.model_copy(update=began)


def ends_at(rollout: RolloutStatus, deadline: Duration) -> datetime | None:
    """When the deadline is over; None while it stands still, or has not begun."""
    if rollout.progress_at is None or rollout.still_since is not None:
        return None
    return rollout.progress_at + deadline.timedelta


def overdue(rollout: RolloutStatus, deadline: Duration, now: datetime) -> bool:
    """The deadline is over."""
    end = ends_at(rollout, deadline)
    return end is not None and now >= end
