"""From a stored object to a model, or to a sentence for a condition."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tailbound.api.schema import Model

_M = TypeVar("_M", bound=Model)

_MOST_ERRORS: Final = 3
_LONGEST_VALUE: Final = 120


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
        metadata = raw.get("metadata")
        named = metadata if isinstance(metadata, Mapping) else {}
        return InvalidObject(
            kind=kind.__name__,
            namespace=str(named.get("namespace", "")),
            name=str(named.get("name", "")),
            message=_in_words(error.errors(include_url=False)),
        )


def _in_words(errors: list[ErrorDetails]) -> str:
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
    value = repr(error["input"])
    shown = value if len(value) <= _LONGEST_VALUE else f"{value[:_LONGEST_VALUE]}…"
    return f"{field}: {shown} is refused: {error['msg'][:1].lower()}{error['msg'][1:]}; correct it"


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if path else part
    return path or "the object"
