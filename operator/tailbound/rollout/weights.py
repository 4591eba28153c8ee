"""Where requests go: ready endpoints before weight, and never weight on nothing.

The target has all requests, or all but the candidate's share. First row that fits; "base" is the revision
that should serve, "current" is what has most of the weight now (of equal ones the base; the base also where a
status was lost):

| base | current | others | target |
|---|---|---|---|
| all replicas ready | any | any | base |
| some ready | rejected | any | base |
| any | some ready | any | current: it keeps serving while the base starts |
| some ready | none ready | any | base: better few endpoints than none |
| none ready | none ready | some ready, not rejected | the newest of them |
| none ready | none ready, deployed | none ready | current: nothing is gained by moving |
| exists | not deployed | none ready | base, so that its first endpoint serves at once |
| none | not deployed | none ready | as it is |

Where there is no base yet, the desired revision is it. The candidate has its share only beside the base.
"""

from collections.abc import Collection

from tailbound.api.traffic import Backend, TrafficStatus
from tailbound.rollout.situation import Flow, Situation
from tailbound.rollout.sizing import ALL


def flow(
    now: Situation,
    base: str | None,
    candidate: str | None,
    share: int,
    rejected: Collection[str],
    *,
    enough: int | None = None,
) -> Flow:
    """The weights while the candidate is to have `share` percent, which it must have ready endpoints for.

    `enough` endpoints of the base are as good as all its replicas: the candidate took the others' places.
    """
    target = _target(now, base, rejected, enough)
    if candidate is not None and share > 0 and target == base:
        shares = {candidate: share} if share == ALL else {base: ALL - share, candidate: share}
        target = candidate if share == ALL else target
    else:
        shares = {target: ALL} if target is not None else {}
    if now.traffic is None and not shares:
        return Flow(None, target, settled=False)
    return direct(now, target, {name: weight for name, weight in shares.items() if name is not None})


def direct(now: Situation, target: str | None, shares: dict[str, int]) -> Flow:
    """These weights, whoever is ready. That nobody is to serve is said, for gateways to acknowledge it."""
    backends = tuple(Backend(revision=name, weight=weight) for name, weight in shares.items())
    traffic = _traffic(now, backends)
    return Flow(traffic, target, traffic == now.traffic and now.acknowledged)


def current(now: Situation, base: str | None) -> str | None:
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


def _target(now: Situation, base: str | None, rejected: Collection[str], enough: int | None) -> str | None:
    present = current(now, base)
    best_other = max(
        (name for name, state in now.revisions.items() if state.ready and name not in rejected),
        key=lambda name: (now.revisions[name].number, name),
        default=None,
    )
    rules = (
        (base is not None and now.ready(base) >= (enough or now.pods(base)), base),
        (now.ready(base) > 0 and present in rejected, base),
        (now.ready(present) > 0, present),
        (now.ready(base) > 0, base),
        (best_other is not None, best_other),
        (now.of(present).deployed, present),
        (base is not None, base),
    )
    return next((name for holds, name in rules if holds), present)


def _traffic(now: Situation, backends: tuple[Backend, ...]) -> TrafficStatus:
    if now.traffic is None:
        return TrafficStatus(generation=now.first_generation, backends=backends)
    if now.traffic.backends == backends:
        return now.traffic
    return TrafficStatus(generation=now.traffic.generation + 1, backends=backends)
