"""What one gateway pod has reported: kept, compared and looked up one service at a time."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from tailbound.api.traffic import Observed, ServiceObservation
from tailbound.kube.objects import Key
from tailbound.objects.unknown import Unknown


@dataclass
class PodReport:
    """The newest report of one gateway pod. Counters are not kept: they are no acknowledgement."""

    uid: str
    clock: Callable[[], float]
    unread: str = "it has just become Ready and is being read"
    """Why nothing that is known of it counts now; empty while it does."""
    started: datetime | None = None
    """When its Envoy started."""
    synced: bool = False
    services: dict[Key, ServiceObservation] | None = None
    """What was read of each service; None until all were read once.

    While this Envoy is unread, it is what the Envoy before it had.
    """
    failed: dict[Key, str] = field(default_factory=dict)
    """Why the newest reading of these services failed."""
    since: float = field(init=False)
    """Since when (monotonic seconds) it has been read without a failure, or has been unread."""

    def __post_init__(self) -> None:
        self.since = self.clock()

    def lose(self, why: str) -> bool:
        """Nothing that is known of it counts until it is read completely; returns whether that is news."""
        news = self.unread != why
        if not self.unread:
            self.since = self.clock()
        self.unread = why
        return news

    def of(self, key: Key) -> Observed | Unknown:
        """The report about one service."""
        why = self.unread or self.failed.get(key)
        if why:
            return Unknown(why)
        seen = self.observation(key)
        services = {} if seen is None else {"/".join(key): seen}
        return Observed(envoy_start_time=self.started, synced=self.synced, services=services)

    def observation(self, key: Key) -> ServiceObservation | None:
        """What it has of one service; None where that is nothing or not known."""
        if self.services is None or self.unread or key in self.failed:
            return None
        return self.services.get(key)

    def take(self, asked: Iterable[Key], answer: Observed | Unknown) -> set[Key]:
        """Take in the answer about the services that were asked for; returns those for which it is news."""
        if isinstance(answer, Unknown):
            if not self.failed:
                self.since = self.clock()
            news = {key for key in asked if self.failed.get(key) != answer.reason}
            self.failed.update(dict.fromkeys(news, answer.reason))
            return news
        self.synced = answer.synced
        return {key for key in asked if self._take_one(key, answer.services.get("/".join(key)))}

    def take_all(self, answer: Observed, other: "PodReport | None") -> set[Key]:
        """Take in the answer about all services.

        Returns those for which it is news, compared with the last answer, else with that of `other`.
        """
        known = self.services if self.services is not None else (other.services if other else None)
        self.services = {_key(name): _without_counters(seen) for name, seen in answer.services.items()}
        if self.unread:
            self.since = self.clock()
        self.unread, self.started, self.synced = "", answer.envoy_start_time, answer.synced
        failed = set(self.failed)
        self.failed.clear()
        before = known or {}
        different = {
            key for key in before.keys() | self.services.keys() if before.get(key) != self.services.get(key)
        }
        return different | failed

    def _take_one(self, key: Key, seen: ServiceObservation | None) -> bool:
        services = self.services
        assert services is not None, "a pod is read completely before single services"
        had_failed = self.failed.pop(key, None) is not None
        before, now = services.get(key), None if seen is None else _without_counters(seen)
        if now is None:
            services.pop(key, None)
        else:
            services[key] = now
        return had_failed or before != now


def _key(name: str) -> Key:
    namespace, _, service = name.partition("/")
    return namespace, service


def _without_counters(seen: ServiceObservation) -> ServiceObservation:
    return seen if seen.counters is None else seen.model_copy(update={"counters": None})
