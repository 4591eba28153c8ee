"""The API group, version and plural of each kind that Tailbound reads or writes."""

from dataclasses import dataclass
from typing import Final

from tailbound.api.names import API_VERSION


@dataclass(frozen=True)
class Resource:
    """One kind of the API and its place in URLs."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """URL path of one object, or of the collection. Without a namespace: of all namespaces."""
        root = f"/api/{self.api_version}" if "/" not in self.api_version else f"/apis/{self.api_version}"
        parts = [root]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/".join(parts)


INFERENCE_SERVICES: Final = Resource(API_VERSION, "InferenceService", "inferenceservices")
SERVING_RUNTIMES: Final = Resource(API_VERSION, "ServingRuntime", "servingruntimes")
CLUSTER_SERVING_RUNTIMES: Final = Resource(
    API_VERSION, "ClusterServingRuntime", "clusterservingruntimes", namespaced=False
)
HARDWARE_CLASSES: Final = Resource(API_VERSION, "HardwareClass", "hardwareclasses", namespaced=False)
HOST_GRANTS: Final = Resource(API_VERSION, "HostGrant", "hostgrants", namespaced=False)
CONTROLLER_REVISIONS: Final = Resource("apps/v1", "ControllerRevision", "controllerrevisions")
DEPLOYMENTS: Final = Resource("apps/v1", "Deployment", "deployments")
SERVICES: Final = Resource("v1", "Service", "services")
NODES: Final = Resource("v1", "Node", "nodes", namespaced=False)
PODS: Final = Resource("v1", "Pod", "pods")
ENDPOINT_SLICES: Final = Resource("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")
DISRUPTION_BUDGETS: Final = Resource("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
RESOURCE_CLAIM_TEMPLATES: Final = Resource(
    "resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates"
)
DEVICE_CLASSES: Final = Resource("resource.k8s.io/v1", "DeviceClass", "deviceclasses", namespaced=False)
JOBS: Final = Resource("batch/v1", "Job", "jobs")
CLAIMS: Final = Resource("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
EVENTS: Final = Resource("v1", "Event", "events")
LEASES: Final = Resource("coordination.k8s.io/v1", "Lease", "leases")
TOKEN_REVIEWS: Final = Resource("authentication.k8s.io/v1", "TokenReview", "tokenreviews", namespaced=False)

_ALL: Final = (
    INFERENCE_SERVICES,
    SERVING_RUNTIMES,
    CLUSTER_SERVING_RUNTIMES,
    HARDWARE_CLASSES,
    HOST_GRANTS,
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    SERVICES,
    PODS,
    ENDPOINT_SLICES,
    DISRUPTION_BUDGETS,
    RESOURCE_CLAIM_TEMPLATES,
    DEVICE_CLASSES,
    JOBS,
    CLAIMS,
    EVENTS,
    LEASES,
    TOKEN_REVIEWS,
)
_BY_KIND: Final = {(resource.api_version, resource.kind): resource for resource in _ALL}


def resource_of(api_version: str, kind: str) -> Resource:
    """The resource of an object's apiVersion and kind. A kind that Tailbound never writes is a ValueError."""
    try:
        return _BY_KIND[api_version, kind]
    except KeyError:
        raise ValueError(f"{api_version} {kind} is not a kind that Tailbound knows") from None
