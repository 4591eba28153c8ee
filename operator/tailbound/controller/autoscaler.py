"""Decides, once per tick, how many pods every service that follows its traffic is to have.

All signals of the fleet are read at once. A service whose number of pods is fixed is only watched: how many
of its requests are late. A service is reconciled only when what is known of it has changed: an idle fleet
writes nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Protocol, TypeVar

from tailbound.api.names import REVISION_LABEL, SERVER_METRICS_ANNOTATION
from tailbound.api.server_metrics import ServerMetrics, metrics_of
from tailbound.autoscale.decision import ReplicaDecision
from tailbound.autoscale.model import (
    STALE,
    Known,
    LatencyTarget,
    LearnedCapacity,
    Limits,
    Rate,
    RevisionObservation,
)
from tailbound.autoscale.state import USUAL_COLD_START, State, restored
from tailbound.controller.server_signals import Mappings
from tailbound.controller.signals import FleetSnapshot, Rates, history, take
from tailbound.controller.stores import Stores
from tailbound.kube.objects import Key
from tailbound.kube.resources import CONTROLLER_REVISIONS, DEPLOYMENTS, INFERENCE_SERVICES, PODS
from tailbound.objects.deployment import Deployment
from tailbound.objects.fields import Object
from tailbound.objects.metadata import KubernetesObject
from tailbound.objects.pod import Pod
from tailbound.objects.unknown import Unknown
from tailbound.reconcile import capacity
from tailbound.reconcile.model import RevisionLoad, ScalingDecision, ScalingDecisions, ScalingRequest
from tailbound.reconcile.scaling import ALLOWED_LATE, rounded
from tailbound.reconcile.signals import RevisionPods, first_starts, limits, observed, part
from tailbound.revisions.marks import fallback_of, marks_of
from tailbound.telemetry.logs import logger
from tailbound.telemetry.prometheus import Queries, RevisionName

_LOG = logger(__name__)
_T = TypeVar("_T")
FIRST_LOOK_SECONDS = 60.0
"""The longest time that a new process decides on services without a look at the metrics."""
_LOOK_SECONDS = 0.2
_TURN_SECONDS = 0.005
"""The time that a tick takes from the event loop at once; one decision may take longer."""


class Decide(Protocol):
    """The pure core."""

    def __call__(
        self,
        now: float,
        observation: RevisionObservation,
        objective: LatencyTarget,
        limits: Limits,
        state: State,
    ) -> ReplicaDecision:
        """How many replicas one revision shall have."""
        ...


@dataclass(frozen=True)
class _Children(RevisionPods):
    """What is there of one revision."""

    record: Object | None

    @cached_property
    def placed(self) -> str:
        """Since when its pods are for another hardware class than its first one; empty for that one."""
        fallback = fallback_of(self.record) if self.record is not None else None
        return fallback.since if fallback is not None else ""

    @cached_property
    def note(self) -> capacity.Note | None:
        """The learned capacity in its record; None without one."""
        return capacity.note_of(marks_of(self.record)) if self.record is not None else None


@dataclass(frozen=True)
class _Seen:
    """The children of a service as they were at the last look, and the stored objects that they are."""

    names: tuple[str, ...]
    stored: tuple[tuple[Object, ...], ...]
    children: Mapping[str, _Children]


@dataclass
class Autoscaler:
    """The newest decisions on every service whose last plan asks for them.

    `changed(key)` is called when a decision is another than before. `now` is Unix time in seconds, as that of
    Prometheus is.
    """

    stores: Stores
    queries: Queries | None
    decide: Decide
    gateways: Callable[[], int]
    """How many gateway pods are Ready."""
    changed: Callable[[Key], None]
    now: Callable[[], float]
    period_seconds: float
    starting: Callable[[], bool] = field(default=lambda: False)
    """Whether services wait for the first decision of this process."""
    wanted: dict[Key, ScalingRequest] = field(default_factory=dict)
    _sizes: dict[Key, ScalingDecisions] = field(default_factory=dict)
    _ready_since: dict[Key, float] = field(default_factory=dict)
    """When a pod of each service was first seen to be ready."""
    _seen: dict[Key, _Seen] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def view(self, key: Key) -> ScalingDecisions | None:
        """The newest decisions on one service; None before the first."""
        return self._sizes.get(key)

    def stale(self) -> int:
        """Services whose newest decision lacked a signal."""
        return sum(
            any(each.decision.stale for each in sizes.revisions.values()) for sizes in self._sizes.values()
        )

    def expect(self, key: Key, wanted: ScalingRequest) -> None:
        """Decide on this service from now on, and until `release`."""
        if not self.wanted:
            self._wake.set()
        before = self.wanted.get(key)
        if before is not None and before.only_watched != wanted.only_watched:
            self.release(key)
        self.wanted[key] = wanted

    def release(self, key: Key) -> None:
        """Neither decide on this service any more nor watch it."""
        self.wanted.pop(key, None)
        self._sizes.pop(key, None)
        self._ready_since.pop(key, None)
        self._seen.pop(key, None)

    async def run(self) -> None:
        """Decide until cancelled; first when the services of a fleet that is there have been decided on.

        Until then each look would cost as much as later ones, for few of them.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LOOK_SECONDS):
                while self.starting():  # noqa: ASYNC110 - a queue that others empty
                    await asyncio.sleep(_LOOK_SECONDS)
        while True:
            self._wake.clear()
            if not self.wanted:
                await self._wake.wait()
            await self.tick()
            await asyncio.sleep(self.period_seconds)

    async def tick(self) -> None:
        """One look at the metrics, and one decision on each revision."""
        sized = {key for key, wanted in self.wanted.items() if not wanted.only_watched}
        # Prometheus answers about all of them, also while a process that starts has come to few.
        fleet = len(self.stores.of[INFERENCE_SERVICES])
        past = await history(self.queries, sorted(sized - self._sizes.keys()), fleet)
        if past.lost:
            why = next(iter(past.lost.values()))
            _LOG.warning(
                "sized without their traffic of the last half hour", services=len(past.lost), why=why
            )
        snapshot = await take(self.queries, self.gateways(), fleet, await self._mappings(sized))
        async for key, wanted in _in_turns(sorted(self.wanted.items())):
            before = self._sizes.get(key)
            try:
                sizes = self._decide(key, wanted, snapshot, past.rates.get(key, ()))
            except Exception:
                # One service whose decision fails must not take the others down with it.
                _LOG.exception("sizing failed", namespace=key[0], service=key[1])
                continue
            self._sizes[key] = sizes
            if _is_settled(sizes, wanted) if before is None else _news_of(sizes) == _news_of(before):
                continue
            self.changed(key)

    async def _mappings(self, keys: Iterable[Key]) -> Mappings:
        """The metrics of these services' servers, for revisions whose runtime maps them."""
        found: dict[RevisionName, ServerMetrics] = {}
        async for key in _in_turns(keys):
            for each in map(Deployment, self.stores.deployments(key)):
                metrics = metrics_of(each.pod_annotations.get(SERVER_METRICS_ANNOTATION))
                revision = each.label(REVISION_LABEL)
                if metrics is not None and revision is not None:
                    found[RevisionName(*key, revision)] = metrics
        return found

    def _decide(
        self, key: Key, wanted: ScalingRequest, snapshot: FleetSnapshot, past: Rates
    ) -> ScalingDecisions:
        before = self._sizes.get(key) or ScalingDecisions({}, None, awaited=True)
        if wanted.only_watched:
            return self._watched(key, wanted, snapshot, before)
        children = self._children(key, wanted)
        signals = snapshot.of(key, children, wanted.p99_seconds)
        seen = {
            name: observed(signals, name, wanted.revisions[name].share, each, self.now())
            for name, each in children.items()
        }
        if any(each.replicas.ready for each in seen.values()):
            self._ready_since.setdefault(key, self.now())
        sized = self._sized(key, wanted, children, seen, past)
        incomplete = not seen or any(each.decision.stale for each in sized.values())
        awaited = before.awaited and incomplete and self._is_young(key)
        # Without requests it stays as it was: a service that gets few would else write with each of them.
        late, shed = (before.late, before.shed) if signals.late is None else (signals.late, signals.shed)
        return replace(before, revisions=sized, late=late, shed=shed, missing=(), awaited=awaited)

    def _watched(
        self, key: Key, wanted: ScalingRequest, snapshot: FleetSnapshot, before: ScalingDecisions
    ) -> ScalingDecisions:
        """How many requests of a service that is not sized were late."""
        there = {Deployment(each).label(REVISION_LABEL) for each in self.stores.deployments(key)}
        revisions = sorted(wanted.revisions.keys() & there)
        signals = snapshot.watched(key, revisions)
        missing = _missing_of(signals.arrivals, before.missing)
        awaited = before.awaited and bool(not revisions or missing)
        if awaited:
            children = self._children(key, wanted).values()
            if any(each.report.ready for each in children):
                self._ready_since.setdefault(key, self.now())
            awaited = self._is_young(key)
        late, shed = (before.late, before.shed) if signals.late is None else (signals.late, signals.shed)
        return replace(before, revisions={}, late=late, shed=shed, missing=missing, awaited=awaited)

    def _sized(
        self,
        key: Key,
        wanted: ScalingRequest,
        children: Mapping[str, _Children],
        observations: Mapping[str, RevisionObservation],
        past: Rates,
    ) -> dict[str, ScalingDecision]:
        """One decision on each revision."""
        before = self._sizes.get(key) or ScalingDecisions({}, None)
        sized: dict[str, ScalingDecision] = {}
        for name, seen in observations.items():
            load, each, known = wanted.revisions[name], children[name], before.revisions.get(name)
            if known is not None and known.placed != each.placed:
                known = None  # on another class nothing of it is true
            decision = self.decide(
                self.now(),
                seen,
                load.objective,
                limits(wanted, load.share, each.report),
                self._remembered(key, each, load, seen, past)
                if known is None
                else known.decision.state.carrying(load.share, known.share),
            )
            decision = _in_the_same_words(decision, known)
            sized[name] = ScalingDecision(
                load.share, decision, self._to_write(each, decision.state), each.placed
            )
        return sized

    def _is_young(self, key: Key) -> bool:
        """Whether Prometheus has hardly had the time to see a pod of this service."""
        return self.now() - self._ready_since.get(key, self.now()) < STALE

    def _children(self, key: Key, wanted: ScalingRequest) -> Mapping[str, _Children]:
        """The children of the revisions that have a Deployment."""
        names = tuple(sorted(wanted.revisions))
        stored = tuple(
            self.stores.of[each].indexed(key) for each in (CONTROLLER_REVISIONS, DEPLOYMENTS, PODS)
        )
        seen = self._seen.get(key)
        # Mostly they are the very same objects, which costs next to nothing to find.
        if seen is None or (seen.names, seen.stored) != (names, stored):
            before = {} if seen is None else seen.children
            seen = self._seen[key] = _Seen(names, stored, _children_of(names, before, *stored))
        return seen.children

    def _remembered(
        self, key: Key, children: _Children, load: RevisionLoad, seen: RevisionObservation, past: Rates
    ) -> State:
        """The state from before this process started: the learned capacity, and the past traffic."""
        learned = self._learned(key, children)
        usual = USUAL_COLD_START if isinstance(learned, Unknown) else learned.cold_start
        cold_start = seen.cold_start.value if isinstance(seen.cold_start, Known) else usual
        return restored(part(past, load.share), cold_start, load.objective, learned)

    def _learned(self, key: Key, children: _Children) -> LearnedCapacity | Unknown:
        nothing = Unknown("no batch of this model was seen yet")
        if children.record is None:
            return nothing
        learned = capacity.remembered(children.record, self.stores.learned_like(children.record))
        return nothing if learned is None else learned

    def _to_write(self, children: _Children, state: State) -> str | None:
        learned = state.learned
        if children.record is None or not isinstance(learned, LearnedCapacity):
            return None
        return capacity.to_write(children.note, learned, datetime.fromtimestamp(self.now(), UTC))


async def _in_turns(items: Iterable[_T]) -> AsyncIterator[_T]:
    """Yield the items, with turns of the event loop between them: a large fleet takes seconds."""
    clock = asyncio.get_running_loop().time
    since = clock()
    for item in items:
        if clock() - since > _TURN_SECONDS:
            await asyncio.sleep(0)
            since = clock()
        yield item


def _children_of(
    names: Iterable[str],
    before: Mapping[str, _Children],
    revisions: Iterable[Object],
    deployments: Iterable[Object],
    pods: Iterable[Object],
) -> dict[str, _Children]:
    """The children as they are now; `before` is what the last look found."""
    records = {KubernetesObject(each).label(REVISION_LABEL): each for each in revisions}
    deployed = {view.label(REVISION_LABEL): view for view in map(Deployment, deployments)}
    found = {}
    for name in names:
        if name in deployed:
            own, known = tuple(pod for pod in map(Pod, pods) if _belongs(pod, name)), before.get(name)
            starts = first_starts(own) if known is None else known.starts.after(own)
            found[name] = _Children(deployed[name], own, starts, records.get(name))
    return found


def _belongs(pod: Pod, revision: str) -> bool:
    return pod.label(REVISION_LABEL) == revision and not pod.terminating


def _in_the_same_words(decision: ReplicaDecision, before: ScalingDecision | None) -> ReplicaDecision:
    """The decision, with missing signals in the words of the one before it.

    Texts of errors differ at every look, and each new text would be written to the status.
    """
    if before is None or _names(before.decision.stale) != _names(decision.stale):
        return decision
    return replace(decision, stale=before.decision.stale)


def _missing_of(arrivals: Rate, before: tuple[str, ...]) -> tuple[str, ...]:
    """Signals that are missing for counting late requests, in the words of `before` if they are the same."""
    missing = (f"arrivals: {arrivals.reason}",) if isinstance(arrivals, Unknown) else ()
    return before if _names(before) == _names(missing) else missing


def _names(missing: Iterable[str]) -> list[str]:
    return [words.partition(":")[0] for words in missing]


def _is_settled(sizes: ScalingDecisions, wanted: ScalingRequest) -> bool:
    """Whether the first decision of this process is the one that the status has already."""
    late = sizes.late is not None and sizes.late > ALLOWED_LATE
    if late or rounded(sizes.shed) or sizes.awaited or sizes.missing:
        return False
    found = {
        name: (each.share, each.decision.replicas, each.decision.limited_by)
        for name, each in sizes.revisions.items()
    }
    news = any(each.decision.stale or each.capacity is not None for each in sizes.revisions.values())
    return found == wanted.settled and not news


def _news_of(sizes: ScalingDecisions) -> Mapping[str, object]:
    """The parts of a decision whose change needs a reconciliation; other figures alone do not."""
    found: dict[str, object] = {
        name: (
            each.share,
            each.decision.replicas,
            each.decision.limited_by,
            each.decision.stale,
            each.decision.unreachable is None,
            each.capacity is not None,
        )
        for name, each in sizes.revisions.items()
    }
    late = None if sizes.late is None else sizes.late <= ALLOWED_LATE
    return found | {"": (late, rounded(sizes.shed), sizes.awaited, sizes.missing)}
