"""`kubectl tailbound refresh`: which services are made again now, and which wait. Pure.

A fleet is refreshed a few at a time, each through its own rollout: a runtime that is bad for one is bad for
the next. First row that fits:

| the services that were begun | what follows |
|---|---|
| one did not end promoted, or is out of reach | no further one is begun; those under way are waited for |
| as many as may be are under way | wait |
| some are left | the next ones in order of their names |
| none is left, and none is under way | the end |
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tailbound.api.conditions import ConditionStatus, ConditionType, Reason
from tailbound.api.inferenceservice import InferenceService
from tailbound.api.parsing import InvalidObject
from tailbound.cli.outcome import PROMOTED, WaitOutcome

Key = tuple[str, str]
"""Namespace and name of a service."""


@dataclass(frozen=True)
class Fleet:
    """How far a refresh of many services is."""

    left: tuple[Key, ...]
    at_once: int
    under_way: frozenset[Key] = frozenset()
    ended: Mapping[Key, WaitOutcome] = field(default_factory=dict)

    @property
    def failed(self) -> WaitOutcome | None:
        """The first that did not end promoted."""
        return next((end for end in self.ended.values() if end.code != PROMOTED), None)

    @property
    def over(self) -> bool:
        """Nothing is under way, and nothing is to be begun."""
        return not self.under_way and (not self.left or self.failed is not None)

    def to_begin(self) -> tuple[Key, ...]:
        """Services to begin now."""
        return () if self.failed is not None else self.left[: self.at_once - len(self.under_way)]

    def begun(self, key: Key) -> "Fleet":
        """The fleet after the refresh of this service has begun."""
        left = tuple(other for other in self.left if other != key)
        return Fleet(left, self.at_once, self.under_way | {key}, self.ended)

    def after(self, key: Key, end: WaitOutcome) -> "Fleet":
        """The fleet after the rollout of this service has ended."""
        return Fleet(self.left, self.at_once, self.under_way - {key}, {**self.ended, key: end})


def outdated(services: Sequence[InferenceService | InvalidObject]) -> tuple[Key, ...]:
    """The services whose pods would now be rendered differently, as far as they can be read."""
    readable = (service for service in services if not isinstance(service, InvalidObject))
    return tuple(sorted(_key(service) for service in readable if _is_outdated(service)))


def unreadable(services: Sequence[InferenceService | InvalidObject]) -> tuple[str, ...]:
    """A sentence for each service of which it is unknown whether it is outdated."""
    return tuple(
        f"{service.namespace}/{service.name} cannot be read, and is not refreshed: {service.message}"
        for service in services
        if isinstance(service, InvalidObject)
    )


def _is_outdated(service: InferenceService) -> bool:
    condition = service.status.condition(ConditionType.RUNTIME_OUTDATED)
    return (
        condition is not None
        and condition.status is ConditionStatus.TRUE
        and condition.reason == Reason.RUNTIME_CHANGED
    )


def _key(service: InferenceService) -> Key:
    return service.metadata.namespace, service.metadata.name
