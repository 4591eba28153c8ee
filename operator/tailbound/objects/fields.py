"""Fields of JSON of any shape, read without errors: another type than the expected one reads as absent."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, TypeAlias

Object: TypeAlias = Mapping[str, Any]
"""A Kubernetes object, or a part of one, as JSON. Never mutated: stores share it."""

EMPTY: Final[Object] = MappingProxyType({})
# Nearly every object is a dict, and for that the check costs a tenth of what it does for a Mapping.
OBJECT_TYPES: Final = (dict, Mapping)


def child(parent: Object, *names: str) -> Object:
    """The object at this path; an empty one where it is absent."""
    for name in names:
        value = parent.get(name)
        parent = value if isinstance(value, OBJECT_TYPES) else EMPTY
    return parent


def children(parent: Object, name: str) -> Iterator[Object]:
    """The objects in the list `name`; none where it is absent."""
    value = parent.get(name)
    if isinstance(value, list | tuple):
        yield from (each for each in value if isinstance(each, OBJECT_TYPES))


def texts(parent: Object, name: str) -> tuple[str, ...]:
    """The texts in the list `name`; none where it is absent."""
    value = parent.get(name)
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list | tuple) else ()


def text(parent: Object, name: str) -> str:
    """A text; empty where it is absent."""
    value = parent.get(name)
    return value if isinstance(value, str) else ""


def number(parent: Object, name: str) -> int | None:
    """An integer; None where it is absent."""
    value = parent.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def count(parent: Object, name: str) -> int:
    """A number of things; 0 where it is absent."""
    return number(parent, name) or 0


def flag(parent: Object, name: str) -> bool | None:
    """A truth value; None where it is absent."""
    value = parent.get(name)
    return value if isinstance(value, bool) else None


def is_true(parent: Object, name: str) -> bool:
    """Whether a truth value is true; absent, it is not."""
    return flag(parent, name) is True


def moment(parent: Object, name: str) -> datetime | None:
    """A time; None where it is absent."""
    try:
        return datetime.fromisoformat(text(parent, name))
    except ValueError:
        return None


def strings(parent: Object, name: str) -> Mapping[str, str]:
    """The texts of the map `name`, such as labels; none where it is absent."""
    return {key: value for key, value in child(parent, name).items() if isinstance(value, str)}
