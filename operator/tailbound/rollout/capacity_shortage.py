"""State, reason and message of a candidate that waits for capacity or for the end of an earlier canary.

Pure.
"""

from tailbound.api.conditions import Reason
from tailbound.api.rollout import Capacity, RolloutState
from tailbound.rollout import deadline, messages, plan
from tailbound.rollout.in_place import may_be_replaced_in_place, missing_capacity
from tailbound.rollout.model import RolloutInput
from tailbound.rollout.progress import RolloutProgress


def shortage(given: RolloutInput, rollout: RolloutProgress) -> tuple[Reason, str]:
    """The reason and message of a candidate that waits for capacity, and what helps."""
    lack = missing_capacity(given, rollout.revision, rollout.from_revision)
    if lack is None:
        return Reason.ROLLING_OUT, messages.in_place(rollout)
    return lack.reason, messages.no_capacity(rollout, lack) + _remedy(given, rollout)


def _remedy(given: RolloutInput, rollout: RolloutProgress) -> str:
    """What to do where the cluster has no capacity for the pods of both revisions."""
    base = rollout.from_revision
    if rollout.in_place:
        return messages.fewer_together(rollout, given.pods(base))
    if not may_be_replaced_in_place(given, base):
        return messages.only_pod(base, given.spec.progress_deadline, ready=given.ready(base) > 0)
    return messages.allow_in_place(base) if given.spec.capacity is Capacity.SURGE else ""


def starting(given: RolloutInput, rollout: RolloutProgress) -> str:
    """The message after the old pods have ended, while none of the new ones is ready."""
    lack = missing_capacity(given, rollout.revision)
    return messages.no_capacity(rollout, lack) if lack is not None else messages.starting(rollout)


def pending(given: RolloutInput, rollout: RolloutProgress) -> RolloutProgress:
    """The rollout that waits until an earlier canary has ended, for which the base may lack capacity."""
    base, reason, message = rollout.from_revision, Reason.PENDING, messages.pending(rollout)
    lack = missing_capacity(given, base)
    if lack is not None:
        reason, message = lack.reason, f"{message}; {messages.missing(lack)}{messages.ask_for_fewer()}"
    waiting = rollout.at(RolloutState.PENDING, plan.unless_manual(rollout, reason), message)
    return deadline.over(waiting)
