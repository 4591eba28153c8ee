"""Whose place a candidate's pods take: `spec.rollout.capacity`, for clusters without a spare device. Pure.

| capacity | the base is to have | the candidate's pods lack capacity | they come |
|---|---|---|---|
| any | one pod, and it is not dead | any | beside it: the only copy is not given up |
| inPlace | more, or its only one is dead | any | in place of the base's |
| surge, auto | the same | not in this rollout | beside those of the base |
| surge, auto | the same, for another hardware class | any | beside those of the base |
| auto | the same | now, or earlier in this rollout | in place of the base's |
| surge | the same, and some are dead or given up | the same | in place of those alone |

In place the two have together as many pods as the base alone is to have, and all but one of them are ready
at any time, if those of the base were. Dead pods are not ready and stuck at something, or not ready for
`progressDeadline`, or of a revision that is given up as lost. One place changes hands after the other (first
row that fits):

| what holds | pods of the base |
|---|---|
| the candidate's pods are refused or fit no node, so that a place is of no use to them | all |
| it has fewer than the candidate leaves it, or as many | what the candidate leaves it, one at least |
| some of its pods are dead | as many as are not: they carry nothing |
| capacity is surge | as it has |
| one of the candidate's pods in their new places is not ready | as it has |
| one of its pods is still ending | as it has |
| gateways do not send the candidate the share of its places yet | as it has |
| otherwise | one less: one that is not ready, if there is any |

The weight of the candidate climbs with its ready pods up to that of the step; the base's last pod stays until
the promotion, as the one to return to. Only a dead one goes before, where it holds the only place.
"""

from dataclasses import replace
from datetime import datetime

from tailbound.api.rollout import Capacity
from tailbound.rollout.model import RolloutInput
from tailbound.rollout.problem import CapacityShortage
from tailbound.rollout.progress import RolloutProgress
from tailbound.rollout.sizing import ALL
from tailbound.rollout.weights import weight_of


def settled_on(given: RolloutInput, rollout: RolloutProgress) -> RolloutProgress:
    """The rollout, with whether the candidate's pods replace those of the base in place."""
    capacity, base = given.spec.capacity, rollout.from_revision
    decided = capacity is Capacity.IN_PLACE or (
        (rollout.in_place or _full(given, rollout))
        and (capacity is Capacity.AUTO or _gives_up_dead(given, rollout))
        and not given.elsewhere
    )
    return replace(rollout, in_place=decided and may_be_replaced_in_place(given, base))


def may_be_replaced_in_place(given: RolloutInput, name: str) -> bool:
    """Whether the revision has more than one pod, or its only one is dead."""
    state = given.of(name)
    return given.pods(name) > 1 or (
        state.deployed and not state.ready and dead(given, name) >= state.replicas
    )


def _gives_up_dead(given: RolloutInput, rollout: RolloutProgress) -> bool:
    """Some of the base's pods are dead, or were, and have given up their places in this rollout."""
    base = rollout.from_revision
    given_up = rollout.in_place and given.of(base).replicas < given.pods(base)
    return given_up or dead(given, base) > 0


def dead(given: RolloutInput, name: str) -> int:
    """Pods of it that are not ready, and that nothing says will be."""
    state, since = given.of(name), given.time - given.spec.progress_deadline.timedelta
    return state.stuck + sum(unready <= since for unready in state.unready_since)


def dead_at(given: RolloutInput, name: str) -> datetime | None:
    """When the next one of its pods counts as dead, unless it gets ready; None if there is none."""
    ends = (unready + given.spec.progress_deadline.timedelta for unready in given.of(name).unready_since)
    return min((end for end in ends if end > given.time), default=None)


def most_in_place(given: RolloutInput, name: str) -> int:
    """Places that this revision gives up, if it gives any: all but the last, or the only one."""
    return max(given.pods(name) - 1, 1)


def _full(given: RolloutInput, rollout: RolloutProgress) -> bool:
    """There is no capacity, and none is to come from the pods of an earlier canary, which are ending."""
    own = {rollout.revision, rollout.from_revision}
    others = any(state.pods for name, state in given.revisions.items() if name not in own)
    return rollout.no_capacity_since is not None and not others


def missing_capacity(given: RolloutInput, *names: str) -> CapacityShortage | None:
    """The lack of the first of these revisions some of whose pods lack capacity, if there is any."""
    for name in names:
        state = given.of(name)
        if state.trouble is not None and state.trouble.lacks_capacity:
            missing = max(state.replicas - state.ready, 0)
            return CapacityShortage(
                name, missing, state.replicas, state.trouble.reason, state.trouble.message
            )
    return None


def needed(given: RolloutInput, rollout: RolloutProgress, weight: int, carries: int) -> int:
    """Pods that the candidate must have ready for this weight; `carries` is what they are to be able to."""
    pods = given.pods(rollout.revision, carries)
    if not rollout.in_place:
        return pods
    # Pods without a request to answer would only be missed where they came from: one shows that it starts.
    return min(pods, most_in_place(given, rollout.from_revision)) if weight else 1


def climbing(given: RolloutInput, rollout: RolloutProgress, weight: int) -> int:
    """The part of this weight that the pods carry that the candidate has in place of others that served."""
    most, climbs = most_in_place(given, rollout.from_revision), given.spec.capacity is not Capacity.SURGE
    return min(weight, ALL * given.ready(rollout.revision) // most) if rollout.in_place and climbs else 0


def awaits_place(given: RolloutInput, rollout: RolloutProgress, pods: int) -> bool:
    """All pods that have a place are ready, and the next one waits for the base to give up one."""
    state = given.of(rollout.revision)
    return rollout.in_place and state.replicas <= state.ready < pods


def places(given: RolloutInput, rollout: RolloutProgress, pods: int) -> dict[str, int]:
    """Pods of base and candidate, which needs this many of its own."""
    base, candidate = rollout.from_revision, rollout.revision
    if not rollout.in_place:
        return {base: given.pods(base), candidate: pods}
    if given.of(candidate).placeless:
        return {base: given.pods(base), candidate: max(given.of(candidate).replicas, 1)}
    fleet = handed_over(given, base, candidate, pods)
    return {**fleet, candidate: pods} if given.spec.capacity is Capacity.SURGE else fleet


def handed_over(
    given: RolloutInput, outgoing: str, incoming: str, pods: int, *, lost: bool = False
) -> dict[str, int]:
    """Pods of both while the incoming one takes places of the outgoing one; `lost`: all are dead."""
    whole, state = given.pods(outgoing), given.of(outgoing)
    has = min(state.replicas, whole) if state.deployed else whole
    gone = has - state.ready if lost else min(dead(given, outgoing), has - state.ready)
    given_up = gone if gone > 0 else _given_up(given, outgoing, incoming, has)
    left = max(has - given_up, whole - pods)
    free = whole - max(left, state.pods)
    return {outgoing: left, incoming: max(min(pods, free), min(given.ready(incoming), pods))}


def _given_up(given: RolloutInput, outgoing: str, incoming: str, has: int) -> int:
    """How many living pods the outgoing one gives up now: one or none. One that is not ready goes first."""
    if given.spec.capacity is Capacity.SURGE:
        return 0
    state, whole = given.of(outgoing), given.pods(outgoing)
    freed = whole - has
    complete = state.pods <= has and given.ready(incoming) >= freed
    carried = given.acknowledged and weight_of(given.traffic, incoming) >= ALL * freed // whole
    return int(complete and (carried or not freed))
