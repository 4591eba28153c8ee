"""The existing objects of one service, by owner and by revision."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
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
from tailbound.objects.deployment import Deployment
from tailbound.objects.fields import Object
from tailbound.objects.kubectl import Commands
from tailbound.objects.metadata import KubernetesObject
from tailbound.objects.pod import Pod
from tailbound.reconcile import model_caches
from tailbound.reconcile.model import Observation
from tailbound.reconcile.pod_classes import of_present_class
from tailbound.reconcile.pods import PodsReport, report
from tailbound.revisions.identity import number_in
from tailbound.revisions.marks import Marks, marks_of
from tailbound.revisions.model_cache import claim_of
from tailbound.revisions.record import CorruptRevisionError, Revision, from_object, origin_of
from tailbound.traffic.endpoints import endpoints_by_revision

SERVICE_KIND: Final = "InferenceService"


class Ownership(Enum):
    """Whose an object is."""

    OURS = "ours"
    PREVIOUS = "previous"  # of a deleted InferenceService of this name: garbage collection will remove it
    FOREIGN = "foreign"


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
    view = KubernetesObject(stored)
    controller = view.controller
    if controller is None:
        return Ownership.OURS if _has_our_labels(view, service) else Ownership.FOREIGN
    if controller.uid == service.metadata.uid:
        return Ownership.OURS
    named_like_us = controller.kind == SERVICE_KIND and controller.name == service.metadata.name
    if named_like_us and controller.api_version.startswith(f"{GROUP}/"):
        return Ownership.PREVIOUS
    return Ownership.FOREIGN


def _has_our_labels(stored: KubernetesObject, service: InferenceService) -> bool:
    return (stored.label(MANAGED_BY_LABEL), stored.label(SERVICE_LABEL)) == (
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
    return KubernetesObject(stored).terminating


def revision_of(stored: Object) -> str | None:
    """The revision that a child belongs to; None for a child of the whole service."""
    return KubernetesObject(stored).label(REVISION_LABEL)


def _is_of_a_job(pod: Pod) -> bool:
    return pod.controller is not None and pod.controller.kind == "Job"


def _read(stored: Object) -> Revision | CorruptRevisionError:
    try:
        return from_object(stored)
    except CorruptRevisionError as corrupt:
        return corrupt


@dataclass(frozen=True)
class OwnedState:
    """One valid service and everything around it."""

    observation: Observation
    service: InferenceService

    @cached_property
    def _by_name(self) -> dict[tuple[str, str], Object]:
        seen = self.observation.children
        groups: tuple[tuple[str, tuple[Object, ...]], ...] = (
            ("ControllerRevision", seen.revisions),
            ("Deployment", seen.deployments),
            ("Service", seen.services),
            ("PodDisruptionBudget", seen.disruption_budgets),
            ("Job", seen.jobs),
            ("ResourceClaimTemplate", seen.claim_templates),
            (model_caches.KIND, self.observation.claims),
        )
        return {
            (kind, KubernetesObject(member).name): member for kind, members in groups for member in members
        }

    def find(self, kind: str, name: str) -> Object | None:
        """The labelled child of this kind and name, also of another owner."""
        return self._by_name.get((kind, name))

    def whose(self, kind: str, live: Object) -> Ownership:
        """Whose an object is that has the kind and the name of one of ours."""
        if kind == model_caches.KIND:
            return Ownership.OURS if model_caches.is_cache(live) else Ownership.FOREIGN
        return self._ownership(live)

    def ours(self, members: Iterable[Object]) -> Iterator[Object]:
        """The objects that this InferenceService controls, terminating ones included."""
        return (member for member in members if self._ownership(member) is Ownership.OURS)

    def _ownership(self, live: Object) -> Ownership:
        """Whose an object is; many passes ask about each."""
        known = self._ownerships.get(id(live))
        if known is None:
            # With the object itself: while it is here, no other one gets its identity.
            known = self._ownerships[id(live)] = (ownership(live, self.service), live)
        return known[0]

    @cached_property
    def _ownerships(self) -> dict[int, tuple[Ownership, Object]]:
        """What `_ownership` has found so far, by the identity of the object."""
        return {}

    @cached_property
    def revisions(self) -> dict[str, Revision | CorruptRevisionError]:
        """What `stored_revisions` hold, or what is wrong with one of them, by name."""
        return {name: _read(stored) for name, stored in self.stored_revisions.items()}

    def revision(self, name: str | None) -> Revision | None:
        """A stored revision; None if it is gone or cannot be read: then it is left alone."""
        found = self.revisions.get(name) if name is not None else None
        return found if isinstance(found, Revision) else None

    @cached_property
    def stored_revisions(self) -> dict[str, Object]:
        """Our ControllerRevisions by name, those being deleted left out."""
        own = self.ours(self.observation.children.revisions)
        return {KubernetesObject(stored).name: stored for stored in own if not terminating(stored)}

    @cached_property
    def deployments(self) -> dict[str, Deployment]:
        """Our Deployments by revision, those being deleted left out."""
        own = (Deployment(stored) for stored in self.ours(self.observation.children.deployments))
        return {name: each for each in own if not each.terminating and (name := each.label(REVISION_LABEL))}

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
        found = endpoints_by_revision(self.observation.children.endpoint_slices)
        return {revision: endpoints.http.ready_pods for revision, endpoints in found.items()}

    @cached_property
    def pods(self) -> tuple[Pod, ...]:
        """The pods of all revisions in order of their names, those being deleted included."""
        return tuple(pod for pod in self._all_pods if not _is_of_a_job(pod))

    def pods_of_job(self, uid: str) -> tuple[Pod, ...]:
        """The pods of the Job of this uid in order of their names."""
        found = (pod for pod in self._all_pods if pod.controller is not None and pod.controller.uid == uid)
        return tuple(found)

    @cached_property
    def _all_pods(self) -> tuple[Pod, ...]:
        return tuple(sorted(map(Pod, self.observation.children.pods), key=lambda pod: pod.name))

    @cached_property
    def live_pods(self) -> dict[str, list[Pod]]:
        """Pods by revision in order of their names, those being deleted left out."""
        pods: dict[str, list[Pod]] = {}
        for pod in self.pods:
            revision = pod.label(REVISION_LABEL)
            if revision is not None and not pod.terminating:
                pods.setdefault(revision, []).append(pod)
        return pods

    @cached_property
    def reports(self) -> dict[str, PodsReport]:
        """What the pods of each revision are at, of those that have a pod or a Deployment."""
        return {name: self._report(name) for name in {*self.live_pods, *self.deployments}}

    def _report(self, name: str) -> PodsReport:
        revision = self.revision(name)
        pods = of_present_class(self.live_pods.get(name, ()), revision)
        found = report(pods, self.deployments.get(name))
        claim = claim_of(revision) if revision is not None else None
        obstacle = model_caches.finding_of(self.find(model_caches.KIND, claim), pods) if claim else None
        return found if obstacle is None else replace(found, findings=(obstacle, *found.findings))

    @property
    def key(self) -> str:
        """NAMESPACE/NAME, as gateways report the service."""
        return f"{self.service.metadata.namespace}/{self.service.metadata.name}"

    @property
    def commands(self) -> Commands:
        """Commands about the service, for messages."""
        return Commands(self.service.metadata.namespace, self.service.metadata.name)

    @property
    def refresh(self) -> str:
        """The annotation that asks for a new revision of the same spec; empty without one."""
        return self.service.metadata.annotations.get(REFRESH_ANNOTATION, "")

    @property
    def traffic(self) -> TrafficStatus | None:
        """status.traffic as it is stored."""
        return self.service.status.traffic
