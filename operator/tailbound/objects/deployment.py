"""The view of a Deployment."""

from collections.abc import Mapping
from dataclasses import dataclass

from tailbound.objects.fields import child, number
from tailbound.objects.metadata import KubernetesObject


@dataclass(frozen=True)
class Deployment(KubernetesObject):
    """A Deployment."""

    @property
    def replicas(self) -> int:
        """Pods that are asked for."""
        return number(child(self.raw, "spec"), "replicas") or 0

    @property
    def pod_annotations(self) -> Mapping[str, str]:
        """The annotations of the pods that it makes."""
        return KubernetesObject(child(self.raw, "spec", "template")).annotations

    @property
    def status_replicas(self) -> int:
        """Pods that exist and are not being deleted."""
        return number(child(self.raw, "status"), "replicas") or 0

    @property
    def ready_replicas(self) -> int:
        """The number of its pods that are Ready."""
        return number(child(self.raw, "status"), "readyReplicas") or 0
