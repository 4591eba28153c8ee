"""The view of a Lease."""

from dataclasses import dataclass

from tailbound.objects.fields import child, number, text
from tailbound.objects.metadata import KubernetesObject


@dataclass(frozen=True)
class Lease(KubernetesObject):
    """A Lease, as replicas elect their leader with it."""

    @property
    def holder_identity(self) -> str:
        """The identity of the holder; empty if there is none."""
        return text(child(self.raw, "spec"), "holderIdentity")

    @property
    def lease_transitions(self) -> int:
        """How often the holder has changed."""
        return number(child(self.raw, "spec"), "leaseTransitions") or 0

    @property
    def acquire_time(self) -> str:
        """Since when the holder holds it, as it is written; empty while it was never held."""
        return text(child(self.raw, "spec"), "acquireTime")
