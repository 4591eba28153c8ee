"""The API server as the scenarios use it: objects are dicts, and absence is None."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from kubernetes import config
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import NotFoundError

Object = dict[str, Any]

# Field manager of what a scenario writes, where kubectl is not the point.
SCENARIO_MANAGER: Final = "scenario"
MERGE_PATCH: Final = "application/merge-patch+json"
REQUEST_SECONDS: Final = 30

# Where each kind lives. Scenarios name kinds by one word.
API_VERSIONS: Final[Mapping[str, str]] = {
    "ConfigMap": "v1",
    "Event": "v1",
    "Namespace": "v1",
    "Node": "v1",
    "Pod": "v1",
    "PersistentVolume": "v1",
    "PersistentVolumeClaim": "v1",
    "Secret": "v1",
    "Service": "v1",
    "ServiceAccount": "v1",
    "ResourceQuota": "v1",
    "ControllerRevision": "apps/v1",
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "DeviceClass": "resource.k8s.io/v1",
    "ResourceClaim": "resource.k8s.io/v1",
    "ResourceClaimTemplate": "resource.k8s.io/v1",
    "ResourceSlice": "resource.k8s.io/v1",
    "EndpointSlice": "discovery.k8s.io/v1",
    "PodDisruptionBudget": "policy/v1",
    "Job": "batch/v1",
    "Lease": "coordination.k8s.io/v1",
    "HorizontalPodAutoscaler": "autoscaling/v2",
    "RoleBinding": "rbac.authorization.k8s.io/v1",
    "ClusterRole": "rbac.authorization.k8s.io/v1",
    "ClusterRoleBinding": "rbac.authorization.k8s.io/v1",
    "APIService": "apiregistration.k8s.io/v1",
    "CustomResourceDefinition": "apiextensions.k8s.io/v1",
    "InferenceService": "tailbound.dev/v1alpha1",
    "HardwareClass": "tailbound.dev/v1alpha1",
    "HostGrant": "tailbound.dev/v1alpha1",
    "ServingRuntime": "tailbound.dev/v1alpha1",
    "ClusterServingRuntime": "tailbound.dev/v1alpha1",
}


class Api:
    """One connection to the cluster under test. Every request has a time limit."""

    def __init__(self, kubeconfig: Path, cache: Path) -> None:
        """`cache` is a file for discovery; workers running side by side must not share it."""
        self._client = config.new_client_from_config(str(kubeconfig))
        self._dynamic = DynamicClient(self._client, cache_file=str(cache))

    def _resource(self, kind: str) -> Any:
        return self._dynamic.resources.get(api_version=API_VERSIONS[kind], kind=kind)

    def get(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """The object, or None if there is none of that name."""
        try:
            found = self._resource(kind).get(name=name, namespace=namespace, _request_timeout=REQUEST_SECONDS)
        except NotFoundError:
            return None
        return dict(found.to_dict())

    def need(self, kind: str, name: str, namespace: str | None = None) -> Object:
        """The object; AssertionError if there is none."""
        found = self.get(kind, name, namespace)
        assert found is not None, f"{kind} {namespace}/{name} does not exist"
        return found

    def list(self, kind: str, namespace: str | None = None, selector: str | None = None) -> list[Object]:
        """Every object of a kind, in one namespace or in all."""
        found = self._resource(kind).get(
            namespace=namespace, label_selector=selector, _request_timeout=REQUEST_SECONDS
        )
        return [dict(item) for item in found.to_dict()["items"]]

    def create(self, body: Object) -> Object:
        """POST: fails if the object exists."""
        resource = self._resource(body["kind"])
        return dict(
            resource.create(
                body=body,
                namespace=body["metadata"].get("namespace"),
                field_manager=SCENARIO_MANAGER,
                _request_timeout=REQUEST_SECONDS,
            ).to_dict()
        )

    def apply(self, body: Object) -> Object:
        """Server-side apply, forced, as a user's pipeline does it."""
        resource = self._resource(body["kind"])
        return dict(
            resource.server_side_apply(
                body=body,
                name=body["metadata"]["name"],
                namespace=body["metadata"].get("namespace"),
                field_manager=SCENARIO_MANAGER,
                force_conflicts=True,
                _request_timeout=REQUEST_SECONDS,
            ).to_dict()
        )

    def patch(
        self, kind: str, name: str, namespace: str | None, body: Object, *, subresource: str | None = None
    ) -> Object:
        """Merge patch."""
        resource = self._resource(kind)
        if subresource is not None:
            resource = resource.subresources[subresource]
        return dict(
            resource.patch(
                body=body,
                name=name,
                namespace=namespace,
                content_type=MERGE_PATCH,
                field_manager=SCENARIO_MANAGER,
                _request_timeout=REQUEST_SECONDS,
            ).to_dict()
        )

    def delete(
        self, kind: str, name: str, namespace: str | None = None, *, grace_seconds: int | None = None
    ) -> None:
        """Delete in the background; a missing object is fine."""
        body: Object = {"propagationPolicy": "Background"}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        try:
            self._resource(kind).delete(
                name=name, namespace=namespace, body=body, _request_timeout=REQUEST_SECONDS
            )
        except NotFoundError:
            return

    def log(
        self, namespace: str, pod: str, container: str, *, lines: int = 60, previous: bool = False
    ) -> str:
        """The end of a container's log; why there is none, otherwise."""
        query = urlencode({"container": container, "tailLines": lines, "previous": str(previous).lower()})
        try:
            return self.raw("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}/log?{query}")[1].decode(
                errors="replace"
            )
        except RefusedError as refused:
            return f"({refused})"

    def raw(
        self,
        method: str,
        path: str,
        body: bytes | Object | None = None,
        *,
        timeout_seconds: float = REQUEST_SECONDS,
    ) -> tuple[int, bytes]:
        """One request to any path of the API server, its proxies included. RefusedError from 400 upward."""
        headers = {"Accept": "*/*"}
        if isinstance(body, dict):
            headers["Content-Type"] = "application/json"
            body = json.dumps(body).encode()
        elif body is not None:
            headers["Content-Type"] = "application/octet-stream"
        request = self._client.param_serialize(
            method, path, header_params=headers, auth_settings=["BearerToken"]
        )
        verb, url, sent_headers = request[0], request[1], request[2]
        try:
            response = self._client.rest_client.pool_manager.request(
                verb, url, body=body, headers=sent_headers, timeout=timeout_seconds, retries=False
            )
        except ApiException as error:
            raise RefusedError(error.status or 0, str(error.body)) from error
        if response.status >= 400:
            raise RefusedError(response.status, response.data.decode(errors="replace"))
        return response.status, response.data

    def proxy(
        self,
        namespace: str,
        service: str,
        path: str,
        *,
        method: str = "GET",
        body: bytes | Object | None = None,
    ) -> bytes:
        """One request to a port of a Service (`NAME:PORT`) through the API server."""
        return self.raw(method, f"/api/v1/namespaces/{namespace}/services/{service}/proxy{path}", body)[1]


class RefusedError(Exception):
    """The API server, or what it proxies to, answered with an error status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"HTTP {status}: {text[:2000]}")
        self.status = status
        self.text = text


def conditions(service: Object) -> dict[str, Object]:
    """The conditions of an object by type; empty before the first status."""
    return {condition["type"]: condition for condition in service.get("status", {}).get("conditions", [])}


def container_states(pod: Object) -> Iterator[tuple[str, Object]]:
    """Name and status of every container of a pod, init containers first."""
    status = pod.get("status", {})
    for field in ("initContainerStatuses", "containerStatuses"):
        for state in status.get(field) or []:
            yield state["name"], state


def names(objects: Sequence[Object]) -> list[str]:
    """Sorted names of objects."""
    return sorted(item["metadata"]["name"] for item in objects)
