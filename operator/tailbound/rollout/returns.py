"""How a revision that comes back gets places from the one that has the requests meanwhile. Pure.

First row that fits; "other" is the revision with most of the weight beside the one that comes back:

| capacity | the one that comes back | the other | comes back |
|---|---|---|---|
| any | has all pods ready, or there is no other | any | as `weights.py` says |
| surge | any | any | beside it, when there is room |
| inPlace, auto | any | has one pod, which is not dead | beside it, when there is room |
| auto | finds room | has given up no place | beside it |
| otherwise | some ready | rejected, or none ready | at once, and the rest when the other has gone |
| otherwise | any | any | in its places, one after the other (`places.py`) |

In its places it gets weight as its pods get ready: what they carry, and all once they have every place but
the last. Dead pods give up theirs at once; one stays, unless it holds the only place: it may recover.
"""

from collections.abc import Collection

from tailbound.api.rollout import Capacity
from tailbound.rollout.places import gives_places, handed_over, most_in_place
from tailbound.rollout.situation import Flow, Situation
from tailbound.rollout.sizing import ALL
from tailbound.rollout.weights import flow, weight_of


def in_turn(
    now: Situation, back: str, rejected: Collection[str], *, lost: bool
) -> tuple[Flow, dict[str, int]] | None:
    """Weights, and pods of both; None where no place changes hands. `lost`: the other is given up as dead."""
    other = _other(now, back)
    if other is None or not _changes_hands(now, back, other, lost=lost):
        return None
    sole = other in rejected or not now.ready(other)
    if sole and now.ready(back):
        return None
    most = most_in_place(now, other)
    pods = min(now.pods(back), most)
    where = (
        flow(now, back, None, 0, rejected)
        if sole
        else flow(now, other, back, _share(now, back, pods, most), rejected, enough=1)
    )
    return where, handed_over(now, other, back, pods, lost=lost)


def _other(now: Situation, back: str) -> str | None:
    """What else has requests, most of them first."""
    backends = now.traffic.backends if now.traffic is not None else ()
    others = [
        (backend.weight, backend.revision)
        for backend in backends
        if backend.weight and backend.revision != back and now.of(backend.revision).deployed
    ]
    return max(others)[1] if others and now.ready(back) < now.pods(back) else None


def _changes_hands(now: Situation, back: str, other: str, *, lost: bool) -> bool:
    capacity, state, trouble = now.spec.capacity, now.of(other), now.of(back).trouble
    if capacity is Capacity.SURGE or not (lost or gives_places(now, other)):
        return False
    full = trouble is not None and trouble.lacks_room
    return capacity is Capacity.IN_PLACE or full or state.replicas < now.pods(other)


def _share(now: Situation, back: str, pods: int, most: int) -> int:
    """What the ready pods of the one that comes back carry; what it has it keeps."""
    ready = now.ready(back)
    if not ready:
        return 0
    return ALL if ready >= pods else max(weight_of(now.traffic, back), ALL * ready // most)
