"""The decision: what an InferenceService's children and status should become, given what is.

Deciding again on what came of a plan ends at a fixed point, where a plan holds neither writes nor a status.

A write that the caller reports as an `Obstacle` is withheld; deciding without the obstacle is the next
attempt.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tailbound.api.inferenceservice import InferenceService, InferenceServiceStatus
from tailbound.api.parsing import InvalidObject, parse
from tailbound.reconcile import conditions, status
from tailbound.reconcile.decision import Decision
from tailbound.reconcile.desired import find_or_make, intend
from tailbound.reconcile.events import transitions
from tailbound.reconcile.model import Observation, Plan, Rendering, RenderRequest
from tailbound.reconcile.owned_state import OwnedState, terminating


def wanted_rendering(observation: Observation) -> RenderRequest | None:
    """What `decide` needs rendered; None if nothing can be: an invalid spec, no runtime, no class."""
    service = parse(InferenceService, observation.service)
    if isinstance(service, InvalidObject) or terminating(observation.service):
        return None
    world = OwnedState(observation, service)
    return intend(world).request(world)


def decide(observation: Observation, rendering: Rendering, now: datetime) -> Plan:
    """What to do now. Never raises for what people wrote: it becomes a condition."""
    if terminating(observation.service):
        return Plan(summary="being deleted")
    service = parse(InferenceService, observation.service)
    if isinstance(service, InvalidObject):
        return _refuse(observation.service, service, now)
    world = OwnedState(observation, service)
    intent = intend(world)
    return Decision(world, intent, find_or_make(world, intent, rendering), now).plan()


def _refuse(raw: Mapping[str, Any], refused: InvalidObject, now: datetime) -> Plan:
    """A stored object that does not validate: children are untouched, the status says what to correct."""
    stored = _readable_status(raw)
    generation = int(raw["metadata"].get("generation", 0))
    verdicts = conditions.invalid(refused.message)
    merged = conditions.merge(stored.conditions, verdicts, generation, now)
    wanted = stored.model_copy(update={"observed_generation": generation, "conditions": merged})
    document = status.to_write(stored, wanted)
    return Plan(
        status=document,
        events=transitions(stored.conditions, merged),
        summary="invalid" if document is not None else "",
    )


def _readable_status(raw: Mapping[str, Any]) -> InferenceServiceStatus:
    stored = parse(InferenceServiceStatus, raw.get("status") or {})
    return InferenceServiceStatus() if isinstance(stored, InvalidObject) else stored
