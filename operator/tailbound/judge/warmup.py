"""The warm-up: the first requests of each new pod, which are not held against a revision.

Every step of a rollout brings new pods, and each of them is cold. Counters are kept by revision and not by
pod, so that it is not known which requests a new pod answered. As many bad requests as all new pods
together may answer cold are excused, until each of them has answered that many.
"""

from dataclasses import dataclass
from typing import Final

from tailbound.judge.evidence import Tally

_SPREAD: Final = 2.0
"""Requests do not come to all pods alike: after twice the mean hardly any pod has had fewer."""


@dataclass(frozen=True)
class JudgedCounts:
    """What is to be judged of a poll."""

    poll: Tally
    against_only: bool = False
    """Whether it may speak against the candidate only."""


@dataclass(frozen=True)
class Warmup:
    """What is left of the warm-up."""

    left: float = 0.0
    """Requests of the revision until it is over."""
    excused: float = 0.0
    """Bad ones that are still taken for those of cold pods."""

    def with_pods(self, new: int, ready: int, each: int) -> "Warmup":
        """The warm-up with `new` more pods, `ready` in all; the first `each` requests of each are cold."""
        if new <= 0 or each <= 0:
            return self
        spread = _SPREAD if ready > 1 else 1.0
        return Warmup(spread * each * ready, min(self.excused + each * new, each * ready))

    def after(self, poll: Tally) -> tuple["Warmup", JudgedCounts]:
        """The warm-up after a poll, and what is to be judged of the poll.

        A poll does not tell the order of its requests. So as many bad ones as can have been the warm-up's are
        taken for such where the others speak against the candidate, and nothing of the poll speaks for it.

        | the warm-up | the poll | what is judged |
        |---|---|---|
        | is over | any | all of it |
        | goes on | all bad requests are excused, and it does not end | nothing |
        | goes on | more bad requests, or it ends | what exceeds it, against the candidate; it is over |
        """
        if self.left <= 0:
            return self, JudgedCounts(poll)
        if poll.judged <= self.left and poll.bad <= self.excused:
            left = self.left - poll.judged
            return Warmup(left, min(self.excused - poll.bad, left)), JudgedCounts(Tally(), against_only=True)
        bad = max(0.0, poll.bad - self.excused)
        return Warmup(), JudgedCounts(Tally(max(poll.judged - self.excused, bad), bad), against_only=True)
