"""How the pods of each revision with several hardware classes stand, and what follows; see `fallback.py`."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from tailbound.api.hardwareclass import HardwareClass
from tailbound.api.parsing import InvalidObject, parse
from tailbound.objects.printable import shortened
from tailbound.objects.times import LONG_AGO, time_in
from tailbound.reconcile.class_returns import is_return
from tailbound.reconcile.owned_state import OwnedState
from tailbound.reconcile.pod_classes import class_of
from tailbound.reconcile.pods import WITHOUT_NODE
from tailbound.revisions.record import Revision
from tailbound.rollout.fallback import ClassPlacement, FallbackDecision, Wait, Waiting, fall_back

_LONGEST_QUOTE: Final = 300


def decisions(owned: OwnedState, now: datetime) -> Mapping[str, FallbackDecision]:
    """The decision on each revision that has pods and a choice of classes."""
    found = {name: owned.revision(name) for name in owned.live_pods if name in owned.deployments}
    return {
        name: fall_back(_placement(owned, revision), now)
        for name, revision in found.items()
        if revision is not None and len(revision.classes) > 1
    }


def next_wake(found: Iterable[FallbackDecision]) -> datetime | None:
    """When the first pods have waited for long enough; None if none wait."""
    return min((each.until for each in found if isinstance(each, Wait)), default=None)


def _placement(owned: OwnedState, revision: Revision) -> ClassPlacement:
    stable = owned.revision(owned.stable)
    serves = stable is not None and stable.name != revision.name and owned.ready_endpoints.get(stable.name, 0)
    waiting = _waiting(owned, revision)
    return ClassPlacement(
        classes=_open_to(owned, revision) if waiting is not None else revision.classes,
        present=revision.hardware_class,
        waiting=waiting,
        after=owned.service.spec.hardware.effective_fallback_after().timedelta,
        running=_running(owned, revision),
        returns=is_return(revision),
        serving=stable.hardware_class if stable is not None and serves else None,
    )


def _open_to(owned: OwnedState, revision: Revision) -> tuple[str, ...]:
    """The present class, and those of its classes that still exist and allow the namespace."""
    stored, namespace = owned.observation.hardware_classes, owned.service.metadata.namespace
    found = {name: parse(HardwareClass, stored[name]) for name in revision.classes if name in stored}
    allowed = {
        name
        for name, each in found.items()
        if not isinstance(each, InvalidObject) and each.spec.allows(namespace)
    }
    return tuple(name for name in revision.classes if name in allowed or name == revision.hardware_class)


def _running(owned: OwnedState, revision: Revision) -> str | None:
    """A class whose pods have a node, where none of the present one has; None elsewhere."""
    pods = (pod for pod in owned.live_pods[revision.name] if pod.scheduled)
    found = [name for pod in pods if not pod.finished and (name := class_of(pod)) in revision.classes]
    return None if revision.hardware_class in found else next(iter(found), None)


def _waiting(owned: OwnedState, revision: Revision) -> Waiting | None:
    """Since when all pods wait; None if one has a node, also one of another class."""
    pods = [pod for pod in owned.live_pods[revision.name] if not pod.finished]
    if any(pod.scheduled for pod in pods):
        return None
    refused = [pod.condition("PodScheduled") for pod in pods if class_of(pod) == revision.hardware_class]
    refused = [each for each in refused if each.status == "False" and each.reason in WITHOUT_NODE]
    times = [each.last_transition_time for each in refused if each.last_transition_time is not None]
    if not times:
        return None
    fallback = owned.marks[revision.name].fallback
    chosen = time_in(fallback.since) if fallback is not None else None
    return Waiting(
        max(min(times), chosen or LONG_AGO), shortened(refused[0].message, _LONGEST_QUOTE).rstrip(".")
    )
