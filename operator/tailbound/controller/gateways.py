"""What the gateway pods report at /observed, read while some service awaits their acknowledgement.

An idle fleet is not polled: a pod is read once when it becomes Ready, then only while a change is on its way.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tailbound.api.traffic import Observed, ServiceObservation
from tailbound.kube.objects import Key, key_of, metadata, uid_of
from tailbound.kube.protocol import Object
from tailbound.kube.store import ObjectStore
from tailbound.reconcile.model import Unread
from tailbound.telemetry.metrics import Metrics

FAST_SECONDS = 0.2
SLOW_SECONDS = 1.0
# How long a change is followed closely: gateways acknowledge within a second unless something is wrong.
FAST_PHASE_SECONDS = 10.0
# Above this many awaiting services, everything is read in one answer.
MOST_NAMED_SERVICES = 50


class Reader(Protocol):
    """GET /observed of one gateway pod."""

    def __call__(self, pod: Object, services: Iterable[Key]) -> Awaitable[Observed | Unread]:
        """For the named services, or for all of them if none is named."""
        ...


@dataclass
class _Pod:
    uid: str
    current: Observed | Unread
    complete: Observed | None = None  # everything that was ever read of this Envoy


@dataclass(frozen=True)
class Awaiting:
    """A service that waits for acknowledgement, and since when (monotonic seconds)."""

    since: float


@dataclass
class GatewayReports:
    """The newest report of every Ready gateway pod.

    `changed(key)` is called when what gateways say about a service has changed, `changed_all` when a gateway
    pod has gone or was read for the first time. A new pod is read before a decision rests on it.
    """

    store: ObjectStore
    read: Reader
    clock: Callable[[], float]
    metrics: Metrics
    changed: Callable[[Key], None]
    changed_all: Callable[[], None]
    awaiting: dict[Key, Awaiting] = field(default_factory=dict)
    _pods: dict[str, _Pod] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.store.subscribe(self._pods_changed)

    def view(self) -> Mapping[str, Observed | Unread]:
        """Every Ready gateway pod by name."""
        return {name: pod.current for name, pod in sorted(self._pods.items())}

    def ready_pods(self) -> Mapping[str, Object]:
        """Every gateway pod that is Ready and stays, by name."""
        return {key_of(pod)[1]: pod for pod in self.store if _is_ready(pod)}

    def all_pods(self) -> Iterable[Object]:
        """Every gateway pod that there is."""
        return self.store

    async def ask(self, services: tuple[Key, ...]) -> Mapping[str, Observed | Unread]:
        """What every Ready gateway pod reports about these services, counters included, by its name.

        What they have applied enters `view` as with every other reading.
        """
        return await self._read_pods(list(self._pods), services)

    def expect(self, key: Key) -> None:
        """Read the gateways soon, and until `release`."""
        if key not in self.awaiting:
            self.awaiting[key] = Awaiting(self.clock())
            self._wake.set()

    def release(self, key: Key) -> None:
        """The service awaits nothing any more."""
        self.awaiting.pop(key, None)

    async def refresh(self) -> None:
        """Read every Ready gateway pod once, completely. A new leader does this before its first decision."""
        self._sync_pods()
        await self._read_pods(list(self._pods), ())

    async def run(self) -> None:
        """Read as often as needed until cancelled."""
        while True:
            await self._pause()
            unread = self._unread()
            if self.awaiting:
                named = tuple(self.awaiting) if len(self.awaiting) <= MOST_NAMED_SERVICES else ()
                await self._read_pods([name for name in self._pods if name not in unread], named)
            await self._read_pods(unread, ())

    def _unread(self) -> list[str]:
        return [name for name, pod in self._pods.items() if isinstance(pod.current, Unread)]

    async def _pause(self) -> None:
        """Sleep until the next reading: at once for a new expectation or pod, never for an idle fleet."""
        self._wake.clear()
        pause: float | None = None
        if self.awaiting:
            newest = max(waiting.since for waiting in self.awaiting.values())
            fast = self.clock() - newest < FAST_PHASE_SECONDS
            pause = FAST_SECONDS if fast else SLOW_SECONDS
        elif self._unread():
            pause = SLOW_SECONDS
        try:
            async with asyncio.timeout(pause):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _read_pods(
        self, names: list[str], services: tuple[Key, ...]
    ) -> Mapping[str, Observed | Unread]:
        pods = self.ready_pods()
        known = [name for name in names if name in pods]
        answers = await asyncio.gather(*(self.read(pods[name], services) for name in known))
        for name, answer in zip(known, answers, strict=True):
            self.metrics.gateway_reads.labels("ok" if isinstance(answer, Observed) else "unread").inc()
            self._take(name, _without_counters(answer), services)
        return dict(zip(known, answers, strict=True))

    def _take(self, name: str, answer: Observed | Unread, services: tuple[Key, ...]) -> None:
        pod = self._pods.get(name)
        if pod is None:
            return  # no longer Ready: `changed_all` has been called
        before, first = pod.current, pod.complete is None
        if isinstance(answer, Observed):
            pod.complete = _merged(pod.complete, answer, services)
            if pod.complete is None:
                # Another Envoy than before: what the old one had acknowledged is void. Read it all.
                self._wake.set()
            pod.current = pod.complete or Unread("Envoy was restarted and is being read again")
        else:
            pod.current = answer
        if first and pod.complete is not None:
            self.changed_all()
        else:
            self._tell(before, pod.current)

    def _tell(self, before: Observed | Unread, after: Observed | Unread) -> None:
        if isinstance(before, Unread) or isinstance(after, Unread):
            if before != after:
                for key in tuple(self.awaiting):
                    self.changed(key)
            return
        for name in before.services.keys() | after.services.keys():
            if before.services.get(name) != after.services.get(name):
                namespace, _, service = name.partition("/")
                self.changed((namespace, service))

    def _pods_changed(self, _old: Object | None, _new: Object | None) -> None:
        known = set(self._pods)
        self._sync_pods()
        self._wake.set()
        if known - set(self._pods):
            self.changed_all()

    def _sync_pods(self) -> None:
        """Make `_pods` hold the Ready ones."""
        ready = {name: uid_of(pod) for name, pod in self.ready_pods().items()}
        known = {name: pod.uid for name, pod in self._pods.items()}
        for name, _ in known.items() - ready.items():
            del self._pods[name]
        for name, uid in ready.items() - known.items():
            self._pods[name] = _Pod(uid, Unread("it has just become Ready and is being read"))


def _without_counters(answer: Observed | Unread) -> Observed | Unread:
    """What decides on acknowledgements: counters change with every request, and are no news."""
    if isinstance(answer, Unread):
        return answer
    services = {
        name: seen if seen.counters is None else seen.model_copy(update={"counters": None})
        for name, seen in answer.services.items()
    }
    return answer.model_copy(update={"services": services})


def _merged(known: Observed | None, answer: Observed, services: tuple[Key, ...]) -> Observed | None:
    """Everything known of one Envoy; None if only some services of a new Envoy are known."""
    if not services:
        return answer
    if known is None or known.envoy_start_time != answer.envoy_start_time:
        return None
    asked = {f"{namespace}/{name}" for namespace, name in services}
    kept: dict[str, ServiceObservation] = {
        name: seen for name, seen in known.services.items() if name not in asked
    }
    return answer.model_copy(update={"services": {**kept, **answer.services}})


def _is_ready(pod: Object) -> bool:
    status = pod.get("status") or {}
    ready = any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )
    return ready and bool(status.get("podIP")) and not metadata(pod).get("deletionTimestamp")
