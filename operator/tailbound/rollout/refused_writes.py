"""What the API server refuses of what a rollout needs next. Pure.

First rule that fits (`RULES`); "it" is the revision that is on its way:

| rule | what is refused | counts while |
|---|---|---|
| `children_missing` | its record, Service or Deployment, which does not exist | always |
| `own_deployment` | a change of its Deployment | pods of it are missing |
| `other_deployment` | with `recreate`, a change of another one's Deployment | it has no pod ready |
| `outgoing_deployment` | in place, a change of the Deployment that frees capacity | it waits for capacity |

A refused write is tried again from time to time, and the look at which it is tried knows of no refusal: the
last one stays in status.rollout until what was refused is done.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tailbound.api.rollout import Strategy
from tailbound.rollout.model import RolloutInput, RolloutStep
from tailbound.rollout.problem import Problem


@dataclass(frozen=True)
class Need:
    """What a revision needs next."""

    given: RolloutInput
    name: str
    outgoing: str | None
    """The revision that gives up places to it, if one does."""
    pods: int


def hindrance(given: RolloutInput, name: str, outgoing: str | None, pods: int) -> Problem | None:
    """What is refused to a revision that needs this many pods; `outgoing` gives up places to it, if any."""
    need = Need(given, name, outgoing, pods)
    return next((found for rule in RULES if (found := rule(need)) is not None), None)


def children_missing(need: Need) -> Problem | None:
    """Its record, Service or Deployment does not exist, and is refused."""
    return need.given.refused if need.name == need.given.desired else None


def own_deployment(need: Need) -> Problem | None:
    """A change of its Deployment is refused, and pods of it are missing."""
    return need.given.of(need.name).refused if need.given.ready(need.name) < need.pods else None


def other_deployment(need: Need) -> Problem | None:
    """The refused write that keeps other pods from ending, with `recreate` and no ready pod."""
    if need.given.spec.strategy is not Strategy.RECREATE or need.given.ready(need.name):
        return None
    others = (state for name, state in need.given.revisions.items() if name != need.name)
    return next((state.refused for state in others if state.refused is not None and state.replicas), None)


def outgoing_deployment(need: Need) -> Problem | None:
    """The refused write that keeps the pods from ending which are replaced in place."""
    given, ready = need.given, need.given.ready(need.name)
    recreates = given.spec.strategy is Strategy.RECREATE
    if need.outgoing is None or recreates or not given.of(need.name).replicas <= ready < need.pods:
        return None
    return given.of(need.outgoing).refused


RULES: Final[tuple[Callable[[Need], Problem | None], ...]] = (
    children_missing,
    own_deployment,
    other_deployment,
    outgoing_deployment,
)
"""The rows of the table above, in its order."""


def outstanding(given: RolloutInput, step: RolloutStep) -> bool:
    """Some Deployment is not as this step wants it."""
    return any(given.of(name).replicas != pods for name, pods in {**step.fleet, **step.tries}.items())
