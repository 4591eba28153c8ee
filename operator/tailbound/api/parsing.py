"""Parses a stored object into a model, or into a message for a condition."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tailbound.api.schema import Model
from tailbound.objects.metadata import KubernetesObject
from tailbound.objects.printable import shortened

_M = TypeVar("_M", bound=Model)

_MOST_ERRORS: Final = 3
_LONGEST_VALUE: Final = 120
_MOST_SHARED: Final = 256
# Fields whose keys people choose: written in brackets, as the API server does.
_MAPS: Final = ("labels", "annotations", "nodeSelector")
# By the first part of pydantic's error type that occurs in it; in this order, because some contain others.
_REMEDIES: Final = (
    ("string_too_long", "write at most {max_length} characters"),
    ("string_too_short", "write at least {min_length} characters"),
    ("too_long", "list at most {max_length}"),
    ("too_short", "list at least {min_length}"),
    ("greater_than_equal", "write at least {ge}"),
    ("less_than_equal", "write at most {le}"),
    ("enum", "write {expected}"),
    ("string_type", "write a string, in quotes where YAML reads something else"),
    ("int_type", "write a whole number without quotes"),
    ("bool_type", "write true or false without quotes"),
    ("tuple_type", "write a list"),
    ("dict_type", "write an object"),
    ("model_type", "write an object"),
)


@dataclass(frozen=True)
class InvalidObject:
    """A stored object that does not hold what this version needs; `message` is fit for a condition."""

    kind: str
    namespace: str
    name: str
    message: str


def parse(kind: type[_M], raw: Mapping[str, Any]) -> _M | InvalidObject:
    """The object as a model of this kind. Never raises: what is wrong comes back in words."""
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        view = KubernetesObject(raw)
        return InvalidObject(
            kind=kind.__name__,
            namespace=view.namespace,
            name=view.name,
            message=_in_words(error.errors(include_url=False)),
        )


class _SharedParser:
    """Parses objects that many decisions read, such as runtimes: each state of one object once.

    An object is known by its identity: stores share it, and never change it. A few are remembered.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[type[Model], int], tuple[Mapping[str, Any], Any]] = {}

    def parse(self, kind: type[_M], raw: Mapping[str, Any]) -> _M | InvalidObject:
        """The result of `parse`, remembered."""
        known = self._known.get((kind, id(raw)))
        if known is not None:
            found: _M | InvalidObject = known[1]
            return found
        if len(self._known) >= _MOST_SHARED:
            self._known.clear()
        parsed = parse(kind, raw)
        # With the object itself: while it is here, no other one gets its identity.
        self._known[kind, id(raw)] = (raw, parsed)
        return parsed


_SHARED: Final = _SharedParser()


def parse_shared(kind: type[_M], raw: Mapping[str, Any]) -> _M | InvalidObject:
    """The result of `parse` for an object that many decisions read: each state of it is parsed once."""
    return _SHARED.parse(kind, raw)


def _in_words(found: list[ErrorDetails]) -> str:
    # Pydantic counts only the good entries of a list, and calls one of bad entries too short as well.
    places = [error["loc"] for error in found]
    errors = [error for error in found if error["type"] != "too_short" or not _below(error["loc"], places)]
    sentences = [_sentence(error) for error in errors[:_MOST_ERRORS]]
    if len(errors) > _MOST_ERRORS:
        sentences.append(f"and {len(errors) - _MOST_ERRORS} more")
    return "; ".join(sentences)


def _sentence(error: ErrorDetails) -> str:
    """One error: the field as kubectl writes it, then what is wrong with which value and what to do."""
    field = _path(error["loc"])
    if error["type"] == "tailbound_rule":
        return f"{field}: {error['msg']}"
    if error["type"] == "missing":
        return f"{field} is missing: set it"
    limits = error.get("ctx", {})
    remedy = next((text for kind, text in _REMEDIES if kind in error["type"]), error["msg"]).format(**limits)
    return f"{field}: {_shown(error)} cannot be used: {remedy}"


def _shown(error: ErrorDetails) -> str:
    value = error["input"]
    if error["type"] in ("too_long", "too_short"):
        return f"{len(value)} entries"
    return shortened(repr(value), _LONGEST_VALUE)


def _below(place: tuple[int | str, ...], others: list[tuple[int | str, ...]]) -> bool:
    return any(len(other) > len(place) and other[: len(place)] == place for other in others)


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        if isinstance(part, int) or path.rpartition(".")[2] in _MAPS:
            path += f"[{part}]"
        else:
            path += f".{part}" if path else part
    return path or "the object"
