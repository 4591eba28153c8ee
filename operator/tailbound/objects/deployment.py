"""The view of a Deployment."""

from collections.abc import Mapping
from dataclasses import dataclass

from tailbound.objects.fields import Field, child, count
from tailbound.objects.metadata import KubernetesObject


@dataclass(frozen=True)
class Deployment(KubernetesObject):
    """A Deployment."""

    replicas = Field(count, "spec", "replicas")
    """Pods that are asked for."""

    @property
    def pod_annotations(self) -> Mapping[str, str]:
        """The annotations of the pods that it makes."""
        return KubernetesObject(child(self.raw, "spec", "template")).annotations

    status_replicas = Field(count, "status", "replicas")
    """Pods that exist and are not being deleted."""
    ready_replicas = Field(count, "status", "readyReplicas")
    """The number of its pods that are Ready."""
