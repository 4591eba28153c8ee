"""Changing places without a spare device: the weight goes, then the old pods, then the new ones come."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tailbound.rollout.model import RevisionState, RolloutInput, TrafficDecision
from tailbound.rollout.sizing import ALL
from tailbound.rollout.weights import direct


@dataclass(frozen=True)
class Exchange:
    """How far the others have made way."""

    flow: TrafficDecision
    fleet: Mapping[str, int]
    tries: Mapping[str, int] = field(default_factory=dict)
    """Pods of Deployments once the weight has gone: only worth its loss if the API server takes that."""


def exchange(given: RolloutInput, incoming: str, meanwhile: TrafficDecision) -> Exchange | None:
    """How the others make way for `incoming`; None once none of their pods is left.

    `meanwhile` is where requests go before anything is given up. First row that fits:

    | other pods | incoming | gateways | weight | pods of the others |
    |---|---|---|---|---|
    | none | any | any | - | - |
    | some to end | has no Deployment | any | `meanwhile` | as they are |
    | some to end | has none ready, and a Deployment cannot be changed | any | `meanwhile` | as they are |
    | some | has a ready endpoint | have not all applied it | incoming | as they are |
    | some | has none | have not all applied it | none | as they are |
    | some | any | have applied it | the same | none: they end |
    """
    others = {
        name: state
        for name, state in given.revisions.items()
        if name != incoming and (state.pods or (state.deployed and state.replicas))
    }
    if not others:
        return None
    state, ready = given.of(incoming), given.ready(incoming) > 0
    deployed = {name: other.replicas for name, other in others.items() if other.deployed}
    own = {incoming: state.replicas}
    to_end = [other for other in others.values() if other.replicas]
    if to_end and (not state.deployed or (not ready and _refused(state, *to_end))):
        return Exchange(meanwhile, {**deployed, **own})
    where = direct(given, incoming if ready else None, {incoming: ALL} if ready else {})
    ended = dict.fromkeys(deployed, 0)
    outage = not ready and where.traffic != given.traffic
    tries = {**ended, incoming: given.pods(incoming)} if outage else {}
    return Exchange(where, {**(ended if where.settled else deployed), **own}, tries)


def _refused(*states: RevisionState) -> bool:
    """The API server does not take a change of one of these Deployments."""
    return any(state.refused is not None for state in states)
