"""The counters of every gateway pod, read in rounds while some rollout is judged.

From the pods themselves, or from what Prometheus scraped of them: as each service's spec.rollout says.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from tailbound.api.traffic import Observed, RequestClasses
from tailbound.controller.batches import batches
from tailbound.controller.tenant_queries import Answer, TenantQueries
from tailbound.judge import scrapes
from tailbound.judge.counters import Classes, Reading
from tailbound.judge.polls import PollResults
from tailbound.kube.objects import Key, uid_of
from tailbound.objects.fields import Object
from tailbound.objects.unknown import Unknown
from tailbound.telemetry.prometheus import Prometheus, Series

NO_PROMETHEUS: Final = Unknown("no Prometheus is named in the installation's values (prometheus.url)")
PERIOD_SECONDS = 2.0
"""Between two rounds, while few services are judged."""
PERIOD_SECONDS_OF_EACH = 0.006
"""Between two rounds for each judged service: twice the CPU time of a decision and of reading its counters.
Without it the rounds of a thousand rollouts would take a whole core, and hold up all other services."""
SCRAPED_BATCH = 50
"""Services that one query names. Another one's failure says nothing about them."""


class GatewayPods(Protocol):
    """The gateway pods, and how they are read."""

    def ready_pods(self) -> Mapping[str, Object]:
        """Every gateway pod that is Ready and stays, by name."""
        ...

    def all_pods(self) -> Iterable[Object]:
        """Every gateway pod that there is."""
        ...

    async def ask(self, services: Sequence[Key]) -> Mapping[Key, Mapping[str, Observed | Unknown]]:
        """What every Ready gateway pod reports about each of these services, by the pod's name."""
        ...


@dataclass
class CounterPoller:
    """The newest round for each service that is judged; an idle fleet is not asked.

    A round is taken over as a whole. `changed(key)` is called for every service after each round, be it
    complete or not: that nothing could be read is news, too.
    """

    pods: GatewayPods
    changed: Callable[[Key], None]
    through_prometheus: Callable[[Key], bool]
    """Whether a service's counters are to be taken from Prometheus."""
    prometheus: Prometheus | None
    tenants: TenantQueries | None
    """Who asks what analysis.metrics says; None without a Prometheus."""
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
            await asyncio.sleep(self.pause())

    def pause(self) -> float:
        """Seconds until the next round: more with many judged services, so that half of a core stays free."""
        return max(PERIOD_SECONDS, PERIOD_SECONDS_OF_EACH * len(self.judged))

    async def round(self) -> None:
        """Read every Ready gateway pod once, for all judged services together."""
        keys = sorted(self.judged)
        through = {key: self.through_prometheus(key) for key in keys}
        scraped = tuple(key for key in keys if through[key])
        asked = tuple(key for key in keys if not through[key])
        by_pods, by_scrapes, answered = await asyncio.gather(
            self._ask(asked), self._scraped(scraped), self._answered(keys)
        )
        for key, answers in (by_pods | by_scrapes).items():
            if key in self.judged:
                of_namespace = answered.get(key[0], {})
                found = {query: of_namespace[query] for query in self.judged[key] if query in of_namespace}
                self._rounds[key] = replace(answers, metrics=found)
                self.changed(key)

    async def _ask(self, keys: tuple[Key, ...]) -> dict[Key, PollResults]:
        """What the pods themselves say."""
        if not keys:
            return {}
        pods = self._ready()
        reports = await self.pods.ask(keys)
        return {key: self._of_pods(key, pods, reports[key]) for key in keys}

    def _of_pods(
        self, key: Key, pods: Mapping[str, str], reports: Mapping[str, Observed | Unknown]
    ) -> PollResults:
        read = {name: _reading(reports.get(name), "/".join(key)) for name in sorted(pods)}
        missing = ((name, each.reason) for name, each in read.items() if isinstance(each, Unknown))
        unread = next((f"gateway pod {name} {reason}" for name, reason in missing), "")
        return self._answers({pods[name]: each for name, each in read.items()}, unread)

    async def _scraped(self, keys: tuple[Key, ...]) -> dict[Key, PollResults]:
        """What Prometheus has of them."""
        if not keys:
            return {}
        parts = await asyncio.gather(*(self._scraped_batch(each) for each in batches(keys, SCRAPED_BATCH)))
        return {key: answer for part in parts for key, answer in part.items()}

    async def _scraped_batch(self, keys: tuple[Key, ...]) -> dict[Key, PollResults]:
        pods = self._ready()
        found = await self._query(scrapes.expression(keys))
        if isinstance(found, Unknown):
            return {key: self._answers(dict.fromkeys(pods.values(), found), found.reason) for key in keys}
        answers = {}
        for key in keys:
            by_name = scrapes.readings(found, key, pods)
            by_uid = {pods[name]: reading for name, reading in by_name.items()}
            answers[key] = self._answers(by_uid, scrapes.unread(by_name))
        return answers

    async def _answered(self, keys: Iterable[Key]) -> dict[str, dict[str, Answer]]:
        """What Prometheus answers to the queries of each namespace."""
        asked: dict[str, dict[str, None]] = {}
        for key in keys:
            asked.setdefault(key[0], {}).update(dict.fromkeys(self.judged[key]))
        if self.tenants is None:
            return {each: dict.fromkeys(queries, NO_PROMETHEUS) for each, queries in asked.items()}
        return await self.tenants.answers({each: tuple(queries) for each, queries in asked.items()})

    async def _query(self, expression: str) -> tuple[Series, ...] | Unknown:
        if self.prometheus is None:
            return NO_PROMETHEUS
        return await self.prometheus.query(expression)

    def _ready(self) -> dict[str, str]:
        """UIDs of the pods that must be read, by name, as they are before anything is read."""
        return {name: uid_of(pod) for name, pod in self.pods.ready_pods().items()}

    def _answers(self, by_pod: Mapping[str, Reading | Unknown], unread: str = "") -> PollResults:
        existing = frozenset(uid_of(pod) for pod in self.pods.all_pods())
        return PollResults(by_pod, existing | by_pod.keys(), unread)


def _reading(report: Observed | Unknown | None, service: str) -> Reading | Unknown:
    """The counters of one service in one gateway, or why they are not known.

    | what the gateway reports | result |
    |---|---|
    | nothing, or it could not be read | why |
    | its Envoy is not up | that |
    | not this service | that: it says nothing about it |
    | the service without counters | that |
    | counters | these |
    """
    if report is None:
        return Unknown("was not read")
    if isinstance(report, Unknown):
        return Unknown(f"could not be read: {report.reason}")
    if report.envoy_start_time is None:
        return Unknown("could not be read: its Envoy is not up")
    seen = report.services.get(service)
    if seen is None:
        return Unknown(f"could not be read: it does not know {service} yet")
    if seen.counters is None:
        return Unknown("could not be read: its Envoy does not tell its counters")
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
