"""The view of a PersistentVolumeClaim."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tailbound.objects.fields import child, text, texts
from tailbound.objects.metadata import KubernetesObject


@dataclass(frozen=True)
class VolumeClaim(KubernetesObject):
    """A PersistentVolumeClaim."""

    @property
    def phase(self) -> str:
        """Pending, Bound or Lost; empty before the control plane has seen it."""
        return text(child(self.raw, "status"), "phase")

    @property
    def storage_class_name(self) -> str:
        """Empty where it has none, and the cluster has no default class."""
        return text(child(self.raw, "spec"), "storageClassName")

    @property
    def access_modes(self) -> tuple[str, ...]:
        """The modes that it asks for."""
        return tuple(texts(child(self.raw, "spec"), "accessModes"))

    @property
    def requests(self) -> Mapping[str, Any]:
        """What it asks for, by resource."""
        return child(self.raw, "spec", "resources", "requests")

    @property
    def size(self) -> str:
        """The storage that it asks for; empty where it is absent."""
        return text(self.requests, "storage")
