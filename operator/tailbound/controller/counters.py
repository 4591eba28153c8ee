"""The counters of every gateway pod, read in rounds while some rollout is judged."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tailbound.api.traffic import Observed, RequestClasses
from tailbound.kube.objects import Key, uid_of
from tailbound.kube.protocol import Object
from tailbound.reconcile.model import Unread
from tailbound.rollout.counters import Classes, Reading, Unknown
from tailbound.rollout.polls import Answers

PERIOD_SECONDS = 2.0


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
class Counters:
    """The newest round for each service that is judged; an idle fleet is not asked.

    A round is taken over as a whole. `changed(key)` is called for every service after each round, be it
    complete or not: that nothing could be read is news, too.
    """

    pods: Pods
    changed: Callable[[Key], None]
    judged: set[Key] = field(default_factory=set)
    _rounds: dict[Key, Answers] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def view(self, key: Key) -> Answers | None:
        """The newest round for one service; None before the first."""
        return self._rounds.get(key)

    def expect(self, key: Key) -> None:
        """Read this service's counters from now on, and until `release`."""
        if key not in self.judged:
            self.judged.add(key)
            self._wake.set()

    def release(self, key: Key) -> None:
        """Its counters are not needed any more."""
        self.judged.discard(key)
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
        """Ask every Ready gateway pod once, for all judged services together."""
        keys = tuple(sorted(self.judged))
        pods = dict(self.pods.ready_pods())
        reports = await self.pods.ask(keys)
        existing = frozenset(uid_of(pod) for pod in self.pods.all_pods())
        for key in keys:
            if key not in self.judged:
                continue
            name = "/".join(key)
            answers = {uid_of(pod): _reading(reports.get(pod_name), name) for pod_name, pod in pods.items()}
            self._rounds[key] = Answers(answers, existing | answers.keys())
            self.changed(key)


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
        failed=counted.failed,
        abandoned=counted.abandoned,
    )
