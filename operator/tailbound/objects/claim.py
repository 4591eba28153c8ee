"""The view of a PersistentVolumeClaim."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tailbound.objects.fields import Field, child, text, texts
from tailbound.objects.metadata import KubernetesObject


@dataclass(frozen=True)
class VolumeClaim(KubernetesObject):
    """A PersistentVolumeClaim."""

    phase = Field(text, "status", "phase")
    """Pending, Bound or Lost; empty before the control plane has seen it."""
    storage_class_name = Field(text, "spec", "storageClassName")
    """Empty where it has none, and the cluster has no default class."""
    access_modes = Field(texts, "spec", "accessModes")
    """The modes that it asks for."""

    @property
    def requests(self) -> Mapping[str, Any]:
        """What it asks for, by resource."""
        return child(self.raw, "spec", "resources", "requests")

    @property
    def size(self) -> str:
        """The storage that it asks for; empty where it is absent."""
        return text(self.requests, "storage")
