"""What the operator knows: one store per watched kind, and which services a change concerns.

Three sources feed them: watches, the periodic full lists, and the responses of our own writes.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final

from tailbound.api.names import COMPONENT_LABEL, GATEWAY_COMPONENT, SERVICE_LABEL
from tailbound.kube.objects import Key, controller_of, key_of, label
from tailbound.kube.protocol import Object
from tailbound.kube.resources import (
    CLUSTER_SERVING_RUNTIMES,
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    ENDPOINT_SLICES,
    HARDWARE_CLASSES,
    INFERENCE_SERVICES,
    PODS,
    SERVICES,
    SERVING_RUNTIMES,
    Resource,
)
from tailbound.kube.store import ObjectStore

CHILDREN: Final = (
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    SERVICES,
    DISRUPTION_BUDGETS,
    PODS,
    ENDPOINT_SLICES,
)
INPUTS: Final = (INFERENCE_SERVICES, SERVING_RUNTIMES, CLUSTER_SERVING_RUNTIMES, HARDWARE_CLASSES)
WATCHED: Final = INPUTS + CHILDREN
# Children are watched through a server-side selector: other people's pods never reach this process.
CHILD_SELECTOR: Final = SERVICE_LABEL
GATEWAY_SELECTOR: Final = f"{COMPONENT_LABEL}={GATEWAY_COMPONENT}"


def selector_of(resource: Resource) -> str:
    """The label selector with which a kind is listed and watched; empty for what people write."""
    return CHILD_SELECTOR if resource in CHILDREN else ""


@dataclass(frozen=True)
class Children:
    """What is stored beside one service."""

    revisions: tuple[Object, ...]
    deployments: tuple[Object, ...]
    services: tuple[Object, ...]
    disruption_budgets: tuple[Object, ...]
    pods: tuple[Object, ...]
    endpoint_slices: tuple[Object, ...]


class Stores:
    """Every store of one operator. `enqueue(key)` is called for each service that a change concerns."""

    def __init__(self, enqueue: Callable[[Key], None]) -> None:
        self._enqueue = enqueue
        self.of: Mapping[Resource, ObjectStore] = MappingProxyType(
            {resource: self._store(resource) for resource in WATCHED}
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

    def revisions(self, namespace: str) -> tuple[Object, ...]:
        """The ControllerRevisions of all services of one namespace."""
        return self.of[CONTROLLER_REVISIONS].indexed(namespace)

    def runtimes(self, namespace: str) -> Mapping[str, Object]:
        """ServingRuntimes of one namespace by name."""
        found = self.of[SERVING_RUNTIMES].indexed(namespace)
        return {key_of(runtime)[1]: runtime for runtime in found}

    def cluster_wide(self, resource: Resource) -> Mapping[str, Object]:
        """Objects of a cluster-wide kind by name."""
        return {key_of(obj)[1]: obj for obj in self.of[resource]}

    def _store(self, resource: Resource) -> ObjectStore:
        if resource is CONTROLLER_REVISIONS:
            return ObjectStore(self._child_changed, index=lambda obj: (*_services_of(obj), key_of(obj)[0]))
        if resource in CHILDREN:
            return ObjectStore(self._child_changed, index=_services_of)
        if resource is INFERENCE_SERVICES:
            return ObjectStore(self._service_changed)
        if resource is SERVING_RUNTIMES:
            return ObjectStore(self._runtime_changed, index=_namespace_of)
        return ObjectStore(partial(_always, self.enqueue_all))

    def _service_changed(self, old: Object | None, new: Object | None) -> None:
        for obj in (old, new):
            if obj is not None:
                self._enqueue(key_of(obj))
                return

    def _child_changed(self, old: Object | None, new: Object | None) -> None:
        for key in {key for obj in (old, new) if obj is not None for key in _services_of(obj)}:
            self._enqueue(key)

    def _runtime_changed(self, old: Object | None, new: Object | None) -> None:
        namespaces = {key_of(obj)[0] for obj in (old, new) if obj is not None}
        for service in self.of[INFERENCE_SERVICES]:
            if key_of(service)[0] in namespaces:
                self._enqueue(key_of(service))


def _always(action: Callable[[], None], _old: Object | None, _new: Object | None) -> None:
    action()


def _namespace_of(obj: Object) -> Iterable[Hashable]:
    return (key_of(obj)[0],)


def _services_of(obj: Object) -> set[Key]:
    """The services that a child belongs to. Without its label it is still found by its owner."""
    namespace = key_of(obj)[0]
    controller = controller_of(obj) or {}
    owner = controller.get("name") if controller.get("kind") == INFERENCE_SERVICES.kind else None
    return {(namespace, str(name)) for name in (label(obj, SERVICE_LABEL), owner) if name}
