"""What exists around one service, told apart by owner and by revision."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Final

from tailbound.api.inferenceservice import InferenceService
from tailbound.api.names import (
    API_VERSION,
    GROUP,
    MANAGED_BY_LABEL,
    MANAGED_BY_VALUE,
    REFRESH_ANNOTATION,
    REVISION_LABEL,
    SERVICE_LABEL,
)
from tailbound.api.traffic import TrafficStatus
from tailbound.reconcile.model import Object, Observation
from tailbound.revisions.identity import number_in
from tailbound.revisions.record import Marks, marks_of, origin_of
from tailbound.traffic.endpoints import endpoints_by_revision

SERVICE_KIND: Final = "InferenceService"
FINISHED: Final = frozenset({"Failed", "Succeeded"})
"""Phases of pods that hold nothing any more."""


class Ownership(Enum):
    """Whose an object is."""

    OURS = "ours"
    PREVIOUS = "previous"  # of a deleted InferenceService of this name: garbage collection will remove it
    FOREIGN = "foreign"


def controller_of(stored: Object) -> Mapping[str, Any] | None:
    """The owner reference that has `controller` set, if any."""
    references = stored["metadata"].get("ownerReferences") or ()
    return next((reference for reference in references if reference.get("controller")), None)


def ownership(stored: Object, service: InferenceService) -> Ownership:
    """Whose a namesake is: only the uid tells this InferenceService from an earlier one of its name.

    | controller | labels | whose |
    |---|---|---|
    | this InferenceService | any | ours |
    | an earlier one of its name | any | garbage collection's |
    | any other owner | any | theirs |
    | none: stripped, or left behind by kubectl delete --cascade=orphan | as Tailbound sets them | ours |
    | none | others | theirs |
    """
    controller = controller_of(stored)
    if controller is None:
        return Ownership.OURS if _has_our_labels(stored, service) else Ownership.FOREIGN
    if controller.get("uid") == service.metadata.uid:
        return Ownership.OURS
    named_like_us = controller.get("kind") == SERVICE_KIND and controller.get("name") == service.metadata.name
    if named_like_us and str(controller.get("apiVersion", "")).startswith(f"{GROUP}/"):
        return Ownership.PREVIOUS
    return Ownership.FOREIGN


def _has_our_labels(stored: Object, service: InferenceService) -> bool:
    labels = stored["metadata"].get("labels") or {}
    return (labels.get(MANAGED_BY_LABEL), labels.get(SERVICE_LABEL)) == (
        MANAGED_BY_VALUE,
        service.metadata.name,
    )


def owner_reference(service: InferenceService) -> dict[str, Any]:
    """What makes a child ours, and lets garbage collection remove it with us."""
    return {
        "apiVersion": API_VERSION,
        "kind": SERVICE_KIND,
        "name": service.metadata.name,
        "uid": service.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def terminating(stored: Object) -> bool:
    """Deleted, but not gone yet."""
    return "deletionTimestamp" in stored["metadata"]


def revision_of(stored: Object) -> str | None:
    """The revision that a child belongs to; None for a child of the whole service."""
    name = stored["metadata"].get("labels", {}).get(REVISION_LABEL)
    return name if isinstance(name, str) else None


@dataclass(frozen=True)
class OwnedState:
    """One valid service and everything around it."""

    observation: Observation
    service: InferenceService
    _by_name: dict[tuple[str, str], Object] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        for kind, stored in self._children():
            self._by_name[kind, stored["metadata"]["name"]] = stored

    def _children(self) -> Iterator[tuple[str, Object]]:
        seen = self.observation
        groups: tuple[tuple[str, tuple[Object, ...]], ...] = (
            ("ControllerRevision", seen.revisions),
            ("Deployment", seen.deployments),
            ("Service", seen.services),
            ("PodDisruptionBudget", seen.disruption_budgets),
        )
        for kind, members in groups:
            for member in members:
                yield kind, member

    def find(self, kind: str, name: str) -> Object | None:
        """The labelled child of this kind and name, also of another owner."""
        return self._by_name.get((kind, name))

    def ours(self, members: Iterable[Object]) -> Iterator[Object]:
        """Those that this InferenceService controls, terminating ones included."""
        return (member for member in members if ownership(member, self.service) is Ownership.OURS)

    @cached_property
    def stored_revisions(self) -> dict[str, Object]:
        """Our ControllerRevisions by name, those being deleted left out."""
        own = self.ours(self.observation.revisions)
        return {stored["metadata"]["name"]: stored for stored in own if not terminating(stored)}

    @cached_property
    def deployments(self) -> dict[str, Object]:
        """Our Deployments by revision, those being deleted left out."""
        own = self.ours(self.observation.deployments)
        return {name: stored for stored in own if not terminating(stored) and (name := revision_of(stored))}

    @cached_property
    def marks(self) -> dict[str, Marks]:
        """The marks of our ControllerRevisions."""
        return {name: marks_of(stored) for name, stored in self.stored_revisions.items()}

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each of our ControllerRevisions; 0 where it was removed."""
        return {
            name: number if isinstance(number := stored.get("revision"), int) else 0
            for name, stored in self.stored_revisions.items()
        }

    def made_from(self, digest: str, refresh: str) -> str | None:
        """The revision of a spec with this hash; None if one is to be made.

        | refresh is asked for | revisions of this spec | which |
        |---|---|---|
        | any | none | one is to be made |
        | and none was made for it | some | one is to be made |
        | no, or the one for it is not rejected | some are not rejected | the newest of them |
        | yes, and the one for it is rejected | any | that one, or a newer one that is not |
        | no | all are rejected | the newest |

        So a refresh stays made where its annotation is lost, or set back to an earlier value.
        """
        origins = {name: origin_of(stored) for name, stored in self.stored_revisions.items()}
        same = {name: made.refresh for name, made in origins.items() if made and made.spec_hash == digest}
        asked = {name for name, value in same.items() if refresh and value == refresh}
        if not same or (refresh and not asked):
            return None
        fit = [name for name in same if name in asked or self.marks[name].rejected is None]
        return max(fit or same, key=lambda name: (self.numbers[name], name))

    @cached_property
    def next_number(self) -> int:
        """Above every number in use, also of Deployments whose ControllerRevision was deleted."""
        names = (*self.stored_revisions, *self.deployments)
        taken = [
            *self.numbers.values(),
            *(number for name in names if (number := number_in(name)) is not None),
        ]
        return max(taken, default=0) + 1

    @cached_property
    def stable(self) -> str | None:
        """The revision marked as the last that was fully promoted; of several, the one promoted last."""
        marked = [
            (marks.promoted_at or "", name)
            for name, marks in self.marks.items()
            if marks.stable and marks.rejected is None
        ]
        return max(marked)[1] if marked else None

    @cached_property
    def ready_endpoints(self) -> dict[str, int]:
        """How many pods gateways may route to, by revision."""
        return {revision: len(names) for revision, names in self.ready_names.items()}

    @cached_property
    def ready_names(self) -> dict[str, frozenset[str]]:
        """Names of the pods that gateways may route to, by revision; an address where there is no name."""
        found = endpoints_by_revision(self.observation.endpoint_slices)
        return {revision: endpoints.http.ready_pods for revision, endpoints in found.items()}

    @cached_property
    def live_pods(self) -> dict[str, list[Object]]:
        """Pods by revision in order of their names, those being deleted left out."""
        pods: dict[str, list[Object]] = {}
        for pod in sorted(self.observation.pods, key=lambda pod: str(pod["metadata"]["name"])):
            revision = revision_of(pod)
            if revision is not None and not terminating(pod):
                pods.setdefault(revision, []).append(pod)
        return pods

    @property
    def key(self) -> str:
        """NAMESPACE/NAME, as gateways report the service."""
        return f"{self.service.metadata.namespace}/{self.service.metadata.name}"

    @property
    def refresh(self) -> str:
        """The annotation that asks for a new revision of the same spec; empty without one."""
        return self.service.metadata.annotations.get(REFRESH_ANNOTATION, "")

    @property
    def traffic(self) -> TrafficStatus | None:
        """status.traffic as it is stored."""
        return self.service.status.traffic
