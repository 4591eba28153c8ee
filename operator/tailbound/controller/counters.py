"""The counters of every gateway pod, read in rounds while some rollout is judged.

From the pods themselves, or from what Prometheus scraped of them: as each service's spec.rollout says.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from tailbound.api.traffic import Observed, RequestClasses
from tailbound.judge import scrapes
from tailbound.judge.counters import Classes, Reading, Unknown
from tailbound.judge.polls import PollResults
from tailbound.kube.objects import Key, uid_of
from tailbound.kube.protocol import Object
from tailbound.reconcile.model import Unread
from tailbound.telemetry.prometheus import Prometheus, Series, Unavailable

PERIOD_SECONDS = 2.0
_UNREAD = Unknown.UNKNOWN


class Pods(Protocol):
    """The gateway pods, and how they are read."""

    def ready_pods(self) -> Mapping[str, Object]:
        """Every gateway pod that is Ready and stays, by name."""
        ...

    def all_pods(self) -> Iterable[Object]:
        """Every gateway pod that there is."""
        ...

    async def ask(self, services: tuple[Key, ...]) -> Mapping[str, Observed | Unread]:
        """What every Ready gateway pod reports about these services, by its name."""
        ...


@dataclass
class CounterPoller:
    """The newest round for each service that is judged; an idle fleet is not asked.

    A round is taken over as a whole. `changed(key)` is called for every service after each round, be it
    complete or not: that nothing could be read is news, too.
    """

    pods: Pods
    changed: Callable[[Key], None]
    through_prometheus: Callable[[Key], bool]
    """Whether a service's counters are to be taken from Prometheus."""
    prometheus: Prometheus | None
    judged: dict[Key, tuple[str, ...]] = field(default_factory=dict)
    """By service, what is to be asked of Prometheus besides."""
    _rounds: dict[Key, PollResults] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def view(self, key: Key) -> PollResults | None:
        """The newest round for one service; None before the first."""
        return self._rounds.get(key)

    def expect(self, key: Key, queries: tuple[str, ...] = ()) -> None:
        """Read this service's counters, and ask these queries, from now on and until `release`."""
        if key not in self.judged:
            self._wake.set()
        self.judged[key] = queries

    def release(self, key: Key) -> None:
        """Its counters are not needed any more."""
        self.judged.pop(key, None)
        self._rounds.pop(key, None)

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            self._wake.clear()
            if not self.judged:
                await self._wake.wait()
            await self.round()
            await asyncio.sleep(PERIOD_SECONDS)

    async def round(self) -> None:
        """Read every Ready gateway pod once, for all judged services together."""
        keys = sorted(self.judged)
        scraped = tuple(key for key in keys if self.through_prometheus(key))
        asked = tuple(key for key in keys if key not in scraped)
        queries = tuple(dict.fromkeys(query for key in keys for query in self.judged[key]))
        by_pods, by_scrapes, answered = await asyncio.gather(
            self._ask(asked), self._scraped(scraped), self._answered(queries)
        )
        for key, answers in (by_pods | by_scrapes).items():
            if key in self.judged:
                found = {query: answered[query] for query in self.judged[key] if query in answered}
                self._rounds[key] = replace(answers, metrics=found)
                self.changed(key)

    async def _ask(self, keys: tuple[Key, ...]) -> dict[Key, PollResults]:
        """What the pods themselves say."""
        if not keys:
            return {}
        pods = self._ready()
        reports = await self.pods.ask(keys)
        return {
            key: self._answers(
                {uid: _reading(reports.get(name), "/".join(key)) for name, uid in pods.items()}
            )
            for key in keys
        }

    async def _scraped(self, keys: tuple[Key, ...]) -> dict[Key, PollResults]:
        """What Prometheus has of them."""
        if not keys:
            return {}
        pods = self._ready()
        found = await self._query(scrapes.expression(keys))
        if isinstance(found, Unavailable):
            return {key: self._answers(dict.fromkeys(pods.values(), _UNREAD), found.reason) for key in keys}
        answers = {}
        for key in keys:
            by_name = scrapes.readings(found, key, pods)
            by_uid = {pods[name]: reading for name, reading in by_name.items()}
            answers[key] = self._answers(by_uid, scrapes.unread(by_name))
        return answers

    async def _answered(self, queries: tuple[str, ...]) -> dict[str, tuple[Series, ...] | Unavailable]:
        """What Prometheus answers to each query."""
        answers = await asyncio.gather(*(self._query(query) for query in queries))
        return dict(zip(queries, answers, strict=True))

    async def _query(self, expression: str) -> tuple[Series, ...] | Unavailable:
        if self.prometheus is None:
            return Unavailable("no Prometheus is named in the installation's values (prometheus.url)")
        return await self.prometheus.query(expression)

    def _ready(self) -> dict[str, str]:
        """UIDs of the pods that must be read, by name, as they are before anything is read."""
        return {name: uid_of(pod) for name, pod in self.pods.ready_pods().items()}

    def _answers(self, by_pod: Mapping[str, Reading | Unknown], unread: str = "") -> PollResults:
        existing = frozenset(uid_of(pod) for pod in self.pods.all_pods())
        return PollResults(by_pod, existing | by_pod.keys(), unread)


def _reading(report: Observed | Unread | None, service: str) -> Reading | Unknown:
    """The counters of one service in one gateway; a gateway that does not know it says nothing."""
    if not isinstance(report, Observed) or report.envoy_start_time is None:
        return Unknown.UNKNOWN
    seen = report.services.get(service)
    if seen is None or seen.counters is None:
        return Unknown.UNKNOWN
    counted = {revision: _classes(classes) for revision, classes in seen.counters.items()}
    return Reading(report.envoy_start_time.isoformat(), counted)


def _classes(counted: RequestClasses) -> Classes:
    return Classes(
        good=counted.good,
        slow=counted.slow,
        timed_out=counted.timed_out,
        shed=counted.shed,
        failed=counted.failed,
        abandoned=counted.abandoned,
    )
