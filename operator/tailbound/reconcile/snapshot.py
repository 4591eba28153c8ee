"""The snapshot of one service: its observation, parsed once, and the revision that its spec asks for.

| what is stored | reading |
|---|---|
| an InferenceService that is being deleted | `BeingDeleted` |
| one that does not validate | `InvalidService` |
| any other | `Snapshot` |
"""

from dataclasses import dataclass
from typing import TypeAlias

from tailbound.api.inferenceservice import InferenceService, RoutingStatus
from tailbound.api.parsing import InvalidObject, parse
from tailbound.objects.fields import Object
from tailbound.reconcile.desired import Intended, intend
from tailbound.reconcile.gateways import routing
from tailbound.reconcile.model import Observation
from tailbound.reconcile.owned_state import OwnedState, terminating


@dataclass(frozen=True)
class BeingDeleted:
    """Garbage collection removes the children: there is nothing to decide."""


@dataclass(frozen=True)
class InvalidService:
    """A stored InferenceService that this version cannot use."""

    service: Object
    message: str
    """Which fields are wrong, and what to write instead."""


@dataclass(frozen=True)
class Snapshot:
    """A valid service with everything around it; every pass of the decision reads this."""

    owned: OwnedState
    intended: Intended
    routing: RoutingStatus
    """What gateways follow of the spec."""


Reading: TypeAlias = Snapshot | InvalidService | BeingDeleted


def read(observation: Observation) -> Reading:
    """Parse what was observed; first row of the table that fits."""
    if terminating(observation.service):
        return BeingDeleted()
    service = parse(InferenceService, observation.service)
    if isinstance(service, InvalidObject):
        return InvalidService(observation.service, service.message)
    owned = OwnedState(observation, service)
    return Snapshot(owned, intend(owned), routing(service))
