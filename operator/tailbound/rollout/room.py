"""What is told of a candidate that waits: for room, or for an earlier canary to end. Pure."""

from tailbound.api.conditions import Reason
from tailbound.api.rollout import Capacity, RolloutState, RolloutStatus
from tailbound.rollout import deadline, plan, words
from tailbound.rollout.places import gives_places, lack_of_room
from tailbound.rollout.situation import Situation


def waiting(now: Situation, rollout: RolloutStatus) -> RolloutStatus:
    """It waits for as long as it takes: only the cluster, or a pod that gives up its place, can make room."""
    lack = lack_of_room(now, rollout.revision, rollout.from_revision)
    if lack is None:
        reason, message = Reason.ROLLING_OUT, words.in_place(rollout)
    else:
        reason, message = lack.reason, words.no_room(rollout, lack) + _remedy(now, rollout)
    begun = rollout.state is RolloutState.PROMOTING or plan.by_hand(rollout)
    beside = RolloutState.ANALYSING if rollout.weight else RolloutState.STARTING
    state = RolloutState.PROMOTING if begun else beside
    return words.told(rollout, state, plan.unless_by_hand(rollout, reason), message)


def _remedy(now: Situation, rollout: RolloutStatus) -> str:
    """What to do where there is no room for the pods of both."""
    base = rollout.from_revision
    if rollout.in_place:
        return words.fewer_together(rollout, now.pods(base))
    if not gives_places(now, base):
        return words.only_pod(base, now.spec.progress_deadline, ready=now.ready(base) > 0)
    return words.let_give_up_places(base) if now.spec.capacity is Capacity.SURGE else ""


def starting(now: Situation, rollout: RolloutStatus) -> str:
    """The old pods have gone, and not one of the new ones is ready."""
    lack = lack_of_room(now, rollout.revision)
    return words.no_room(rollout, lack) if lack is not None else words.starting(rollout)


def pending(now: Situation, rollout: RolloutStatus) -> RolloutStatus:
    """It waits for an earlier canary to end, which the base may find no room to take everything back from."""
    base, reason, message = rollout.from_revision, Reason.PENDING, words.pending(rollout)
    lack = lack_of_room(now, base)
    if lack is not None:
        reason, message = lack.reason, f"{message}; {words.missing(lack)}{words.ask_for_fewer()}"
    waiting = words.told(rollout, RolloutState.PENDING, plan.unless_by_hand(rollout, reason), message)
    return waiting.model_copy(update=deadline.OVER)
