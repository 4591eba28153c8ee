"""How requests move from one revision to another: ready endpoints, then weight, then shrink.

Weight (first row that fits; "current" is what has the weight now, or the stable mark's revision if the
status was lost):

| desired | current | others | weight goes to |
|---|---|---|---|
| stopped | any | any | nobody |
| all replicas ready | any | any | desired |
| any | some ready | any | current: it keeps serving while the desired one starts |
| some ready | none ready | any | desired: better few endpoints than none |
| none ready | none ready | some ready | the stable one of them, else the newest |
| none ready | none ready, deployed | none ready | current: nothing is gained by moving |
| none ready | not deployed | none ready | desired, so that its first endpoint serves at once |
| none wanted | not deployed | none ready | as it is |

Shrink: only when every gateway has acknowledged the weight as it is stored and as it should be. Until then
a gateway may still send requests to anything that had weight before, so that nothing is taken away.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tailbound.api.traffic import Backend, TrafficStatus

_ALL: Final = 100


@dataclass(frozen=True)
class RevisionState:
    """One revision as far as traffic is concerned."""

    number: int
    deployed: bool
    ready: int
    stable: bool


@dataclass(frozen=True)
class Situation:
    """Everything that the decision rests on."""

    desired: str | None
    """The revision of the spec as it is; None while there is none and none can be made."""
    replicas: int
    """Of the desired revision, when it serves."""
    stopped: bool
    traffic: TrafficStatus | None
    acknowledged: bool
    """Every Ready gateway has applied `traffic`, and there is at least one."""
    revisions: Mapping[str, RevisionState]
    first_generation: int
    """Generation of a `traffic` that is written where none is stored."""


@dataclass(frozen=True)
class Rollover:
    """Where the requests go, and what may be taken away."""

    traffic: TrafficStatus | None
    """status.traffic as it should be; None if there never was anything to serve."""
    target: str | None
    """The revision that gets all requests."""
    settled: bool
    """The weight is where it should be, and every gateway has acknowledged it."""
    promoted: bool
    """The desired revision has everything, observed: it is the stable one from now on."""
    shrink: bool
    """Whatever belongs neither to the desired revision nor to the target may be taken away."""


def roll(now: Situation) -> Rollover:
    """One step. Deciding again on what came of it ends at a fixed point."""
    target = None if now.stopped else _target(now)
    backends = (Backend(revision=target, weight=_ALL),) if target is not None else ()
    traffic = _traffic(now, backends)
    settled = traffic is not None and traffic == now.traffic and now.acknowledged
    promoted = settled and target is not None and target == now.desired and _ready(now, target) > 0
    # Without a desired revision the spec cannot be honoured: what runs is left as it is.
    return Rollover(traffic, target, settled, promoted, shrink=settled and now.desired is not None)


def _traffic(now: Situation, backends: tuple[Backend, ...]) -> TrafficStatus | None:
    if now.traffic is None:
        nothing_to_say = not backends and not now.stopped
        return None if nothing_to_say else TrafficStatus(generation=now.first_generation, backends=backends)
    if now.traffic.backends == backends:
        return now.traffic
    return TrafficStatus(generation=now.traffic.generation + 1, backends=backends)


def _ready(now: Situation, name: str | None) -> int:
    state = now.revisions.get(name) if name is not None else None
    return state.ready if state is not None else 0


def _deployed(now: Situation, name: str | None) -> bool:
    state = now.revisions.get(name) if name is not None else None
    return state is not None and state.deployed


def _current(now: Situation) -> str | None:
    if now.traffic is not None and now.traffic.backends:
        return max(now.traffic.backends, key=lambda backend: (backend.weight, backend.revision)).revision
    return next((name for name, state in now.revisions.items() if state.stable), None)


def _target(now: Situation) -> str | None:
    current = _current(now)
    others = [name for name, state in now.revisions.items() if state.ready]
    best_other = max(
        others, key=lambda name: (now.revisions[name].stable, now.revisions[name].number, name), default=None
    )
    rules = (
        (_ready(now, now.desired) >= now.replicas, now.desired),
        (_ready(now, current) > 0, current),
        (_ready(now, now.desired) > 0, now.desired),
        (best_other is not None, best_other),
        (_deployed(now, current), current),
        (now.desired is not None, now.desired),
    )
    return next((name for holds, name in rules if holds), current)
