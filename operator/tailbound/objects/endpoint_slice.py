"""The view of an EndpointSlice."""

from collections.abc import Iterator
from dataclasses import dataclass

from tailbound.objects.fields import Field, Object, child, children, flag, number, text, texts
from tailbound.objects.metadata import KubernetesObject


@dataclass(frozen=True)
class SliceEntry:
    """One address behind a Service.

    A condition that is absent counts as ready, as serving, and as not terminating.
    """

    raw: Object

    @property
    def address(self) -> str:
        """The first address, by which Kubernetes means the only one; empty without any."""
        return next(iter(texts(self.raw, "addresses")), "")

    @property
    def pod(self) -> str:
        """Name of the pod; its address where the entry has no name."""
        return text(child(self.raw, "targetRef"), "name") or self.address

    @property
    def ready(self) -> bool:
        """Takes requests."""
        conditions = child(self.raw, "conditions")
        return not flag(conditions, "terminating") and flag(conditions, "ready") is not False

    @property
    def draining(self) -> bool:
        """Is being deleted, and serves still."""
        conditions = child(self.raw, "conditions")
        return bool(flag(conditions, "terminating")) and flag(conditions, "serving") is not False


@dataclass(frozen=True)
class EndpointSlice(KubernetesObject):
    """Some of the endpoints of one Service."""

    family = Field(text, "addressType")
    """IPv4, IPv6 or FQDN; empty where it is absent."""

    def ports(self, name: str) -> tuple[int, ...]:
        """The numbers of the ports of this name; a port without a number is passed over."""
        named = (each for each in children(self.raw, "ports") if text(each, "name") == name)
        return tuple(found for each in named if (found := number(each, "port")))

    @property
    def entries(self) -> Iterator[SliceEntry]:
        """The entries that have an address."""
        entries = (SliceEntry(each) for each in children(self.raw, "endpoints"))
        return (entry for entry in entries if entry.address)
