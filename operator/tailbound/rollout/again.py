"""When a rejected revision is tried again by itself: its cause may end without a change of the spec. Pure.

| why it was rejected | strategy | tried again |
|---|---|---|
| the evidence, a crash, a wrong file, a user … | any | when a user asks for a retry |
| no capacity, no image, a model that was not fetched, a failed write, a missing right | recreate | the same |
| the same | any other | after a minute, then after 2, 4 … 32 minutes, or when a user asks |

With recreate each try would be an outage.
"""

from datetime import datetime, timedelta
from typing import Final

from tailbound.api.conditions import PLACELESS, Reason
from tailbound.api.rollout import Strategy
from tailbound.objects.kubectl import Commands
from tailbound.objects.times import time_in, utc_seconds
from tailbound.rollout.model import RolloutInput

OUTSIDE: Final = PLACELESS | {
    Reason.UNSCHEDULABLE,
    Reason.QUOTA_EXCEEDED,
    Reason.RIGHT_MISSING,
    Reason.WRITE_FAILED,
    Reason.IMAGE_PULL_FAILED,
    Reason.SOURCE_NOT_FOUND,
    Reason.SOURCE_FORBIDDEN,
    Reason.SOURCE_UNREACHABLE,
    Reason.DISK_FAILED,
}
"""Causes outside of the revision."""
_FIRST: Final = timedelta(minutes=1)
_MOST_DOUBLINGS: Final = 5


def due_at(given: RolloutInput, name: str) -> datetime | None:
    """When this rejected revision is tried again; None: only when a user asks for it."""
    state = given.of(name)
    if state.rejection is None or given.spec.strategy is Strategy.RECREATE:
        return None
    if state.rejection.reason not in OUTSIDE or state.rejection.by is not None:
        return None
    rejected_at = time_in(state.rejection.at)
    if rejected_at is None:
        return None
    # A time that is still to come was written before the clock was set back.
    return min(rejected_at, given.time) + _FIRST * (1 << min(state.tries, _MOST_DOUBLINGS))


def due(given: RolloutInput, name: str) -> bool:
    """Whether the revision is to be tried again now."""
    at = due_at(given, name)
    return at is not None and given.time >= at


def remedy(at: datetime | None, commands: Commands) -> str:
    """The end of a message about a rejection: what leads to another try."""
    retry = commands.tailbound("retry")
    if at is None:
        return f"change the spec, or run {retry} to try it again"
    return f"it is tried again by itself at {utc_seconds(at)}, or at once by {retry}"
