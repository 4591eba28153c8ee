"""Where requests go: ready endpoints before weight, weight by ready capacity, and never weight on nothing.

The target has all requests, or all but what others have. First row that fits; "base" is the revision that
should serve, "current" is what has most of the weight now (of equal ones the base; the base also where a
status was lost):

| base | current | others | target |
|---|---|---|---|
| some ready | any | any | base |
| none ready | some ready, not rejected | any | current |
| none ready | any | some ready, not rejected | the newest of them that served before, or the newest |
| none ready | some ready, rejected | none | current: better than nothing |
| none ready | none ready, deployed | none ready | current: nothing is gained by moving |
| exists | not deployed | none ready | base, so that its first endpoint serves at once |
| none | not deployed | none ready | as it is |

Where there is no base yet, the desired revision is it.

Beside a base with ready endpoints the others have (all rows that fit, added up):

| the other | has |
|---|---|
| the candidate, with a ready endpoint | its share; never more because pods of the base are missing |
| has more than its share now, and a ready endpoint | of the excess what the base lacks pods for |

A weight above the share never rises. It goes to the base whole where what would be left is at most `SPARE`,
where pods of the base wait for the places of the others, and when it has been waiting for
`progressDeadline`. Who was rejected gives it up first, then who never served, then the newest.
"""

from collections.abc import Collection
from typing import Final

from tailbound.api.rollout import Capacity
from tailbound.api.traffic import Backend, TrafficStatus
from tailbound.rollout.model import RolloutInput, TrafficDecision
from tailbound.rollout.sizing import ALL

SPARE: Final = 10
"""Percent of the requests that ready pods take on at once beyond their part: what is left elsewhere of a
rejected revision costs more than so little load."""


def flow(
    now: RolloutInput,
    base: str | None,
    candidate: str | None,
    share: int,
    rejected: Collection[str],
    *,
    waits: bool = True,
) -> TrafficDecision:
    """The weights while the candidate is to have `share` percent, which it must have ready endpoints for.

    `waits`: requests that leave another revision wait for pods of the base that are missing.
    """
    target = _target(now, base, rejected)
    if target is None:
        return (
            TrafficDecision(None, target, settled=False) if now.traffic is None else direct(now, target, {})
        )
    if target != base or not now.ready(base):
        return direct(now, target, {target: ALL})
    if candidate is not None and share == ALL:
        return direct(now, candidate, {candidate: ALL})
    shares = {candidate: share} if candidate is not None and share > 0 else {}
    kept = _kept(now, base, shares, rejected) if waits else {}
    others = {name: shares.get(name, 0) + kept.get(name, 0) for name in (*shares, *kept)}
    left = ALL - sum(others.values())
    return direct(now, base, {base: left, **others}, waits=bool(kept))


def direct(
    now: RolloutInput, target: str | None, shares: dict[str, int], *, waits: bool = False
) -> TrafficDecision:
    """These weights, ready or not. Empty weights are written too, for gateways to acknowledge them."""
    backends = tuple(Backend(revision=name, weight=weight) for name, weight in shares.items())
    traffic = _traffic(now, backends)
    return TrafficDecision(traffic, target, traffic == now.traffic and now.acknowledged, waits)


def current(now: RolloutInput, base: str | None) -> str | None:
    """The revision with most of the weight."""
    if now.traffic is not None and now.traffic.backends:
        return max(
            now.traffic.backends,
            key=lambda backend: (backend.weight, backend.revision == base, backend.revision),
        ).revision
    return base if now.of(base).deployed or now.ready(base) else None


def weight_of(traffic: TrafficStatus | None, revision: str | None) -> int:
    """Percent of the requests that a revision gets."""
    backends = traffic.backends if traffic is not None else ()
    return sum(backend.weight for backend in backends if backend.revision == revision)


def _target(now: RolloutInput, base: str | None, rejected: Collection[str]) -> str | None:
    present = current(now, base)
    condemned = _condemned(now, rejected)
    best_other = max(
        (name for name, state in now.revisions.items() if state.ready and name not in condemned),
        key=lambda name: (now.of(name).promoted_at is not None, now.of(name).number, name),
        default=None,
    )
    rules = (
        (now.ready(base) > 0, base),
        (now.ready(present) > 0 and present not in condemned, present),
        (best_other is not None, best_other),
        (now.of(present).deployed or now.ready(present) > 0, present),
        (base is not None, base),
    )
    return next((name for holds, name in rules if holds), present)


def _kept(now: RolloutInput, base: str, shares: dict[str, int], rejected: Collection[str]) -> dict[str, int]:
    """What others keep beyond their shares, by revision, until pods of the base are there for it."""
    excess = {
        backend.revision: backend.weight - shares.get(backend.revision, 0)
        for backend in (now.traffic.backends if now.traffic is not None else ())
        if backend.revision != base and now.ready(backend.revision) and now.of(backend.revision).deployed
    }
    lacking = ALL - min(ALL * now.ready(base) // max(now.pods(base), 1), ALL) - sum(shares.values())
    left = min(lacking, sum(each for each in excess.values() if each > 0))
    if left <= SPARE or _cannot_wait(now, base):
        return {}
    kept, condemned = {}, _condemned(now, rejected)
    for name in sorted(excess, key=lambda name: _worth(now, name, condemned), reverse=True):
        kept[name] = max(min(excess[name], left), 0)
        left -= kept[name]
    return {name: weight for name, weight in kept.items() if weight}


def _condemned(now: RolloutInput, rejected: Collection[str]) -> set[str]:
    """The revisions that were rejected: now, or earlier as their records say."""
    return {*rejected, *(name for name, state in now.revisions.items() if state.rejection is not None)}


def _worth(now: RolloutInput, name: str, condemned: Collection[str]) -> tuple[bool, bool, int, str]:
    """The order in which revisions keep requests: the greatest keeps them longest."""
    state = now.of(name)
    return name not in condemned, state.promoted_at is not None, -state.number, name


def _cannot_wait(now: RolloutInput, base: str) -> bool:
    """The base's missing pods need the others' places, or have taken too long."""
    trouble, since = now.of(base).trouble, now.stored.moving_since if now.stored is not None else None
    in_the_way = now.spec.capacity is Capacity.IN_PLACE or (trouble is not None and trouble.lacks_room)
    overdue = since is not None and now.now >= since + now.spec.progress_deadline.timedelta
    return in_the_way or overdue


def _traffic(now: RolloutInput, backends: tuple[Backend, ...]) -> TrafficStatus:
    if now.traffic is None or now.overtaken:
        return TrafficStatus(generation=now.first_generation, backends=backends)
    if now.traffic.backends == backends:
        return now.traffic
    return TrafficStatus(generation=now.traffic.generation + 1, backends=backends)
