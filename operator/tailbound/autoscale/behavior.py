"""How far the replicas move in one tick: up at once, down with patience and in small steps."""

from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from tailbound.autoscale.model import TICK

LEAST_HOLD: Final = 2
"""Ticks of which the highest need counts at least before anything is given up."""
_LONGEST_HOLD: Final = 60.0
"""Seconds after which a need counts no more in traffic that falls, however long a start takes."""
_PATIENCE: Final = 3
"""Starts for which a need counts while the traffic neither falls nor overloads the replicas."""
_START_AND_PATIENCE: Final = 240.0
"""Seconds of both together, at most: where a start takes minutes, a large spare of the forecast is kept."""
PAUSE: Final = 3
"""Ticks between two steps down."""
_SHARE: Final = 5
"""Replicas of which one is given up in a step; at least one is given up in all."""
FACTOR, STEP = 2, 4
"""Growth in one tick: to this many times the replicas, or by this many, whichever is more."""


@dataclass(frozen=True)
class StabilizationWindow:
    """The last ticks' needs, and the ticks to wait until the next step down."""

    needs: tuple[int, ...] = ()
    pause: int = 0
    hold: int = LEAST_HOLD
    """Ticks for which a replica must not have been needed, at least, before it is given up."""

    def with_need(self, needed: int, cold_start: float, moved: bool) -> "StabilizationWindow":
        """The window after one more tick; `moved` if what was needed before tells nothing of what will be.

        So it is where the traffic falls, and where replicas were overloaded and a queue has been worked off.
        In traffic that wavers a replica that is not needed now is soon needed again: to give it up would cost
        a start, and requests that wait for it.
        """
        least = hold(cold_start)
        longest = ceil(min(_PATIENCE * cold_start, _START_AND_PATIENCE - cold_start) / TICK)
        needs = (*self.needs, needed)[-(least if moved else max(least, longest)) :]
        return StabilizationWindow(needs, max(0, self.pause - 1), least)

    def stepped(self) -> "StabilizationWindow":
        """The window after a step down."""
        return replace(self, pause=PAUSE)

    @property
    def floor(self) -> int:
        """Fewest replicas that would have done in every tick that is remembered."""
        return max(self.needs, default=0)


def hold(cold_start: float) -> int:
    """Ticks for which a replica must not have been needed before it is given up, in traffic that falls.

    To keep a replica for as long as another takes to start costs what starting one again would. A rule that
    keeps it that long, and no longer, pays at most twice what foresight would have. Where a start takes
    minutes, the spare of the forecast is larger for that already.
    """
    return max(LEAST_HOLD, ceil(min(cold_start, _LONGEST_HOLD) / TICK))


def grown(replicas: int, needed: int) -> int:
    """Replicas after a step up to `needed`."""
    return min(needed, max(FACTOR * replicas, replicas + STEP))


def shrunk(replicas: int, floor: int) -> int:
    """Replicas after a step down to `floor`."""
    return max(floor, replicas - max(1, replicas // _SHARE))
