"""The view of a Lease."""

from dataclasses import dataclass

from tailbound.objects.fields import Field, count, text
from tailbound.objects.metadata import KubernetesObject


@dataclass(frozen=True)
class Lease(KubernetesObject):
    """A Lease, as replicas elect their leader with it."""

    holder_identity = Field(text, "spec", "holderIdentity")
    """The identity of the holder; empty if there is none."""
    lease_transitions = Field(count, "spec", "leaseTransitions")
    """How often the holder has changed."""
    renew_time = Field(text, "spec", "renewTime")
    """When the holder renewed it last, as it is written."""
    acquire_time = Field(text, "spec", "acquireTime")
    """Since when the holder holds it, as it is written; empty while it was never held."""
