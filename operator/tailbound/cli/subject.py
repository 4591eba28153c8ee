"""What the commands speak about: one service and its history."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tailbound.api.inferenceservice import InferenceService
from tailbound.api.parsing import InvalidObject, parse
from tailbound.api.rollout import RolloutState, RolloutStatus
from tailbound.revisions.record import CorruptRevisionError, Marks, Revision, from_object, marks_of

OVER = frozenset({RolloutState.PROMOTED, RolloutState.ROLLED_BACK})


class CommandError(Exception):
    """A command cannot do what was asked; the text says why and what to do instead."""


@dataclass(frozen=True)
class Entry:
    """One revision in the history."""

    name: str
    number: int
    marks: Marks
    content: Revision | None
    """None if somebody has damaged it."""


@dataclass(frozen=True)
class Subject:
    """One service, and its revisions from the oldest to the newest."""

    service: InferenceService
    history: tuple[Entry, ...]

    @property
    def title(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.service.metadata.namespace}/{self.service.metadata.name}"

    @property
    def rollout(self) -> RolloutStatus | None:
        """The last rollout, if there was any."""
        return self.service.status.rollout

    @property
    def under_way(self) -> RolloutStatus | None:
        """The rollout that is not over."""
        rollout = self.rollout
        return rollout if rollout is not None and rollout.state not in OVER else None

    def entry(self, name: str) -> Entry | None:
        """The revision of this name."""
        return next((entry for entry in self.history if entry.name == name), None)

    def weight(self, name: str) -> int:
        """Percent of the requests that a revision gets."""
        traffic = self.service.status.traffic
        backends = traffic.backends if traffic is not None else ()
        return next((backend.weight for backend in backends if backend.revision == name), 0)


def service_of(raw: Mapping[str, Any]) -> InferenceService:
    """The service that the API server returned. Raises CommandError if it is not one that can be read."""
    service = parse(InferenceService, raw)
    if isinstance(service, InvalidObject):
        raise CommandError(
            f"inferenceservice {service.namespace}/{service.name} cannot be read: {service.message}"
        )
    return service


def subject_of(service: Mapping[str, Any], revisions: Iterable[Mapping[str, Any]]) -> Subject:
    """Both from what the API server returned. Raises CommandError."""
    entries = sorted((entry_of(raw) for raw in revisions), key=lambda entry: (entry.number, entry.name))
    return Subject(service_of(service), tuple(entries))


def entry_of(raw: Mapping[str, Any]) -> Entry:
    """The revision that the API server returned."""
    try:
        content = from_object(raw)
    except CorruptRevisionError:
        content = None
    return Entry(raw["metadata"]["name"], int(raw.get("revision") or 0), marks_of(raw), content)
