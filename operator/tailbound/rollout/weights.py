"""The weights of revisions: ready endpoints come first, weight follows ready capacity.

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
    given: RolloutInput,
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
    target = _target(given, base, rejected)
    if target is None:
        return (
            TrafficDecision(None, target, settled=False)
            if given.traffic is None
            else direct(given, target, {})
        )
    if target != base or not given.ready(base):
        return direct(given, target, {target: ALL})
    if candidate is not None and share == ALL:
        return direct(given, candidate, {candidate: ALL})
    shares = {candidate: share} if candidate is not None and share > 0 else {}
    kept = _kept(given, base, shares, rejected) if waits else {}
    others = {name: shares.get(name, 0) + kept.get(name, 0) for name in (*shares, *kept)}
    left = ALL - sum(others.values())
    return direct(given, base, {base: left, **others}, waits=bool(kept))


def direct(
    given: RolloutInput, target: str | None, shares: dict[str, int], *, waits: bool = False
) -> TrafficDecision:
    """These weights, ready or not. Empty weights are written too, for gateways to acknowledge them."""
    backends = tuple(Backend(revision=name, weight=weight) for name, weight in shares.items())
    traffic = _traffic(given, backends)
    return TrafficDecision(traffic, target, traffic == given.traffic and given.acknowledged, waits)


def current(given: RolloutInput, base: str | None) -> str | None:
    """The revision with most of the weight."""
    if given.traffic is not None and given.traffic.backends:
        return max(
            given.traffic.backends,
            key=lambda backend: (backend.weight, backend.revision == base, backend.revision),
        ).revision
    return base if given.of(base).deployed or given.ready(base) else None


def weight_of(traffic: TrafficStatus | None, revision: str | None) -> int:
    """Percent of the requests that a revision gets."""
    backends = traffic.backends if traffic is not None else ()
    return sum(backend.weight for backend in backends if backend.revision == revision)


def _target(given: RolloutInput, base: str | None, rejected: Collection[str]) -> str | None:
    present = current(given, base)
    all_rejected = _all_rejected(given, rejected)
    best_other = max(
        (name for name, state in given.revisions.items() if state.ready and name not in all_rejected),
        key=lambda name: (given.of(name).promoted_at is not None, given.of(name).number, name),
        default=None,
    )
    rules = (
        (given.ready(base) > 0, base),
        (given.ready(present) > 0 and present not in all_rejected, present),
        (best_other is not None, best_other),
        (given.of(present).deployed or given.ready(present) > 0, present),
        (base is not None, base),
    )
    return next((name for holds, name in rules if holds), present)


def _kept(
    given: RolloutInput, base: str, shares: dict[str, int], rejected: Collection[str]
) -> dict[str, int]:
    """What others keep beyond their shares, by revision, until pods of the base are there for it."""
    excess = {
        backend.revision: backend.weight - shares.get(backend.revision, 0)
        for backend in (given.traffic.backends if given.traffic is not None else ())
        if backend.revision != base and given.ready(backend.revision) and given.of(backend.revision).deployed
    }
    lacking = ALL - min(ALL * given.ready(base) // max(given.pods(base), 1), ALL) - sum(shares.values())
    left = min(lacking, sum(each for each in excess.values() if each > 0))
    if left <= SPARE or _cannot_wait(given, base):
        return {}
    kept, all_rejected = {}, _all_rejected(given, rejected)
    for name in sorted(excess, key=lambda name: _worth(given, name, all_rejected), reverse=True):
        kept[name] = max(min(excess[name], left), 0)
        left -= kept[name]
    return {name: weight for name, weight in kept.items() if weight}


def _all_rejected(given: RolloutInput, rejected: Collection[str]) -> set[str]:
    """The revisions that were rejected: now, or earlier as their records say."""
    return {*rejected, *(name for name, state in given.revisions.items() if state.rejection is not None)}


def _worth(given: RolloutInput, name: str, all_rejected: Collection[str]) -> tuple[bool, bool, int, str]:
    """The order in which revisions keep requests: the greatest keeps them longest."""
    state = given.of(name)
    return name not in all_rejected, state.promoted_at is not None, -state.number, name


def _cannot_wait(given: RolloutInput, base: str) -> bool:
    """The base's missing pods need the others' places, or have taken too long."""
    trouble, since = given.of(base).trouble, given.stored.moving_since if given.stored is not None else None
    in_the_way = given.spec.capacity is Capacity.IN_PLACE or (trouble is not None and trouble.lacks_capacity)
    overdue = since is not None and given.time >= since + given.spec.progress_deadline.timedelta
    return in_the_way or overdue


def _traffic(given: RolloutInput, backends: tuple[Backend, ...]) -> TrafficStatus:
    if given.traffic is None or given.overtaken:
        return TrafficStatus(generation=given.first_generation, backends=backends)
    if given.traffic.backends == backends:
        return given.traffic
    return TrafficStatus(generation=given.traffic.generation + 1, backends=backends)
