"""What the API server refuses of what a rollout needs next. Pure.

First row that fits; "it" is the revision that is on its way:

| what is refused | counts while |
|---|---|
| its record, Service or Deployment, which does not exist | always |
| a change of its Deployment | pods of it are missing |
| with `recreate`, a change of the Deployment of another one | that is to have pods; it has none ready |
| in place, a change of the Deployment of the one that gives up places | it waits for the next place |

A refused write is tried again from time to time, and the look at which it is tried knows of no refusal: the
last one stays in status.rollout until what was refused is done.
"""

from collections.abc import Iterator

from tailbound.api.conditions import Reason
from tailbound.api.rollout import Refusal, RolloutStatus, Strategy
from tailbound.rollout.model import PodProblem, RolloutInput, RolloutStep


def hindrance(now: RolloutInput, name: str, outgoing: str | None, pods: int) -> PodProblem | None:
    """What is refused to a revision that needs this many pods; `outgoing` gives up places to it, if any."""
    if name == now.desired and now.refused is not None:
        return now.refused
    own, ready = now.of(name).refused, now.ready(name)
    if own is not None and ready < pods:
        return own
    if now.spec.strategy is Strategy.RECREATE:
        return next(_of_others(now, name), None) if not ready else None
    waits = outgoing is not None and now.of(name).replicas <= ready < pods
    return now.of(outgoing).refused if waits else None


def _of_others(now: RolloutInput, name: str) -> Iterator[PodProblem]:
    for other, state in now.revisions.items():
        if other != name and state.refused is not None and state.replicas:
            yield state.refused


def outstanding(now: RolloutInput, step: RolloutStep) -> bool:
    """Some Deployment is not as this step wants it."""
    return any(now.of(name).replicas != pods for name, pods in {**step.fleet, **step.tries}.items())


def recorded(rollout: RolloutStatus, found: PodProblem | None) -> RolloutStatus:
    """The rollout with what is refused."""
    refused = Refusal(reason=found.reason, message=found.message) if found is not None else None
    return rollout.model_copy(update={"refused": refused})


def last(rollout: RolloutStatus) -> PodProblem | None:
    """What was refused when it was last tried."""
    refused = rollout.refused
    return PodProblem(Reason(refused.reason), refused.message) if refused is not None else None
