"""Changing places without a spare device: the weight goes, then the old pods, then the new ones come."""

from tailbound.rollout.situation import Flow, Situation
from tailbound.rollout.sizing import ALL
from tailbound.rollout.weights import direct


def exchange(now: Situation, incoming: str) -> tuple[Flow, dict[str, int]] | None:
    """How the others make way for `incoming`; None once none of their pods is left.

    | other pods | gateways | incoming | weight | pods of the others |
    |---|---|---|---|---|
    | some | have not all applied it | has a ready endpoint | incoming | as they are |
    | some | have not all applied it | has none | nobody | as they are |
    | some | have applied it | any | the same | none: they end |
    | none | any | any | - | - |
    """
    others = {
        name: state
        for name, state in now.revisions.items()
        if name != incoming and (state.pods or (state.deployed and state.replicas))
    }
    if not others:
        return None
    ready = now.ready(incoming) > 0
    where = direct(now, incoming if ready else None, {incoming: ALL} if ready else {})
    fleet = {name: 0 if where.settled else state.replicas for name, state in others.items() if state.deployed}
    if now.of(incoming).deployed:
        fleet[incoming] = now.of(incoming).replicas
    return where, fleet
