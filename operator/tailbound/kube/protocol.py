"""What the rest of Tailbound may ask of a Kubernetes API server. Objects are plain JSON dicts.

Every call has a timeout, and fails only with an error of `tailbound.kube.errors`.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from tailbound.kube.resources import Resource
from tailbound.objects.fields import Object

EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
Propagation: TypeAlias = Literal["Background", "Foreground", "Orphan"]


@dataclass(frozen=True)
class Listing:
    """A consistent full list, or a part of one, and the resourceVersion to watch from."""

    items: tuple[Object, ...]
    resource_version: str


@dataclass(frozen=True)
class WatchEvent:
    """One line of a watch. A BOOKMARK's object holds nothing but a resourceVersion."""

    type: EventType
    object: Object


class KubeClient(Protocol):
    """A Kubernetes API server."""

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object | None:
        """The object, or None if there is none of that name."""
        ...

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Listing:
        """Every object (of one namespace), with `apiVersion` and `kind`, without managedFields."""
        ...

    def pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncIterator[Listing]:
        """The list in parts, at least one, all of one state and with its resourceVersion."""
        ...

    def watch(
        self,
        resource: Resource,
        resource_version: str,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: float = 300.0,
    ) -> AsyncIterator[WatchEvent]:
        """Changes after `resource_version`, with bookmarks, until the server ends it after `timeout_seconds`.
        Objects come without managedFields.

        Raises Expired if that version is too old, Transient if the stream breaks or falls silent.
        """
        ...

    async def create(self, resource: Resource, body: Object) -> Object:
        """Create by server-side apply, in one request.

        Raises NameConflict if an object of that name is not controlled by the controller that `body`
        names, and Conflict if it is.
        """
        ...

    async def apply(self, resource: Resource, body: Object, *, dry_run: bool = False) -> Object:
        """Change by forced server-side apply; a dry run is admitted and validated like it, and not stored.

        The body must hold uid and resourceVersion, else ValueError; Conflict if the object has others.
        """
        ...

    async def replace_status(self, resource: Resource, body: Object) -> Object:
        """PUT of the status subresource: afterwards nothing else is in it, whichever client wrote it.

        The body must hold uid and resourceVersion, else ValueError; Conflict if the object has others.
        """
        ...

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        uid: str,
        resource_version: str,
        propagation: Propagation = "Background",
    ) -> Object | None:
        """Delete exactly this state of this object; Conflict if it has changed. Gone already is success.

        Returns the object if it stays for a while, waiting for finalizers or a grace period, else None.
        """
        ...

    async def insert(self, resource: Resource, body: Object) -> Object:
        """Create by POST. For objects that are never applied later: Leases, Events, reviews."""
        ...

    async def replace(self, resource: Resource, body: Object) -> Object:
        """PUT, guarded by the body's resourceVersion. For Leases."""
        ...

    async def create_event(self, body: Object) -> None:
        """Record an Event."""
        ...

    async def review_token(self, token: str, audiences: Sequence[str]) -> Object:
        """`status` of a TokenReview: who the bearer of `token` is."""
        ...

    async def close(self) -> None:
        """Close connections. Nothing may be asked afterwards."""
        ...
