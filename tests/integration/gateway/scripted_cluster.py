"""An API server that serves what a test has put into it, and the objects that gateways read."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from tailbound.api.names import OBSERVED_AUDIENCE, REVISION_LABEL, SERVICE_LABEL
from tailbound.kube.errors import Transient
from tailbound.kube.objects import key_of
from tailbound.kube.protocol import Listing, WatchEvent
from tailbound.kube.resources import ENDPOINT_SLICES, INFERENCE_SERVICES, Resource
from tailbound.objects.fields import Object
from tailbound.objects.metadata import KubernetesObject

OPERATOR = "system:serviceaccount:tailbound-system:tailbound-operator"
OPERATOR_TOKEN = "operator-token"
OTHER_TOKEN = "other-token"


def inference_service(
    namespace: str,
    name: str,
    weights: Mapping[str, int] | None,
    *,
    generation: int = 1,
    traffic_generation: int = 1,
    created: str = "2026-01-01T00:00:00Z",
    **spec: Any,
) -> Object:
    traffic = None
    if weights is not None:
        backends = [{"revision": revision, "weight": weight} for revision, weight in weights.items()]
        traffic = {"generation": traffic_generation, "backends": backends}
    return {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": f"{namespace}-{name}",
            "generation": generation,
            "creationTimestamp": created,
        },
        "spec": spec,
        "status": {"traffic": traffic} if traffic else {},
    }


def endpoint_slice(
    namespace: str,
    service: str,
    revision: str,
    endpoints: Sequence[tuple[str, str]],
    ports: Mapping[str, int],
) -> Object:
    """`endpoints` are (address, state), state being ready, starting or draining."""
    conditions = {
        "ready": {"ready": True, "serving": True, "terminating": False},
        "starting": {"ready": False, "serving": False, "terminating": False},
        "draining": {"ready": False, "serving": True, "terminating": True},
    }
    return {
        "metadata": {
            "namespace": namespace,
            "name": f"{revision}-slice",
            "uid": f"{namespace}-{revision}",
            "labels": {SERVICE_LABEL: service, REVISION_LABEL: revision},
        },
        "addressType": "IPv4",
        "ports": [{"name": name, "port": port} for name, port in ports.items()],
        "endpoints": [
            {"addresses": [address], "conditions": conditions[state]} for address, state in endpoints
        ],
    }


class ScriptedCluster:
    """Lists and watches what a test puts in. While `down` it answers nothing."""

    def __init__(self) -> None:
        self.down = False
        self.reviews = 0
        self._version = 0
        self._objects: dict[Resource, dict[tuple[str, str], Object]] = {
            INFERENCE_SERVICES: {},
            ENDPOINT_SLICES: {},
        }
        self._watchers: list[tuple[Resource, asyncio.Queue[WatchEvent | None]]] = []

    def put(self, *objects: Object) -> None:
        for obj in objects:
            self._version += 1
            resource = ENDPOINT_SLICES if "endpoints" in obj else INFERENCE_SERVICES
            stored = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._version)}}
            known = self._objects[resource]
            kind = "MODIFIED" if key_of(stored) in known else "ADDED"
            known[key_of(stored)] = stored
            self._tell(resource, WatchEvent(kind, stored))  # type: ignore[arg-type]

    def remove(self, resource: Resource, namespace: str, name: str) -> None:
        self._version += 1
        gone = self._objects[resource].pop((namespace, name))
        stored = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self._version)}}
        self._tell(resource, WatchEvent("DELETED", stored))

    def forget(self, namespace: str, name: str) -> None:
        """Delete an InferenceService while nobody watches."""
        self._version += 1
        del self._objects[INFERENCE_SERVICES][namespace, name]

    def go_down(self) -> None:
        self.down = True
        for _, queue in self._watchers:
            queue.put_nowait(None)

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Listing:
        if self.down:
            raise Transient("the API server is down")
        known = self._objects[resource].values()
        items = [obj for obj in known if not label_selector or KubernetesObject(obj).label(label_selector)]
        return Listing(tuple(items), str(self._version))

    async def pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncIterator[Listing]:
        yield await self.list(resource, namespace, label_selector, field_selector)

    async def watch(
        self,
        resource: Resource,
        resource_version: str,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: float = 300.0,
    ) -> AsyncIterator[WatchEvent]:
        queue: asyncio.Queue[WatchEvent | None] = asyncio.Queue()
        entry = (resource, queue)
        self._watchers.append(entry)
        for obj in self._objects[resource].values():
            if int(obj["metadata"]["resourceVersion"]) > int(resource_version):
                queue.put_nowait(WatchEvent("MODIFIED", obj))
        try:
            while (event := await queue.get()) is not None:
                yield event
            raise Transient("the API server went down")
        finally:
            self._watchers.remove(entry)

    async def review_token(self, token: str, audiences: Sequence[str]) -> Object:
        self.reviews += 1
        if self.down:
            raise Transient("the API server is down")
        users = {OPERATOR_TOKEN: OPERATOR, OTHER_TOKEN: "system:serviceaccount:risk:default"}
        if token not in users:
            return {"authenticated": False}
        return {
            "authenticated": True,
            "audiences": [OBSERVED_AUDIENCE],
            "user": {"username": users[token]},
        }

    def _tell(self, resource: Resource, event: WatchEvent) -> None:
        for watched, queue in self._watchers:
            if watched == resource:
                queue.put_nowait(event)
