"""Fields of JSON of any shape, read without errors: another type than the expected one reads as absent.

Functions read one field; `Field` declares one of a view.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, overload

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


T_co = TypeVar("T_co", covariant=True)


class View(Protocol):
    """A view of an object, or of a part of one."""

    @property
    def raw(self) -> Object:
        """The JSON that it reads."""


class Field(Generic[T_co]):
    """The field at this path of `raw`, as in `Field(text, "spec", "nodeName")`."""

    def __init__(self, read: Callable[[Object, str], T_co], *path: str) -> None:
        self._read, self._parents, self._name = read, path[:-1], path[-1]

    @overload
    def __get__(self, view: None, owner: type[Any]) -> "Field[T_co]": ...

    @overload
    def __get__(self, view: View, owner: type[Any]) -> T_co: ...

    def __get__(self, view: View | None, owner: type[Any]) -> "Field[T_co] | T_co":
        if view is None:
            return self
        parent = view.raw
        # As `child` does, without another call: a large fleet reads millions of fields.
        for name in self._parents:
            value = parent.get(name)
            parent = value if isinstance(value, OBJECT_TYPES) else EMPTY
        return self._read(parent, self._name)
