"""What the gateway pods report at /observed, read while some service awaits their acknowledgement.

An idle fleet is not polled: a pod is read once when it becomes Ready, then only while a change is on its way.
Services are asked for in batches, so that no request grows with the fleet.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Protocol

from tailbound.api.traffic import MOST_ASKED, Observed, ServiceObservation
from tailbound.controller.batches import batches
from tailbound.controller.gateway_report import PodReport
from tailbound.kube.objects import Key, key_of, uid_of
from tailbound.kube.store import ObjectStore
from tailbound.objects.fields import Object
from tailbound.objects.pod import Pod
from tailbound.objects.unknown import Unknown
from tailbound.telemetry.metrics import Metrics

FAST_SECONDS = 0.2
SLOW_SECONDS = 1.0
# How long a change is followed closely: gateways acknowledge within a second unless something is wrong.
FAST_PHASE_SECONDS = 10.0


class Reader(Protocol):
    """Reads /observed of one gateway pod."""

    def __call__(
        self, pod: Object, services: Sequence[Key] = (), *, counters: bool = False
    ) -> Awaitable[Observed | Unknown]:
        """Reads at most MOST_ASKED named services, or, without counters, all of them if none is named."""
        ...


@dataclass(frozen=True)
class Awaiting:
    """A service that waits for acknowledgement, and since when (monotonic seconds)."""

    since: float


@dataclass
class GatewayReports:
    """The newest report of every Ready gateway pod.

    `changed(key)` is called when what gateways say about a service has changed. A new pod is read before a
    decision rests on it. Who hears of a change of the pods themselves:

    | a gateway pod                                         | `changed` of                         |
    |-------------------------------------------------------|--------------------------------------|
    | has gone, the last one                                | all (`changed_all`)                  |
    | was read for the first time, with no other to compare | all (`changed_all`)                  |
    | was read for the first time                           | what another pod reports differently |
    | has gone, cannot be read, or has a new Envoy          | what awaits                          |

    Everything else had been acknowledged by every pod, and still is by those that are there. A service that
    is being decided on counts as awaiting until the decision ends in `expect` or `release`.
    """

    store: ObjectStore
    read: Reader
    clock: Callable[[], float]
    metrics: Metrics
    changed: Callable[[Key], None]
    changed_all: Callable[[], None]
    awaiting: dict[Key, Awaiting] = field(default_factory=dict)
    """The longest waiting first."""
    _deciding: set[Key] = field(default_factory=set)
    _pods: dict[str, PodReport] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _all_read_at: float = float("-inf")

    def __post_init__(self) -> None:
        self.store.subscribe(self._pods_changed)

    def view(self, key: Key) -> Mapping[str, Observed | Unknown]:
        """What `reports` says, for a decision that ends in `expect` or `release`."""
        self._deciding.add(key)
        return self.reports(key)

    def reports(self, key: Key) -> Mapping[str, Observed | Unknown]:
        """What every Ready gateway pod reports about one service, by the pod's name."""
        return {name: pod.of(key) for name, pod in sorted(self._pods.items())}

    def observations(self, key: Key) -> Mapping[str, ServiceObservation | None]:
        """What every Ready gateway pod has of one service, by the pod's name; None: nothing, or not known."""
        return {name: pod.observation(key) for name, pod in sorted(self._pods.items())}

    def waited(self, waiting: Awaiting) -> Mapping[str, float]:
        """How long each Ready gateway pod has owed its acknowledgement to this service, in seconds.

        A pod owes it from the moment since which it is read, or unread: one that just crashed gets its time.
        """
        now = self.clock()
        return {name: now - max(waiting.since, pod.since) for name, pod in self._pods.items()}

    def ready_pods(self) -> Mapping[str, Object]:
        """Every gateway pod that is Ready and stays, by name."""
        return {key_of(pod)[1]: pod for pod in self.store if _is_ready(Pod(pod))}

    def all_pods(self) -> Iterable[Object]:
        """Every gateway pod that there is."""
        return self.store

    async def ask(self, services: Sequence[Key]) -> Mapping[Key, Mapping[str, Observed | Unknown]]:
        """What every Ready gateway pod reports about these services, counters included, by service and pod.

        What they have applied enters `view`. A batch that fails leaves it as it was: only counting needs it.
        """
        return await self._read_named(list(self._pods), services, counters=True)

    def expect(self, key: Key) -> None:
        """Read the gateways soon, and until `release`."""
        self._deciding.discard(key)
        if key not in self.awaiting:
            self.awaiting[key] = Awaiting(self.clock())
            self._wake.set()

    def release(self, key: Key) -> None:
        """The service awaits nothing any more."""
        self._deciding.discard(key)
        self.awaiting.pop(key, None)

    async def refresh(self) -> None:
        """Read every Ready gateway pod once, completely. A new leader does this before its first decision."""
        self._sync_pods()
        await self._read_completely(list(self._pods))

    async def run(self) -> None:
        """Read as often as needed until cancelled."""
        while True:
            await self._pause()
            unread = self._unread()
            named = self._due()
            if named:
                await self._read_named([name for name in self._pods if name not in unread], named)
            await self._read_completely(unread)

    def _unread(self) -> list[str]:
        return [name for name, pod in self._pods.items() if pod.unread]

    def _young(self) -> Iterator[Key]:
        """Services that have begun to wait lately, the last one first."""
        now = self.clock()
        young = takewhile(
            lambda each: now - each[1].since < FAST_PHASE_SECONDS, reversed(self.awaiting.items())
        )
        return (key for key, _ in young)

    def _due(self) -> tuple[Key, ...]:
        """The services to read now: those followed closely, and every SLOW_SECONDS all that await."""
        now = self.clock()
        if now - self._all_read_at < SLOW_SECONDS:
            return tuple(self._young())
        self._all_read_at = now
        return tuple(self.awaiting)

    async def _pause(self) -> None:
        """Sleep until the next reading: at once for a new expectation or pod, never for an idle fleet."""
        self._wake.clear()
        pause: float | None = None
        if next(self._young(), None) is not None:
            pause = FAST_SECONDS
        elif self.awaiting or self._unread():
            pause = SLOW_SECONDS
        try:
            async with asyncio.timeout(pause):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _read_named(
        self, names: Sequence[str], services: Sequence[Key], *, counters: bool = False
    ) -> Mapping[Key, Mapping[str, Observed | Unknown]]:
        """Read these pods at the same time, each in one batch of services after the other."""
        pods = self.ready_pods()
        found: dict[Key, dict[str, Observed | Unknown]] = {key: {} for key in services}

        async def read(name: str) -> None:
            for batch in batches(services, MOST_ASKED):
                answer = await self._counted(pods[name], batch, counters=counters)
                if isinstance(answer, Observed) or not counters:
                    self._take(name, batch, answer)
                for key in batch:
                    found[key][name] = answer

        await asyncio.gather(*(read(name) for name in names if name in pods))
        return found

    async def _read_completely(self, names: Sequence[str]) -> None:
        pods = self.ready_pods()
        known = [name for name in names if name in pods]
        answers = await asyncio.gather(*(self._counted(pods[name]) for name in known))
        for name, answer in zip(known, answers, strict=True):
            self._take_all(name, answer)

    async def _counted(
        self, pod: Object, services: Sequence[Key] = (), *, counters: bool = False
    ) -> Observed | Unknown:
        answer = await self.read(pod, services, counters=counters)
        self.metrics.gateway_reads.labels("ok" if isinstance(answer, Observed) else "unread").inc()
        return answer

    def _take(self, name: str, services: Sequence[Key], answer: Observed | Unknown) -> None:
        """Take in what a pod says of a batch of services; a failure is one of these services alone."""
        pod = self._pods.get(name)
        if pod is None or pod.unread:
            return  # no longer Ready, or to be read completely
        if isinstance(answer, Observed) and answer.envoy_start_time != pod.started:
            # What the old Envoy had acknowledged is void.
            pod.lose("Envoy was restarted and is being read again")
            self._wake.set()
            self._notify(self._concerned())
        else:
            self._notify(pod.take(services, answer))

    def _take_all(self, name: str, answer: Observed | Unknown) -> None:
        """Take in what a pod says of all services."""
        pod = self._pods.get(name)
        if pod is None:
            return
        was_unread, first = pod.unread, pod.services is None
        if isinstance(answer, Unknown):
            self._notify(self._concerned() if pod.lose(answer.reason) else ())
            return
        other = next((each for each in self._pods.values() if each is not pod and each.services), None)
        different = pod.take_all(answer, other)
        if first and other is None:
            self.changed_all()
        else:
            self._notify(different | (self._concerned() if was_unread else set()))

    def _concerned(self) -> set[Key]:
        """Services whose decision rests on what every pod says now."""
        return self.awaiting.keys() | self._deciding

    def _notify(self, keys: Iterable[Key]) -> None:
        for key in tuple(keys):
            self.changed(key)

    def _pods_changed(self, _old: Object | None, _new: Object | None) -> None:
        before = {name: pod.uid for name, pod in self._pods.items()}
        self._sync_pods()
        after = {name: pod.uid for name, pod in self._pods.items()}
        if after == before:
            return
        self._wake.set()
        if not after:
            self.changed_all()
        elif before.items() - after.items():
            self._notify(self._concerned())

    def _sync_pods(self) -> None:
        """Make `_pods` hold the Ready ones."""
        ready = {name: uid_of(pod) for name, pod in self.ready_pods().items()}
        known = {name: pod.uid for name, pod in self._pods.items()}
        for name, _ in known.items() - ready.items():
            del self._pods[name]
        for name, uid in ready.items() - known.items():
            self._pods[name] = PodReport(uid, self.clock)


def _is_ready(pod: Pod) -> bool:
    return pod.ready and bool(pod.pod_ip) and not pod.terminating
