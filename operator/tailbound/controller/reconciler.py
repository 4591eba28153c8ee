"""One service from what is known to what is written: observe, render, decide, execute, status, Events."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from tailbound.controller.drafts import Drafts, Renders
from tailbound.controller.evidence_cache import EvidenceCache
from tailbound.controller.execute import Executor, target_of
from tailbound.controller.observe import observe
from tailbound.controller.restraint import Restraint, Target
from tailbound.controller.stores import Stores
from tailbound.controller.subscriptions import Subscriptions
from tailbound.kube.errors import Conflict, Transient
from tailbound.kube.objects import Key
from tailbound.objects.fields import Object, child
from tailbound.objects.metadata import KubernetesObject
from tailbound.reconcile.desired import Draft
from tailbound.reconcile.model import (
    DryRun,
    Observation,
    Plan,
    RefusedWrite,
    Settings,
    Write,
)
from tailbound.reconcile.snapshot import Reading
from tailbound.telemetry.events import EventWriter
from tailbound.telemetry.logs import logger

_LOG = logger(__name__)
# Conflicts of one pass: each was decided again on newer facts. After that the backoff takes over.
MOST_CONFLICTS = 8


class Decider(Protocol):
    """The decision on one service: `tailbound.reconcile.decide`, or a stand-in for it in tests."""

    def read(self, observation: Observation) -> Reading:
        """The parsed observation."""
        ...

    def decide(self, reading: Reading, drafted: Draft, now: datetime) -> Plan:
        """The plan: writes, status and events."""
        ...


@dataclass(frozen=True)
class PassOutcome:
    """How a pass ended. `gone`: there is no such service any more."""

    requeue_after_seconds: float | None = None
    obstructed: bool = False
    gone: bool = False
    wrote: bool = False


class Reconciler:
    """Reconciles one service at a time per key; different keys run side by side."""

    def __init__(
        self,
        stores: Stores,
        executor: Executor,
        following: Subscriptions,
        renderer: Renders,
        events: EventWriter,
        decider: Decider,
        settings: Settings,
        now: Callable[[], datetime],
    ) -> None:
        self._stores = stores
        self._executor = executor
        self._following = following
        self._drafts = Drafts(renderer)
        self._events = events
        self._decider = decider
        self._settings = settings
        self._now = now
        self._restraint = Restraint()
        self._evidence = EvidenceCache()

    async def reconcile(self, key: Key) -> PassOutcome:
        """Bring one service closer to its spec. What the API server refuses of it holds up nothing else.

        Raises NotLeaderError, Transient, Conflict (after several looks), and Terminal (status refused).
        """
        wrote, conflicts = False, 0
        service = self._stores.service(key)
        refused_writes = self._restraint.held(key, _generation(service), self._seconds())
        while service is not None:
            try:
                plan = await self._decide(key, service, refused_writes)
                if not await self._write(key, service, plan, refused_writes):
                    status_after = await self._finish(key, service, plan)
                    self._following.follow(key, plan)
                    wrote = wrote or bool(plan.writes) or plan.status is not None
                    return self._outcome(key, plan, refused_writes, status_after, wrote)
                wrote = True
            except Conflict:
                conflicts += 1
                if conflicts == MOST_CONFLICTS:
                    raise
            service = self._stores.service(key)
        self._following.release(key)
        self._restraint.forget(key)
        self._evidence.forget(key)
        return PassOutcome(gone=True)

    async def _decide(self, key: Key, service: Object, refused_writes: dict[Target, RefusedWrite]) -> Plan:
        observation = observe(
            self._stores,
            key,
            self._evidence.applied_to(key, service),
            self._following.view(key),
            self._settings,
            refused_writes.values(),
        )
        reading = self._decider.read(observation)
        return self._decider.decide(reading, await self._drafts.of(reading), self._now())

    async def _write(
        self, key: Key, service: Object, plan: Plan, refused_writes: dict[Target, RefusedWrite]
    ) -> bool:
        """Do the plan's writes in order. True if one was refused, or is undone each time: decide again."""
        generation = _generation(service)
        for write in plan.writes:
            resource, _, name = target_of(write)
            target = (resource.kind, name)
            if target in refused_writes:
                continue
            lasts = not isinstance(write, DryRun)
            if lasts and self._restraint.wait(key, target, write, self._seconds()) > 0:
                refused_writes[target] = await self._executor.rival(write)
                self._restraint.contested(key, refused_writes[target])
                return True
            obstacle = await self._refusal(key, write, generation)
            if obstacle is not None:
                refused_writes[target] = obstacle
                return True
            undone = (
                self._restraint.written(key, target, write, generation, self._seconds()) if lasts else None
            )
            if undone is not None:
                refused_writes[target] = undone
                return True
        return False

    async def _refusal(self, key: Key, write: Write, generation: int) -> RefusedWrite | None:
        """Do one write. What the API server says where it refuses it, or fails on it again and again."""
        try:
            refused = await self._executor.write(write)
        except Transient as error:
            failure = self._executor.failure(write, error)
            if failure is None or not self._restraint.failed(key, failure, generation, self._seconds()):
                raise
            return failure
        if refused is not None:
            self._restraint.refused(key, refused, generation, self._seconds())
        return refused

    async def _finish(self, key: Key, service: Object, plan: Plan) -> float | None:
        """Write the status and record its Events. Returns the seconds for which both have to wait, if any."""
        status = self._evidence.to_write(key, plan.status)
        if status is not None:
            stored = child(service, "status")
            wait = self._restraint.status_wait(key, stored, status, self._seconds())
            wait = wait or self._evidence.wait(key, stored, status, self._seconds())
            if wait > 0:
                return wait
            answer = await self._executor.write_status(service, status)
            after = child(answer, "status")
            self._restraint.status_written(key, stored, status, after, self._seconds())
            self._evidence.written(key, self._seconds())
        if plan.writes or status is not None:
            _log(service, plan)
        for event in plan.events:
            await self._events.record(service, event.type, event.reason, event.message)
        return None

    def _outcome(
        self,
        key: Key,
        plan: Plan,
        refused_writes: dict[Target, RefusedWrite],
        status_after: float | None,
        wrote: bool,
    ) -> PassOutcome:
        """When to look again: when the plan asks for it, or something that waits may be written."""
        wanted = None if plan.requeue_after is None else max(0.0, plan.requeue_after.total_seconds())
        waits = (wanted, status_after, self._restraint.next(key, refused_writes, self._seconds()))
        after = min((wait for wait in waits if wait is not None), default=None)
        return PassOutcome(requeue_after_seconds=after, obstructed=bool(refused_writes), wrote=wrote)

    def _seconds(self) -> float:
        return self._now().timestamp()


def _generation(service: Object | None) -> int:
    return KubernetesObject(service or {}).generation


def _log(service: Object, plan: Plan) -> None:
    view = KubernetesObject(service)
    _LOG.info(
        "reconciled",
        namespace=view.namespace,
        service=view.name,
        generation=view.generation,
        summary=plan.summary,
        writes=len(plan.writes),
    )
