"""How views of Kubernetes objects declare the fields that they read."""

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, overload

from tailbound.objects.fields import EMPTY, OBJECT_TYPES, Object

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
