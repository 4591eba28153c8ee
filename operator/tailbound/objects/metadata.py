"""The views of what Kubernetes objects have in common: apiVersion, kind, metadata, and conditions."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tailbound.objects.fields import (
    Field,
    Object,
    child,
    children,
    count,
    is_true,
    moment,
    number,
    strings,
    text,
)

_GRACE: Final = 30
"""Seconds that Kubernetes grants a pod whose deletion names no other period."""


@dataclass(frozen=True)
class OwnerReference:
    """One owner of an object."""

    raw: Object
    api_version = Field(text, "apiVersion")
    """Group and version; empty where it is absent."""
    kind = Field(text, "kind")
    """Empty where it is absent."""
    name = Field(text, "name")
    """Empty where it is absent."""
    uid = Field(text, "uid")
    """Empty where it is absent."""
    controller = Field(is_true, "controller")
    """Whether this owner manages the object; absent means that it does not."""


@dataclass(frozen=True)
class ManagedFields:
    """The fields that one client has set."""

    raw: Object
    manager = Field(text, "manager")
    """Name of the client; empty where it is absent."""
    subresource = Field(text, "subresource")
    """Empty for the object itself."""
    time = Field(text, "time")
    """When it last changed them, as it is written; empty where it is absent."""


@dataclass(frozen=True)
class ObjectCondition:
    """One condition of a status. One that is not reported has the status Unknown, as Kubernetes has it."""

    raw: Object
    type = Field(text, "type")
    """Empty where it is absent."""

    @property
    def status(self) -> str:
        """True, False or Unknown."""
        return text(self.raw, "status") or "Unknown"

    reason = Field(text, "reason")
    """One word; empty where it is absent."""
    message = Field(text, "message")
    """The message for people; empty if it is absent."""
    last_transition_time = Field(moment, "lastTransitionTime")
    """When `status` last changed; None where that is not recorded."""


@dataclass(frozen=True)
class KubernetesObject:
    """An object of any kind."""

    raw: Object
    api_version = Field(text, "apiVersion")
    """Group and version; empty where it is absent, as in the items of a list."""
    kind = Field(text, "kind")
    """Empty where it is absent, as in the items of a list."""
    name = Field(text, "metadata", "name")
    """Empty on a body that the API server is to name."""
    namespace = Field(text, "metadata", "namespace")
    """Empty for cluster-wide kinds."""
    uid = Field(text, "metadata", "uid")
    """Empty on a body that was never stored."""
    resource_version = Field(text, "metadata", "resourceVersion")
    """Empty on a body that was never stored."""
    generation = Field(count, "metadata", "generation")
    """Number of the spec's state; 0 on a body that was never stored."""
    creation_timestamp = Field(moment, "metadata", "creationTimestamp")
    """When it was created; None for an object that was never stored."""
    deletion_timestamp = Field(moment, "metadata", "deletionTimestamp")
    """When the grace period of the deletion ends; None: it is not being deleted."""

    @property
    def deletion_grace_period(self) -> timedelta:
        """The grace period of the deletion."""
        seconds = number(child(self.raw, "metadata"), "deletionGracePeriodSeconds")
        return timedelta(seconds=_GRACE if seconds is None else seconds)

    @property
    def terminating(self) -> bool:
        """Whether it is being deleted."""
        return bool(text(child(self.raw, "metadata"), "deletionTimestamp"))

    labels = Field(strings, "metadata", "labels")
    """All labels."""

    def label(self, name: str) -> str | None:
        """The value of one label; None without it."""
        value = child(self.raw, "metadata", "labels").get(name)
        return value if isinstance(value, str) else None

    annotations = Field(strings, "metadata", "annotations")
    """All annotations."""

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages it; None: there is no such owner."""
        return next((owner for owner in self.owners if owner.controller), None)

    @property
    def owners(self) -> Iterator[OwnerReference]:
        """The objects after which garbage collection removes it."""
        return map(OwnerReference, children(child(self.raw, "metadata"), "ownerReferences"))

    @property
    def managed_fields(self) -> Iterator[ManagedFields]:
        """Which client has set which fields."""
        return map(ManagedFields, children(child(self.raw, "metadata"), "managedFields"))

    @property
    def conditions(self) -> Iterator[ObjectCondition]:
        """The conditions of its status."""
        return map(ObjectCondition, children(child(self.raw, "status"), "conditions"))

    def condition(self, kind: str) -> ObjectCondition:
        """The condition of this type; one with the status Unknown where it is not reported."""
        return next((each for each in self.conditions if each.type == kind), ObjectCondition({}))
