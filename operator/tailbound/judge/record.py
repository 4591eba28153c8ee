"""What is known during a rollout, as a plain JSON document for status."""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Final
from zlib import compress, decompress
from zlib import error as zlib_error

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from tailbound.judge.account import Account
from tailbound.judge.metric_evidence import Watch
from tailbound.judge.polls import Readings
from tailbound.judge.verdict import Measure

_PACKED: Final = "zlib"
_CONFIG: Final = ConfigDict(alias_generator=to_camel, extra="forbid")


@dataclass(frozen=True)
class Record:
    """The last complete poll of a rollout, and all evidence up to it and no further. Written in one piece."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG

    readings: Readings
    accounts: Mapping[Measure, Account] = field(default_factory=dict)


@dataclass(frozen=True)
class EvidenceState:
    """What one decision about a rollout leaves to the next."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG

    record: Record | None = None
    """None until every gateway was read once: nothing that was counted before is judged."""
    unread_since: datetime | None = None
    """The first poll in a row that said nothing."""
    unread_why: str = ""
    passed_at: datetime | None = None
    """The first poll in a row at which everything had passed."""
    watches: Mapping[str, Watch] = field(default_factory=dict)
    """What is known about each of analysis.metrics, by its name."""
    blind_since: datetime | None = None
    """The first round in a row in which a metric could not be read."""
    blind: Mapping[str, str] = field(default_factory=dict)
    """Why not, by the name of each metric that cannot be read."""
    pods: tuple[str, ...] = ()
    """Names of the candidate's pods that have had their warm-up, or are having it."""


_STATE: Final = TypeAdapter(EvidenceState)


def to_document(state: EvidenceState) -> dict[str, Any]:
    """The document: maps, lists, strings, numbers and booleans only, keys in camelCase."""
    document: dict[str, Any] = _STATE.dump_python(state, mode="json", by_alias=True)
    return document


def state_of(document: Mapping[str, Any]) -> EvidenceState:
    """What the last decision left. Raises ValueError naming the field that does not fit."""
    try:
        return _STATE.validate_python(document)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the document"
        raise ValueError(
            f"{field} is {first['input']!r}: {first['msg']}; "
            "remove the evidence: the rollout is then judged from the beginning"
        ) from error


def packed(state: EvidenceState) -> dict[str, Any]:
    """The document as status holds it: exact, and one short line where people look at the status."""
    text = json.dumps(to_document(state), sort_keys=True, separators=(",", ":"))
    return {_PACKED: b64encode(compress(text.encode())).decode()}


def unpacked(stored: Mapping[str, Any]) -> EvidenceState:
    """What the last decision left. Raises ValueError where that is not what this operator writes."""
    try:
        document = json.loads(decompress(b64decode(stored[_PACKED], validate=True)))
    except (KeyError, TypeError, ValueError, zlib_error) as problem:
        raise ValueError(
            f"evidence cannot be read ({problem!r}): the rollout is then judged from the beginning"
        ) from problem
    return state_of(document)
