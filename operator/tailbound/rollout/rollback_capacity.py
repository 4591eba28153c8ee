"""How a revision that comes back gets capacity from the one that has the requests meanwhile. Pure.

First row that fits; "other" is the revision with most of the weight beside the one that comes back:

| capacity | the one that comes back | the other | comes back |
|---|---|---|---|
| any | has all pods ready, or there is no other | any | as `weights.py` says |
| any | any | has one pod, which is not dead | beside it, when there is capacity |
| any | has pods that are refused or fit no node | any | beside it, when that is mended |
| surge | finds capacity, or the other has no dead pods | any | beside it, when there is capacity |
| auto | finds capacity | has freed no capacity | beside it |
| otherwise | some ready | rejected, or none ready | at once, and the rest when the other has gone |
| surge | lacks capacity | has dead pods | with the capacity of those |
| otherwise | any | any | with its capacity, one pod after the other (`in_place.py`) |

With the capacity of the other it gets weight as its pods get ready: what they carry, and all once only one
pod of the other is left. Dead pods are removed at once; one stays, unless it is the only pod: it may recover.

A rollout that goes on when the return is asked for ends first: the stable revision, to which requests return
until the older one serves, takes requests and capacity back in the same manner, and keeps its pods.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tailbound.api.rollout import Capacity, Strategy
from tailbound.rollout.in_place import dead, handed_over, may_be_replaced_in_place, most_in_place
from tailbound.rollout.model import RolloutInput, TrafficDecision
from tailbound.rollout.sizing import ALL
from tailbound.rollout.weights import flow, weight_of


@dataclass(frozen=True)
class Handover:
    """What two revisions have at one decision, while capacity passes from one to the other."""

    flow: TrafficDecision
    fleet: Mapping[str, int]
    """Pods of each of the two."""
    makes_way: str
    """The revision that frees its capacity."""


def in_turn(given: RolloutInput, back: str, rejected: Collection[str], *, lost: bool) -> Handover | None:
    """What each gets now; None if no capacity passes between them. `lost`: the other is dead."""
    other = _other(given, back)
    if other is None or not _hands_over(given, back, other, lost=lost):
        return None
    sole = other in rejected or not given.ready(other)
    if sole and given.ready(back):
        return None
    most = most_in_place(given, other)
    pods = min(given.pods(back), most)
    where = (
        flow(given, back, None, 0, rejected)
        if sole
        else flow(given, other, back, _share(given, back, pods, most), rejected, waits=False)
    )
    fleet = handed_over(given, other, back, pods, lost=lost)
    if given.spec.capacity is Capacity.SURGE:
        fleet = {**fleet, back: given.pods(back)}
    return Handover(where, fleet, other)


def interrupted(given: RolloutInput, back: str) -> str | None:
    """The stable revision, where a third has requests that it can take back before `back` is there.

    One whose own pods fail might keep everybody waiting: it takes nothing back.
    """
    stable = given.stable
    if stable is None or stable == back or given.spec.strategy is Strategy.RECREATE:
        return None
    trouble = given.of(stable).trouble
    able = given.ready(stable) > 0 and (trouble is None or trouble.lacks_capacity)
    over = given.ready(back) >= given.pods(back)
    return stable if able and not over and with_requests(given, {stable, back}) else None


def with_requests(given: RolloutInput, but: Collection[str]) -> list[str]:
    """Deployed revisions that have some of the requests, most of them first; not these."""
    backends = given.traffic.backends if given.traffic is not None else ()
    shares = [
        (backend.weight, backend.revision)
        for backend in backends
        if backend.weight and backend.revision not in but and given.of(backend.revision).deployed
    ]
    return [name for _, name in sorted(shares, reverse=True)]


def _other(given: RolloutInput, back: str) -> str | None:
    """What else has most of the requests, while pods of this one are missing."""
    others = with_requests(given, {back})
    return others[0] if others and given.ready(back) < given.pods(back) else None


def _hands_over(given: RolloutInput, back: str, other: str, *, lost: bool) -> bool:
    capacity, state, trouble = given.spec.capacity, given.of(other), given.of(back).trouble
    if given.of(back).placeless or not (lost or may_be_replaced_in_place(given, other)):
        return False
    full = trouble is not None and trouble.lacks_capacity
    if capacity is Capacity.SURGE:
        return full and (lost or dead(given, other) > 0)
    return capacity is Capacity.IN_PLACE or full or state.replicas < given.pods(other)


def _share(given: RolloutInput, back: str, pods: int, most: int) -> int:
    """What the ready pods of the one that comes back carry; what it has it keeps."""
    ready = given.ready(back)
    if not ready:
        return 0
    return ALL if ready >= pods else max(weight_of(given.traffic, back), ALL * ready // most)
