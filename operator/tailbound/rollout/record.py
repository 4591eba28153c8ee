"""What one rollout knows, as a plain JSON document for status. Readings and evidence travel together."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Final

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from tailbound.rollout.bursts import Dispersion
from tailbound.rollout.polls import Readings
from tailbound.rollout.verdict import Evidence, Measure


@dataclass(frozen=True)
class Record:
    """The last complete poll, and all evidence up to it and no further."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(alias_generator=to_camel, extra="forbid")

    readings: Readings | None = None
    """None until every gateway was read once: nothing that was counted before is judged."""
    evidence: Mapping[Measure, Evidence] = field(default_factory=dict)
    dispersion: Mapping[Measure, Dispersion] = field(default_factory=dict)
    """How stable's bad requests came before the candidate had any weight."""
    unread_since: datetime | None = None
    """The first poll in a row that said nothing."""
    unread_why: str = ""
    passed_at: datetime | None = None
    """The first poll in a row at which everything had passed."""


_ADAPTER: Final = TypeAdapter(Record)


def to_document(record: Record) -> dict[str, Any]:
    """The document: maps, lists, strings and numbers only, keys in camelCase."""
    document: dict[str, Any] = _ADAPTER.dump_python(record, mode="json", by_alias=True)
    return document


def from_document(document: Mapping[str, Any]) -> Record:
    """The record of a document. Raises ValueError naming the field that does not fit."""
    try:
        return _ADAPTER.validate_python(document)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the document"
        raise ValueError(
            f"{field}: {first['msg']}. Remove the evidence to judge this rollout anew."
        ) from error
