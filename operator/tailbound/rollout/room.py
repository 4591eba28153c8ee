"""What is told of a candidate that waits: for room, or for an earlier canary to end. Pure."""

from tailbound.api.conditions import Reason
from tailbound.api.rollout import Capacity, RolloutState, RolloutStatus
from tailbound.rollout import deadline, messages, plan
from tailbound.rollout.in_place import gives_places, lack_of_room
from tailbound.rollout.model import RolloutInput


def waiting(now: RolloutInput, rollout: RolloutStatus) -> RolloutStatus:
    """It waits for as long as it takes: only the cluster, or a pod that gives up its place, can make room."""
    lack = lack_of_room(now, rollout.revision, rollout.from_revision)
    if lack is None:
        reason, message = Reason.ROLLING_OUT, messages.in_place(rollout)
    else:
        reason, message = lack.reason, messages.no_room(rollout, lack) + _remedy(now, rollout)
    begun = rollout.state is RolloutState.PROMOTING or plan.promoted_manually(rollout)
    beside = RolloutState.ANALYSING if rollout.weight else RolloutState.STARTING
    state = RolloutState.PROMOTING if begun else beside
    return messages.told(rollout, state, plan.unless_manual(rollout, reason), message)


def _remedy(now: RolloutInput, rollout: RolloutStatus) -> str:
    """What to do where there is no room for the pods of both."""
    base = rollout.from_revision
    if rollout.in_place:
        return messages.fewer_together(rollout, now.pods(base))
    if not gives_places(now, base):
        return messages.only_pod(base, now.spec.progress_deadline, ready=now.ready(base) > 0)
    return messages.let_give_up_places(base) if now.spec.capacity is Capacity.SURGE else ""


def starting(now: RolloutInput, rollout: RolloutStatus) -> str:
    """The old pods have gone, and not one of the new ones is ready."""
    lack = lack_of_room(now, rollout.revision)
    return messages.no_room(rollout, lack) if lack is not None else messages.starting(rollout)


def pending(now: RolloutInput, rollout: RolloutStatus) -> RolloutStatus:
    """It waits for an earlier canary to end, which the base may find no room to take everything back from."""
    base, reason, message = rollout.from_revision, Reason.PENDING, messages.pending(rollout)
    lack = lack_of_room(now, base)
    if lack is not None:
        reason, message = lack.reason, f"{message}; {messages.missing(lack)}{messages.ask_for_fewer()}"
    waiting = messages.told(rollout, RolloutState.PENDING, plan.unless_manual(rollout, reason), message)
    return waiting.model_copy(update=deadline.OVER)
