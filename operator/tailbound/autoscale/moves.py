"""How far the replicas move in one tick: up at once, down with patience and in small steps."""

from dataclasses import dataclass, replace
from typing import Final

HOLD: Final = 2
"""Ticks of which the highest need counts before anything is given up."""
PAUSE: Final = 3
"""Ticks between two steps down."""
_SHARE: Final = 5
"""One replica of so many is given up in a step, at least one."""
FACTOR, STEP = 2, 4
"""Growth in one tick: to this many times the replicas, or by this many, whichever is more."""


@dataclass(frozen=True)
class Patience:
    """The last ticks' needs, and the ticks to wait until the next step down."""

    needs: tuple[int, ...] = ()
    pause: int = 0

    def with_need(self, needed: int) -> "Patience":
        """After one more tick."""
        return Patience((*self.needs, needed)[-HOLD:], max(0, self.pause - 1))

    def stepped(self) -> "Patience":
        """After a step down."""
        return replace(self, pause=PAUSE)

    @property
    def floor(self) -> int:
        """Fewest replicas that would have done in every tick that is remembered."""
        return max(self.needs, default=0)

    @property
    def full(self) -> bool:
        """Whether enough ticks were seen to give anything up."""
        return len(self.needs) == HOLD and not self.pause


def grown(replicas: int, needed: int) -> int:
    """Replicas after a step up to `needed`."""
    return min(needed, max(FACTOR * replicas, replicas + STEP))


def shrunk(replicas: int, floor: int) -> int:
    """Replicas after a step down to `floor`."""
    return max(floor, replicas - max(1, replicas // _SHARE))
