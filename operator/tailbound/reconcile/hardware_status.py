"""status.hardware: which hardware serves, what it costs, and whether the model fits it."""

from typing import Any, Final

from tailbound.api.hardware import LONGEST_MESSAGE, HardwareStatus
from tailbound.api.names import REVISION_LABEL
from tailbound.objects.pod import Pod
from tailbound.objects.printable import shortened
from tailbound.objects.times import time_in
from tailbound.reconcile import class_returns
from tailbound.reconcile.cost import cost_per_hour
from tailbound.reconcile.decided import Decided
from tailbound.reconcile.device_memory import Fits, Unchecked, memory_verdict
from tailbound.reconcile.owned_state import OwnedState
from tailbound.reconcile.pod_classes import class_of
from tailbound.rollout.class_return import ReturnStart
from tailbound.rollout.problem import Problem

_LONGEST: Final = LONGEST_MESSAGE - 1
"""Characters before the ellipsis: many names, or an edited annotation, can make a message longer."""


def status(decided: Decided) -> HardwareStatus | None:
    """The status; None where nothing is to be said."""
    found = _class(decided).model_copy(
        update={"memory": _memory(decided), "cost_per_hour": _cost(decided), **_return(decided)}
    )
    return found if found != HardwareStatus() else None


def _return(decided: Decided) -> dict[str, Any]:
    """What is to be said of a return to a preferred class, and remembered of it."""
    decision, owned = decided.class_return, decided.owned
    if decision is None:
        revision = decided.desired.revision
        if revision is None or revision.name == owned.stable or not class_returns.is_return(revision):
            return {}
        to = f"HardwareClass {revision.hardware_class}"
        return {"return_message": f"revision {revision.name} returns the service to {to}"}
    begins = isinstance(decision, ReturnStart)
    return {
        "return_message": shortened(class_returns.in_words(decision), _LONGEST),
        "room_since": None if isinstance(decision, ReturnStart) else decision.room_since,
        "attempt": str(class_returns.next_attempt(owned)) if begins else None,
    }


def _cost(decided: Decided) -> str | None:
    """The cost of all pods that have a node, those that end included."""
    owned, desired = decided.owned, decided.desired.revision
    placed = (pod for pod in owned.pods if pod.node_name and not pod.finished)
    return cost_per_hour(
        ((pod, _class_of(pod, owned)) for pod in placed),
        owned.observation.hardware_classes,
        desired.hardware_class if desired is not None else None,
    )


def _class_of(pod: Pod, owned: OwnedState) -> str | None:
    revision = owned.revision(pod.label(REVISION_LABEL))
    return class_of(pod) or (revision.hardware_class if revision is not None else None)


def _class(decided: Decided) -> HardwareStatus:
    """The class of the revision that serves, or is to serve; empty if it has no choice."""
    owned = decided.owned
    name = decided.step.flow.target or decided.name
    revision = owned.revision(name)
    if revision is None or len(revision.classes) == 1:
        return HardwareStatus()
    fallback = owned.marks[revision.name].fallback
    if fallback is None or revision.hardware_class == revision.classes[0]:
        return HardwareStatus(hardware_class=revision.hardware_class)
    return HardwareStatus(
        hardware_class=revision.hardware_class,
        since=time_in(fallback.since),
        message=shortened(fallback.why, _LONGEST),
    )


def _memory(decided: Decided) -> str | None:
    """What is to be said of the first class, if anything."""
    choice = decided.intended.choice
    if isinstance(choice, Problem):
        return None
    revision = decided.desired.revision
    read = revision.model.weight_bytes if revision is not None and revision.model is not None else None
    verdict = memory_verdict(decided.owned.service.spec.model.size, choice.hardware_classes[0], read)
    return verdict.text if isinstance(verdict, Fits | Unchecked) else None
