"""What the operator knows: one store per watched kind, and which services a change concerns.

Three sources feed them: watches, the periodic full lists, and the responses of our own writes.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from tailbound.api.hosts import HostPolicy
from tailbound.api.names import CACHE_LABEL, SERVICE_LABEL
from tailbound.autoscale.model import CapacityKey
from tailbound.controller.hosts import HostLedger
from tailbound.kube.objects import Key, key_of
from tailbound.kube.resources import (
    CLAIMS,
    CLUSTER_SERVING_RUNTIMES,
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    DISRUPTION_BUDGETS,
    ENDPOINT_SLICES,
    HARDWARE_CLASSES,
    HOST_GRANTS,
    INFERENCE_SERVICES,
    JOBS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    SERVICES,
    SERVING_RUNTIMES,
    Resource,
)
from tailbound.kube.store import ObjectStore
from tailbound.objects.fields import Object, child
from tailbound.objects.metadata import KubernetesObject
from tailbound.reconcile import capacity
from tailbound.reconcile.model import Children
from tailbound.revisions.marks import marks_of

CHILDREN: Final = (
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    SERVICES,
    DISRUPTION_BUDGETS,
    PODS,
    ENDPOINT_SLICES,
    JOBS,
    RESOURCE_CLAIM_TEMPLATES,
)
OF_EACH_SERVICE: Final = (INFERENCE_SERVICES, *CHILDREN, CLAIMS)
"""Kinds of which each service has objects: there are as many as the fleet is large. A claim is a child of no
single service: all of its namespace with the same model share it."""
SHARED: Final = (SERVING_RUNTIMES, CLUSTER_SERVING_RUNTIMES, HARDWARE_CLASSES, HOST_GRANTS)
"""Kinds whose objects services share: there are few, and any of them may concern all services."""
OPTIONAL: Final = frozenset({RESOURCE_CLAIM_TEMPLATES, DEVICE_CLASSES})
"""Kinds that not every API server has."""
SELECTORS: Final[Mapping[Resource, str]] = MappingProxyType(
    {**dict.fromkeys(CHILDREN, SERVICE_LABEL), CLAIMS: CACHE_LABEL}
)
"""The labels that select objects on the server, by kind: other people's pods never reach this process."""


class Stores:
    """Every store of one operator. `enqueue(key)` is called for each service that a change concerns."""

    def __init__(
        self,
        enqueue: Callable[[Key], None],
        cluster_domain: str = "cluster.local",
        host_policy: HostPolicy = HostPolicy.OPEN,
    ) -> None:
        self._enqueue = enqueue
        self.of: Mapping[Resource, ObjectStore] = MappingProxyType(
            {resource: self._store(resource) for resource in (*SHARED, *OF_EACH_SERVICE, DEVICE_CLASSES)}
        )
        self._absent: set[Resource] = set(OPTIONAL)
        self._by_name: dict[Resource, Mapping[str, Object]] = {}
        for resource in (*SHARED, DEVICE_CLASSES):
            self.of[resource].subscribe(partial(self._forget_by_name, resource))
        self.hosts = HostLedger(
            self.of[INFERENCE_SERVICES], self.of[HOST_GRANTS], cluster_domain, host_policy, enqueue
        )
        # In the operator's own namespace, watched apart: these pods carry no service label.
        self.gateway_pods = ObjectStore()

    def service(self, key: Key) -> Object | None:
        """One InferenceService, or None."""
        return self.of[INFERENCE_SERVICES].get(*key)

    def enqueue_all(self) -> None:
        """Reconcile every service."""
        for service in self.of[INFERENCE_SERVICES]:
            self._enqueue(key_of(service))

    def children(self, key: Key) -> Children:
        """Every child of one service: labelled with its name, or controlled by a service of that name."""
        return Children(*(self.of[resource].indexed(key) for resource in CHILDREN))

    def deployments(self, key: Key) -> tuple[Object, ...]:
        """The Deployments of one service."""
        return self.of[DEPLOYMENTS].indexed(key)

    def claims(self, namespace: str) -> tuple[Object, ...]:
        """The PersistentVolumeClaims of one namespace that cache models."""
        return self.of[CLAIMS].indexed(namespace)

    def learned_like(self, revision: Object) -> tuple[Object, ...]:
        """ControllerRevisions of its namespace with a learned capacity of the same model and class."""
        return tuple(
            each for value in _capacities(revision) for each in self.of[CONTROLLER_REVISIONS].indexed(value)
        )

    def runtimes(self, namespace: str) -> Mapping[str, Object]:
        """ServingRuntimes of one namespace by name."""
        found = self.of[SERVING_RUNTIMES].indexed(namespace)
        return {key_of(runtime)[1]: runtime for runtime in found}

    def cluster_wide(self, resource: Resource) -> Mapping[str, Object]:
        """Objects of a cluster-wide kind by name; the same mapping until one of them changes."""
        known = self._by_name.get(resource)
        if known is None:
            made = {key_of(obj)[1]: obj for obj in self.of[resource]}
            known = self._by_name[resource] = MappingProxyType(made)
        return known

    def serves(self, resource: Resource) -> bool:
        """Whether the API server has this kind, as far as that is known."""
        return resource not in self._absent

    def heard_whether_served(self, resource: Resource, served: bool) -> None:
        """Record whether the API server has this kind. If that is news, services are decided on again."""
        if served is self.serves(resource):
            return
        self._absent ^= {resource}
        self.enqueue_all()

    def _store(self, resource: Resource) -> ObjectStore:
        made = {
            CONTROLLER_REVISIONS: (self._child_changed, _index_of_revision),
            **{
                each: (self._child_changed, _services_of) for each in CHILDREN if each != CONTROLLER_REVISIONS
            },
            CLAIMS: (self._claim_changed, _namespace_of),
            INFERENCE_SERVICES: (self._service_changed, _namespace_of),
            SERVING_RUNTIMES: (self._runtime_changed, _namespace_of),
        }
        if resource in made:
            return ObjectStore(*made[resource])
        return ObjectStore() if resource == HOST_GRANTS else ObjectStore(self._class_changed)

    def _forget_by_name(self, resource: Resource, _old: Object | None, _new: Object | None) -> None:
        self._by_name.pop(resource, None)

    def _class_changed(self, old: Object | None, new: Object | None) -> None:
        """A change of the status alone concerns no service."""
        if old is None or new is None or _written(old) != _written(new):
            self.enqueue_all()

    def _service_changed(self, old: Object | None, new: Object | None) -> None:
        for obj in (old, new):
            if obj is not None:
                self._enqueue(key_of(obj))
                return

    def _child_changed(self, old: Object | None, new: Object | None) -> None:
        """A service that is not there yet, as while a new process lists what exists, comes by itself."""
        for key in {key for obj in (old, new) if obj is not None for key in _services_of(obj)}:
            if self.service(key) is not None:
                self._enqueue(key)

    def _claim_changed(self, old: Object | None, new: Object | None) -> None:
        """Concerns the services whose revisions or Jobs own it. One without such an owner is garbage."""
        owners = {
            (view.namespace, owner.name)
            for view in (KubernetesObject(obj) for obj in (old, new) if obj is not None)
            for owner in view.owners
        }
        for namespace, name in owners:
            for resource in (CONTROLLER_REVISIONS, JOBS):
                self._child_changed(self.of[resource].get(namespace, name), None)

    def _runtime_changed(self, old: Object | None, new: Object | None) -> None:
        namespaces = {key_of(obj)[0] for obj in (old, new) if obj is not None}
        for namespace in namespaces:
            for service in self.of[INFERENCE_SERVICES].indexed(namespace):
                self._enqueue(key_of(service))


def _written(obj: Object) -> tuple[object, object]:
    """The parts of an object that users write."""
    return child(obj, "spec"), KubernetesObject(obj).annotations


def _namespace_of(obj: Object) -> Iterable[Hashable]:
    return (key_of(obj)[0],)


def _index_of_revision(obj: Object) -> Iterable[Hashable]:
    learned = _capacities(obj) if marks_of(obj).capacity is not None else ()
    return (*_services_of(obj), *learned)


def _capacities(revision: Object) -> tuple[tuple[str, CapacityKey], ...]:
    """Whose learned capacity a ControllerRevision shares, with its namespace; nothing if it is corrupt."""
    key = capacity.key_of(revision)
    return () if key is None else ((key_of(revision)[0], key),)


def _services_of(obj: Object) -> set[Key]:
    """The services that a child belongs to. Without its label it is still found by its owner."""
    view = KubernetesObject(obj)
    controller = view.controller
    owner = controller.name if controller is not None and controller.kind == INFERENCE_SERVICES.kind else None
    return {(view.namespace, name) for name in (view.label(SERVICE_LABEL), owner) if name}
