"""The problem of a revision or of its pods."""

from dataclasses import dataclass

from tailbound.api.conditions import PLACELESS, Reason


@dataclass(frozen=True)
class Problem:
    """The problem that keeps a revision or its pods from going on, as a reason and a sentence."""

    reason: Reason
    message: str

    @property
    def lacks_capacity(self) -> bool:
        """Nothing is wrong with the pods themselves: the capacity for them is missing."""
        return self.reason in (Reason.UNSCHEDULABLE, Reason.QUOTA_EXCEEDED)

    @property
    def placeless(self) -> bool:
        """No node has the capacity for the pods, and the end of other pods frees none."""
        return self.reason in PLACELESS


@dataclass(frozen=True)
class CapacityShortage:
    """Pods of a revision that lack capacity."""

    revision: str
    missing: int
    pods: int
    """The number that its Deployment asks for."""
    reason: Reason
    message: str
