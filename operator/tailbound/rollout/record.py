"""What is known before and during a rollout, as plain JSON documents for status."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from tailbound.rollout.bursts import Dispersion
from tailbound.rollout.polls import Readings
from tailbound.rollout.verdict import Evidence, Measure

_CONFIG: Final = ConfigDict(alias_generator=to_camel, extra="forbid")


@dataclass(frozen=True)
class History:
    """What stable showed while no rollout ran."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG

    readings: Readings
    dispersion: Mapping[Measure, Dispersion]


@dataclass(frozen=True)
class Record:
    """The last complete poll of a rollout, and all evidence up to it and no further. Written in one piece."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG

    readings: Readings
    evidence: Mapping[Measure, Evidence]
    dispersion: Mapping[Measure, Dispersion]
    """Of stable: its history, continued during the rollout only until bursts are measured."""


_HISTORY: Final = TypeAdapter(History)
_RECORD: Final = TypeAdapter(Record)


def to_document(known: History | Record) -> dict[str, Any]:
    """The document: maps, lists, strings, numbers and booleans only, keys in camelCase."""
    adapter: TypeAdapter[Any] = _HISTORY if isinstance(known, History) else _RECORD
    document: dict[str, Any] = adapter.dump_python(known, mode="json", by_alias=True)
    return document


def history_of(document: Mapping[str, Any]) -> History:
    """The history of a document. Raises ValueError naming the field that does not fit."""
    return _parsed(_HISTORY, document, "remove the history: bursts are then measured anew")


def record_of(document: Mapping[str, Any]) -> Record:
    """The record of a document. Raises ValueError naming the field that does not fit."""
    return _parsed(_RECORD, document, "remove the evidence: the rollout is then judged anew")


_Known = TypeVar("_Known", History, Record)


def _parsed(adapter: TypeAdapter[_Known], document: Mapping[str, Any], remedy: str) -> _Known:
    try:
        return adapter.validate_python(document)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the document"
        raise ValueError(f"{field} is {first['input']!r}: {first['msg']}; {remedy}") from error
