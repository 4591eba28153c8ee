"""The functions of the pure core that the controller calls: read, draft, decide.

Deciding again on what came of a plan ends at a fixed point, where a plan holds neither writes nor a status.

A write that the caller reports as a `RefusedWrite` is withheld; deciding without it is the next attempt.
"""

from datetime import datetime

from tailbound.api.inferenceservice import InferenceServiceStatus
from tailbound.api.parsing import InvalidObject, parse
from tailbound.objects.fields import child
from tailbound.objects.metadata import KubernetesObject
from tailbound.reconcile import conditions, status
from tailbound.reconcile.decision import decide_on
from tailbound.reconcile.desired import Draft, DraftVersion, draft_of
from tailbound.reconcile.events import transitions
from tailbound.reconcile.model import Plan, Rendering, RenderRequest
from tailbound.reconcile.snapshot import BeingDeleted, InvalidService, Reading, Snapshot, read

__all__ = ["decide", "draft", "draft_version", "read", "wanted_rendering"]


def draft_version(reading: Reading) -> DraftVersion | None:
    """The versions of what `draft` is made from; None if nothing can be rendered."""
    return reading.intended.version(reading.owned) if isinstance(reading, Snapshot) else None


def wanted_rendering(reading: Reading) -> RenderRequest | None:
    """The rendering that `draft` needs; None if nothing can be: an invalid spec, no runtime, no class."""
    return reading.intended.request(reading.owned) if isinstance(reading, Snapshot) else None


def draft(reading: Reading, rendering: Rendering) -> Draft:
    """The revision that the spec would be made into with this rendering."""
    return draft_of(reading.owned, reading.intended, rendering) if isinstance(reading, Snapshot) else None


def decide(reading: Reading, drafted: Draft, now: datetime) -> Plan:
    """What to do now. Never raises for what people wrote: it becomes a condition."""
    match reading:
        case BeingDeleted():
            return Plan(summary="being deleted")
        case InvalidService():
            return _refuse(reading, now)
        case Snapshot():
            return decide_on(reading, drafted, now)


def _refuse(invalid: InvalidService, now: datetime) -> Plan:
    """A stored object that does not validate: children are untouched, the status says what to correct."""
    stored = parse(InferenceServiceStatus, child(invalid.service, "status"))
    if isinstance(stored, InvalidObject):
        stored = InferenceServiceStatus()
    generation = KubernetesObject(invalid.service).generation
    merged = conditions.merge(stored.conditions, conditions.invalid(invalid.message), generation, now)
    wanted = stored.model_copy(update={"observed_generation": generation, "conditions": merged})
    document = status.to_write(stored, wanted)
    return Plan(
        status=document,
        events=transitions(stored.conditions, merged),
        summary="invalid" if document is not None else "",
    )
