"""Small readings of Kubernetes objects that the edges share."""

from typing import Final, TypeAlias

from tailbound.objects.fields import Object, child, text
from tailbound.objects.metadata import KubernetesObject

Key: TypeAlias = tuple[str, str]
"""Namespace ("" for cluster-wide kinds) and name."""

_MANAGED_FIELDS: Final = b'"managedFields":[{'
_END: Final = b"}]"
_MOST_ENDS: Final = 32
"""Closing brackets that are tried for one list; an attacker could write thousands of them into a name."""


def key_of(obj: Object) -> Key:
    """Namespace and name."""
    # Without a view: a start reads the key of each object several times.
    meta = child(obj, "metadata")
    return text(meta, "namespace"), text(meta, "name")


def uid_of(obj: Object) -> str:
    """metadata.uid; empty on a body that was never stored."""
    return KubernetesObject(obj).uid


def slim(obj: Object) -> Object:
    """The object without managedFields: often half of it, and no decision on a stored object needs them."""
    meta = child(obj, "metadata")
    if "managedFields" not in meta:
        return obj
    return {**obj, "metadata": {key: value for key, value in meta.items() if key != "managedFields"}}


def without_managed_fields(text: bytes) -> bytes:
    """JSON of objects as the API server writes it, which is without spaces, without the managedFields.

    In a list they are half of the text and most of the values: to look for their end takes a small part of
    the time that it takes to parse them, and no memory. Where the end is in doubt they stay. No kind that
    Tailbound lists has another field of this name.
    """
    kept, done, start = list[bytes](), 0, text.find(_MANAGED_FIELDS)
    while start >= 0:
        begin = start + len(_MANAGED_FIELDS)
        # Inside a text the quote before the name would be escaped.
        end = _end_of_list(text, begin) if text[start - 1] in b",{" else None
        if end is not None:
            first = text[start - 1] == ord("{")
            kept.append(text[done : start if first else start - 1])
            done = end + (first and text[end] == ord(","))
        start = text.find(_MANAGED_FIELDS, end or begin)
    return b"".join((*kept, text[done:])) if done else text


def _end_of_list(text: bytes, begin: int) -> int | None:
    """The place where a list of objects and texts ends; None if its quotes do not balance."""
    end = begin
    for _ in range(_MOST_ENDS):
        end = text.find(_END, end)
        if end < 0 or text.find(b"\\\\", begin, end) >= 0:
            return None
        end += len(_END)
        if (text.count(b'"', begin, end) - text.count(b'\\"', begin, end)) % 2 == 0:
            return end
    return None


def version_of(obj: Object) -> int:
    """metadata.resourceVersion as a number: the API server's versions of one kind are ordered."""
    return int(KubernetesObject(obj).resource_version or 0)


def holder_of(obj: Object) -> str:
    """Who an object belongs to, in words: its controller, else the managers of its fields."""
    view = KubernetesObject(obj)
    if view.controller is not None:
        return f"{view.controller.kind} {view.controller.name}"
    managers = sorted({entry.manager for entry in view.managed_fields})
    return f"no controller (fields are managed by {', '.join(managers)})" if managers else "no controller"
