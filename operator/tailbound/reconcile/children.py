"""The objects that a service consists of, as they should be."""

import json
from typing import Any, Final

from tailbound.api.inferenceservice import InferenceService
from tailbound.api.names import (
    HARDWARE_CLASS_ANNOTATION,
    MANAGED_BY_LABEL,
    MANAGED_BY_VALUE,
    REVISION_LABEL,
    SERVICE_LABEL,
)
from tailbound.api.runtime_contract import GRPC_PORT_NAME, HTTP_PORT_NAME, SERVER_CONTAINER
from tailbound.reconcile.model import Settings
from tailbound.reconcile.owned_state import owner_reference
from tailbound.revisions.claims import ClaimTemplate
from tailbound.revisions.record import Revision

# Kubernetes' own default, written out: after this time a Deployment says that it makes no progress.
_PROGRESS_DEADLINE_SECONDS: Final = 600
# ReplicaSets that `kubectl rollout undo` can return to after a `kubectl rollout restart`.
_REPLICA_SETS_KEPT: Final = 2
_FRONT_PORT: Final = 80


def front_service(service: InferenceService, settings: Settings, name: str) -> dict[str, Any]:
    """Service NAME or NAME-preview: a name by which the cluster knows the service leads to the gateway."""
    gateway = f"{settings.gateway_service}.{settings.operator_namespace}.svc.{settings.cluster_domain}"
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(service, name),
        "spec": {
            "type": "ExternalName",
            "externalName": gateway,
            "ports": [{"name": "http", "port": _FRONT_PORT, "protocol": "TCP", "targetPort": _FRONT_PORT}],
        },
    }


def revision_service(
    service: InferenceService, revision: Revision, template: dict[str, Any]
) -> dict[str, Any]:
    """Headless Service of one revision: its EndpointSlices are what gateways route to."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(service, revision.name, revision.name),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": False,
            "selector": {REVISION_LABEL: revision.name},
            "ports": [
                {
                    "name": port["name"],
                    "port": port["containerPort"],
                    "protocol": "TCP",
                    "targetPort": port["name"],
                }
                for port in _server_ports(template)
                if port["name"] in (HTTP_PORT_NAME, GRPC_PORT_NAME)
            ],
        },
    }


def claim_template(service: InferenceService, revision: Revision, claim: ClaimTemplate) -> dict[str, Any]:
    """ResourceClaimTemplate from which each pod gets a claim of its own."""
    metadata = _metadata(service, claim.name, revision.name)
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {**metadata, "annotations": {HARDWARE_CLASS_ANNOTATION: claim.hardware_class}},
        "spec": {"spec": json.loads(claim.spec_json)},
    }


def deployment(
    service: InferenceService, revision: Revision, template: dict[str, Any], replicas: int
) -> dict[str, Any]:
    """Deployment of one revision, made from the stored template.

    Pods are replaced one by one and never before their successor is ready (`kubectl rollout restart`, a
    lost node): the SLA comes before a spare device, and without one the new pod says Unschedulable while
    the old serves.
    """
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(service, revision.name, revision.name),
        "spec": {
            "replicas": replicas,
            "paused": False,  # `kubectl rollout pause` would hold up a change of the hardware class
            "revisionHistoryLimit": _REPLICA_SETS_KEPT,
            "progressDeadlineSeconds": _PROGRESS_DEADLINE_SECONDS,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "selector": {"matchLabels": {REVISION_LABEL: revision.name}},
            "template": template,
        },
    }


def disruption_budget(service: InferenceService, revision: Revision) -> dict[str, Any]:
    """One pod of a revision at a time may be evicted, and one that serves nothing at any time."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(service, revision.name, revision.name),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": {REVISION_LABEL: revision.name}},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def _metadata(service: InferenceService, name: str, revision: str | None = None) -> dict[str, Any]:
    labels = {MANAGED_BY_LABEL: MANAGED_BY_VALUE, SERVICE_LABEL: service.metadata.name}
    if revision is not None:
        labels[REVISION_LABEL] = revision
    return {
        "name": name,
        "namespace": service.metadata.namespace,
        "labels": labels,
        "ownerReferences": [owner_reference(service)],
    }


def _server_ports(template: dict[str, Any]) -> list[dict[str, Any]]:
    containers: list[dict[str, Any]] = template["spec"]["containers"]
    ports: list[dict[str, Any]] = next(c for c in containers if c["name"] == SERVER_CONTAINER)["ports"]
    return ports
