"""Which pods are gateways of this installation: by their labels, and by the Deployment that made them."""

from tailbound.api.names import (
    APPLICATION,
    APPLICATION_LABEL,
    COMPONENT_LABEL,
    GATEWAY_COMPONENT,
    INSTANCE_LABEL,
)
from tailbound.objects.fields import Object
from tailbound.objects.metadata import KubernetesObject


def selector(release: str) -> str:
    """The label selector of the gateway pods of this release."""
    labels = {APPLICATION_LABEL: APPLICATION, INSTANCE_LABEL: release, COMPONENT_LABEL: GATEWAY_COMPONENT}
    return ",".join(f"{name}={value}" for name, value in labels.items())


def made_by(pod: Object, deployment: str) -> bool:
    """Whether a ReplicaSet of this Deployment controls the pod: labels alone can be on any pod."""
    owner = KubernetesObject(pod).controller
    if owner is None or owner.kind != "ReplicaSet" or not owner.api_version.startswith("apps/"):
        return False
    name, _, _template_hash = owner.name.rpartition("-")
    return name == deployment
