"""Separate windows of time: how much of the evidence bad polls may be that follow each other closely.

A pod that is slow for ten seconds, or a database that all share, makes five polls bad, and bets take them for
five independent ones. So what one window adds to the evidence is limited to a share of what rejects, and
three windows are needed at least. Windows are disjoint, and each spans `WINDOW_SECONDS` or more: what touches
three of them has lasted for longer than the one in the middle. The limit that remains: what lasts for so long
that it touches three windows, 20 seconds at most, is taken for the candidate's own.
"""

from dataclasses import dataclass
from math import log
from typing import Final

WINDOW_SECONDS: Final = 10.0
"""No shared incident and no bad moment of a pod that is shorter rejects a candidate."""

EPISODE_SHARE: Final = 0.15
"""The fraction of bad requests from which on a window may be a bad moment of all pods."""

_PART_OF_A_POD: Final = 0.5
"""With fewer bad requests than this part of those of one pod, a window is no bad moment of a pod."""

_MORE_THAN_A_POD: Final = 1.5
"""Bad requests that exceed those of one pod by this factor are no bad moment of one pod."""

BROKEN_SHARE: Final = 0.9
"""A candidate of which this fraction fails from the first request on is broken, whatever stable does."""

_WINDOWS: Final = 2.05
"""How many windows reach the lowest threshold: two do not, three do, of two tests as well."""
_LOWEST: Final = log(1 / 0.0075) - 0.7
_LOWEST_LATER: Final = log(1 / 0.0025)
WINDOW_NATS: Final = _LOWEST / _WINDOWS
"""What a window adds at most to the evidence of all polls."""
WINDOW_NATS_LATER: Final = _LOWEST_LATER / _WINDOWS
"""What one window may add since a later step, which has less of alpha."""


@dataclass(frozen=True)
class Span:
    """The time span of a poll, in Unix time. Polls come in the order of their ends."""

    began: float
    at: float


@dataclass(frozen=True)
class Sides:
    """Who serves while a poll is taken."""

    stable: bool = True
    """Stable does, so that a bad moment of all would be seen at it too."""
    pods: int = 1
    """Pods of the candidate."""

    @property
    def episode(self) -> float:
        """The share of a window that may be bad and is no bad moment yet, as too little of it is."""
        return min(EPISODE_SHARE, _PART_OF_A_POD / max(self.pods, 1)) if self.stable else 0.0

    @property
    def outright(self) -> float:
        """The fraction of the first window that more than one pod must have caused, if there are several."""
        return max(EPISODE_SHARE, _MORE_THAN_A_POD / self.pods if self.pods > 1 else 0.0)


@dataclass(frozen=True)
class Window:
    """Polls of one span of time, and the levels that the bets had before them."""

    since: float
    """Unix time at which its first poll began."""
    until: float
    """Unix time of its last poll."""
    levels: tuple[tuple[float, ...], ...]
    """ln of the fortunes of each process: all values first, then each later step."""
    first: bool = False
    """Whether it holds the first requests that were ever judged."""
    polls: int = 0
    bad: float = 0.0
    """Sum of the polls' fractions of bad requests."""

    def holds(self, span: Span) -> bool:
        """Whether a poll belongs to it: it began before the window was over, or overlaps its polls."""
        return span.began < max(self.since + WINDOW_SECONDS, self.until)

    def after(self, fraction: float, span: Span) -> "Window":
        """The window with one more poll."""
        return Window(self.since, span.at, self.levels, self.first, self.polls + 1, self.bad + fraction)

    def limited(self, sides: Sides, *, failures: bool) -> bool:
        """Whether it may be no more than a bad moment; the first row that matches decides.

        | the window | stable serves | limited |
        |---|---|---|
        | the first one, and so much fails that the candidate is broken | any | no |
        | the first one, and so much is bad that it is bad outright | yes | no |
        | any, and less is bad than in a bad moment of a pod or of all | yes | no |
        | any other | any | yes |
        """
        share = self.bad / self.polls
        rules = (
            (self.first and failures and share >= BROKEN_SHARE, False),
            (self.first and sides.stable and share >= sides.outright, False),
            (share < sides.episode, False),
        )
        return next((limited for holds, limited in rules if holds), True)
