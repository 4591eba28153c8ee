"""The deadline within which one more pod of a revision must get ready. Pure.

| pods of the revision | the deadline |
|---|---|
| more are ready than ever before | begins again |
| one is missing that has a node, or is still to be made | runs |
| one is missing, and all that are lack capacity | stands still |
| one is missing, and all that have a node download the model | stands still |
| none is missing | stands still |
| one is missing again, after none was for as long as the deadline | begins again, and runs |

It stands still and goes on where it stood. So a pod that gets ready and unready again and again, or that
finds capacity and loses it, uses the deadline up.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from tailbound.api.quantities import Duration
from tailbound.rollout.progress import RolloutProgress


@dataclass(frozen=True)
class DeadlinePods:
    """The pods of one revision, as far as its deadline is concerned."""

    ready: int
    missing: bool
    """Fewer are ready than it needs."""
    lacks_capacity: bool
    """Whether all that are missing lack capacity, and nothing else."""
    downloads: bool = False
    """Whether all that have a node are downloading: the fetch container ends once no more bytes come."""


def begun(rollout: RolloutProgress, now: datetime) -> RolloutProgress:
    """The rollout with a deadline that begins now, as a new step wants more pods."""
    return replace(rollout, progress_at=now, still_since=None)


def over(rollout: RolloutProgress) -> RolloutProgress:
    """The rollout without a deadline: it has ended, or waits for others to go, and awaits no pods."""
    return replace(rollout, progress_at=None, still_since=None, no_capacity_since=None)


def counted(
    rollout: RolloutProgress, pods: DeadlinePods, deadline: Duration, now: datetime
) -> RolloutProgress:
    """The rollout with its deadline at the present time; it has begun."""
    assert rollout.progress_at is not None
    runs = pods.missing and not pods.lacks_capacity and not pods.downloads
    still = rollout.still_since
    if pods.ready > rollout.high_water:
        more = replace(begun(rollout, now), high_water=pods.ready)
        return more if runs else replace(more, still_since=now)
    if not runs:
        return replace(rollout, still_since=still or now)
    if still is None:
        return rollout
    whole = rollout.no_capacity_since is None and now - still >= deadline.timedelta
    return begun(rollout, now if whole else rollout.progress_at + (now - still))


def ends_at(rollout: RolloutProgress, deadline: Duration) -> datetime | None:
    """When the deadline is over; None while it stands still, or has not begun."""
    if rollout.progress_at is None or rollout.still_since is not None:
        return None
    return rollout.progress_at + deadline.timedelta


def overdue(rollout: RolloutProgress, deadline: Duration, now: datetime) -> bool:
    """The deadline is over."""
    end = ends_at(rollout, deadline)
    return end is not None and now >= end
