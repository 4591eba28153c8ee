"""The views of what Kubernetes objects have in common: apiVersion, kind, metadata, and conditions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tailbound.objects.fields import Object, child, children, flag, moment, number, strings, text

_GRACE: Final = 30
"""Seconds that Kubernetes grants a pod whose deletion names no other period."""


@dataclass(frozen=True)
class OwnerReference:
    """One owner of an object."""

    raw: Object

    @property
    def api_version(self) -> str:
        """Group and version; empty where it is absent."""
        return text(self.raw, "apiVersion")

    @property
    def kind(self) -> str:
        """Empty where it is absent."""
        return text(self.raw, "kind")

    @property
    def name(self) -> str:
        """Empty where it is absent."""
        return text(self.raw, "name")

    @property
    def uid(self) -> str:
        """Empty where it is absent."""
        return text(self.raw, "uid")

    @property
    def controller(self) -> bool:
        """Whether this owner manages the object; absent means that it does not."""
        return flag(self.raw, "controller") is True


@dataclass(frozen=True)
class ManagedFields:
    """The fields that one client has set."""

    raw: Object

    @property
    def manager(self) -> str:
        """Name of the client; empty where it is absent."""
        return text(self.raw, "manager")

    @property
    def subresource(self) -> str:
        """Empty for the object itself."""
        return text(self.raw, "subresource")

    @property
    def time(self) -> str:
        """When it last changed them, as it is written; empty where it is absent."""
        return text(self.raw, "time")


@dataclass(frozen=True)
class ObjectCondition:
    """One condition of a status. One that is not reported has the status Unknown, as Kubernetes has it."""

    raw: Object

    @property
    def type(self) -> str:
        """Empty where it is absent."""
        return text(self.raw, "type")

    @property
    def status(self) -> str:
        """True, False or Unknown."""
        return text(self.raw, "status") or "Unknown"

    @property
    def reason(self) -> str:
        """One word; empty where it is absent."""
        return text(self.raw, "reason")

    @property
    def message(self) -> str:
        """The message for people; empty if it is absent."""
        return text(self.raw, "message")

    @property
    def last_transition_time(self) -> datetime | None:
        """When `status` last changed; None where that is not recorded."""
        return moment(self.raw, "lastTransitionTime")


@dataclass(frozen=True)
class KubernetesObject:
    """An object of any kind."""

    raw: Object

    @property
    def api_version(self) -> str:
        """Group and version; empty where it is absent, as in the items of a list."""
        return text(self.raw, "apiVersion")

    @property
    def kind(self) -> str:
        """Empty where it is absent, as in the items of a list."""
        return text(self.raw, "kind")

    @property
    def name(self) -> str:
        """Empty on a body that the API server is to name."""
        return text(child(self.raw, "metadata"), "name")

    @property
    def namespace(self) -> str:
        """Empty for cluster-wide kinds."""
        return text(child(self.raw, "metadata"), "namespace")

    @property
    def uid(self) -> str:
        """Empty on a body that was never stored."""
        return text(child(self.raw, "metadata"), "uid")

    @property
    def resource_version(self) -> str:
        """Empty on a body that was never stored."""
        return text(child(self.raw, "metadata"), "resourceVersion")

    @property
    def generation(self) -> int:
        """Number of the spec's state; 0 on a body that was never stored."""
        return number(child(self.raw, "metadata"), "generation") or 0

    @property
    def creation_timestamp(self) -> datetime | None:
        """None on a body that was never stored."""
        return moment(child(self.raw, "metadata"), "creationTimestamp")

    @property
    def deletion_timestamp(self) -> datetime | None:
        """When the grace period of the deletion ends; None: it is not being deleted."""
        return moment(child(self.raw, "metadata"), "deletionTimestamp")

    @property
    def deletion_grace_period(self) -> timedelta:
        """The grace period of the deletion."""
        seconds = number(child(self.raw, "metadata"), "deletionGracePeriodSeconds")
        return timedelta(seconds=_GRACE if seconds is None else seconds)

    @property
    def terminating(self) -> bool:
        """Whether it is being deleted."""
        return bool(text(child(self.raw, "metadata"), "deletionTimestamp"))

    @property
    def labels(self) -> Mapping[str, str]:
        """All labels."""
        return strings(child(self.raw, "metadata"), "labels")

    def label(self, name: str) -> str | None:
        """The value of one label; None without it."""
        value = child(self.raw, "metadata", "labels").get(name)
        return value if isinstance(value, str) else None

    @property
    def annotations(self) -> Mapping[str, str]:
        """All annotations."""
        return strings(child(self.raw, "metadata"), "annotations")

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
