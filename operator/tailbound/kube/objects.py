"""Small readings of Kubernetes objects that the edges share."""

from typing import Any, TypeAlias

from tailbound.kube.protocol import Object

Key: TypeAlias = tuple[str, str]
"""Namespace ("" for cluster-wide kinds) and name."""


def metadata(obj: Object) -> Any:
    """The object's metadata; an object without any reads as an empty one."""
    return obj.get("metadata") or {}


def key_of(obj: Object) -> Key:
    """Namespace and name."""
    meta = metadata(obj)
    return str(meta.get("namespace") or ""), str(meta.get("name") or "")


def uid_of(obj: Object) -> str:
    """metadata.uid; empty on a body that was never stored."""
    return str(metadata(obj).get("uid") or "")


def label(obj: Object, name: str) -> str | None:
    """The value of one label, or None."""
    value = (metadata(obj).get("labels") or {}).get(name)
    return None if value is None else str(value)


def version_of(obj: Object) -> int:
    """metadata.resourceVersion as a number: the API server's versions of one kind are ordered."""
    return int(metadata(obj).get("resourceVersion") or 0)


def controller_of(obj: Object) -> Object | None:
    """The owner reference that is marked as the controller, if any."""
    for reference in metadata(obj).get("ownerReferences") or ():
        if reference.get("controller"):
            return dict(reference)
    return None


def holder_of(obj: Object) -> str:
    """Who an object belongs to, in words: its controller, else the managers of its fields."""
    controller = controller_of(obj)
    if controller is not None:
        return f"{controller.get('kind')} {controller.get('name')}"
    managers = sorted({str(entry.get("manager")) for entry in metadata(obj).get("managedFields") or ()})
    return f"no controller (fields are managed by {', '.join(managers)})" if managers else "no controller"
