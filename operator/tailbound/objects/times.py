"""Times as Kubernetes writes them: RFC 3339 in UTC with whole seconds."""

from datetime import UTC, datetime
from typing import Final

LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
"""Stands for a time that is not on record, where any earlier one does."""


def utc_seconds(moment: datetime) -> str:
    """A time in UTC, as it is written."""
    return f"{moment.replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def time_in(text: str | None) -> datetime | None:
    """The time that a text states; None where it states none, or one without its time zone."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
