"""Learned capacity as a ControllerRevision keeps it: what is written, how rarely, and who shares it. Pure.

A model is as fast in one service as in another of its namespace, if bytes and hardware class are the same.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from tailbound.autoscale.model import CapacityKey, LearnedCapacity
from tailbound.autoscale.state import worth_saving
from tailbound.objects.fields import Object
from tailbound.objects.times import utc_seconds
from tailbound.objects.unknown import Unknown
from tailbound.revisions.marks import Marks, marks_of
from tailbound.revisions.record import CorruptRevisionError, from_object

_DIGITS: Final = 4


@dataclass(frozen=True)
class Note:
    """What a ControllerRevision remembers."""

    learned: LearnedCapacity
    at: datetime


_LEARNED: Final = TypeAdapter(LearnedCapacity)


def note_of(marks: Marks) -> Note | None:
    """What is remembered; None if nothing is, or nothing that can be read."""
    try:
        document: Any = json.loads(marks.capacity or "")
        at = datetime.fromisoformat(document.pop("at")).astimezone(UTC)
        return Note(_LEARNED.validate_python(document), at)
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError):
        return None


def to_write(note: Note | None, learned: LearnedCapacity, now: datetime) -> str | None:
    """The annotation to write; None while the old one is still good enough, or too young."""
    saved = note.learned if note is not None else Unknown("nothing is written yet")
    saved_at = note.at.timestamp() if note is not None else None
    if not worth_saving(learned, saved, saved_at, now.timestamp()):
        return None
    figures: dict[str, float] = _LEARNED.dump_python(learned)
    rounded = {name: float(f"{figure:.{_DIGITS}g}") for name, figure in figures.items()}
    return json.dumps(rounded | {"at": utc_seconds(now)}, sort_keys=True)


def key_of(stored: Object) -> CapacityKey | None:
    """Model and class of a stored ControllerRevision; None if it is corrupt."""
    try:
        revision = from_object(stored)
        spec_digest = json.loads(revision.spec_json)["model"].get("sha256")
        digest = spec_digest if revision.model is None else revision.model.sha256
    except (CorruptRevisionError, ValueError, KeyError, TypeError):
        return None
    return CapacityKey(str(digest), revision.hardware_class)


def remembered(stored: Object, neighbours: Iterable[Object]) -> LearnedCapacity | None:
    """What is known of a revision: by itself, or else the newest of the namespace's same model and class."""
    own = note_of(marks_of(stored))
    if own is not None:
        return own.learned
    key = key_of(stored)
    notes = [
        note
        for each in neighbours
        if (note := note_of(marks_of(each))) is not None and key is not None and key_of(each) == key
    ]
    return max(notes, key=lambda note: note.at).learned if notes else None
