"""One service from what is known to what is written: observe, render, decide, execute, status, Events."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from tailbound.controller.execute import Executor, target_of
from tailbound.controller.following import Following
from tailbound.controller.observe import observe
from tailbound.controller.stores import Stores
from tailbound.kube.errors import Conflict
from tailbound.kube.objects import Key
from tailbound.kube.protocol import Object
from tailbound.reconcile.model import (
    Create,
    Observation,
    Obstacle,
    Plan,
    Rendering,
    RenderRequest,
    Settings,
)
from tailbound.telemetry.events import EventWriter
from tailbound.telemetry.logs import logger

_LOG = logger(__name__)
# Decisions of one pass: each has met a new conflict or obstacle. After that the backoff takes over.
MOST_DECISIONS = 8


class Decider(Protocol):
    """The pure core."""

    def wanted_rendering(self, observation: Observation) -> RenderRequest | None:
        """What to render before deciding."""
        ...

    def decide(self, observation: Observation, rendering: Rendering, now: datetime) -> Plan:
        """What to do."""
        ...


class Renders(Protocol):
    """Expands templates outside this process."""

    async def render(self, request: RenderRequest) -> Rendering:
        """The outcome; Transient if it could not be had now."""
        ...


@dataclass(frozen=True)
class Outcome:
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
        following: Following,
        renderer: Renders,
        events: EventWriter,
        decider: Decider,
        settings: Settings,
        now: Callable[[], datetime],
    ) -> None:
        self._stores = stores
        self._executor = executor
        self._following = following
        self._renderer = renderer
        self._events = events
        self._decider = decider
        self._settings = settings
        self._now = now

    async def reconcile(self, key: Key) -> Outcome:
        """Bring one service closer to its spec.

        Raises Fenced, Transient, Conflict (having looked again several times), and Terminal (status refused).
        """
        obstacles: dict[tuple[str, str], Obstacle] = {}
        wrote = False
        for decision in range(MOST_DECISIONS):
            service = self._stores.service(key)
            if service is None:
                self._following.release(key)
                return Outcome(gone=True)
            plan = await self._decide(key, service, obstacles)
            try:
                if await self._write(plan, obstacles):
                    wrote = True
                    continue
                if not obstacles and _begins(service, plan):
                    _log(service, plan)
                    return Outcome(requeue_after_seconds=0.0, wrote=True)
                await self._finish(service, plan)
            except Conflict:
                if decision == MOST_DECISIONS - 1:
                    raise
                continue
            self._following.follow(key, plan)
            wrote = wrote or bool(plan.writes) or plan.status is not None
            return _outcome(plan, obstructed=bool(obstacles), wrote=wrote)
        raise Conflict(f"{key[0]}/{key[1]} met {len(obstacles)} refusals in one pass")

    async def _decide(self, key: Key, service: Object, obstacles: dict[tuple[str, str], Obstacle]) -> Plan:
        gateways = self._following.gateways.view()
        observation = observe(
            self._stores,
            key,
            service,
            gateways,
            self._settings,
            obstacles.values(),
            self._following.counters.view(key),
            self._following.autoscaler.view(key),
        )
        request = self._decider.wanted_rendering(observation)
        rendering = None if request is None else await self._renderer.render(request)
        return self._decider.decide(observation, rendering, self._now())

    async def _write(self, plan: Plan, obstacles: dict[tuple[str, str], Obstacle]) -> bool:
        """Do the plan's writes in order. True if one was refused: there is something new to decide on."""
        for write in plan.writes:
            resource, _, name = target_of(write)
            if (resource.kind, name) in obstacles:
                continue
            obstacle = await self._executor.write(write)
            if obstacle is not None:
                obstacles[resource.kind, name] = obstacle
                return True
        return False

    async def _finish(self, service: Object, plan: Plan) -> None:
        if plan.status is not None:
            await self._executor.write_status(service, plan.status)
        if plan.writes or plan.status is not None:
            _log(service, plan)
        for event in plan.events:
            await self._events.record(service, event.type, event.reason, event.message)


def _begins(service: Object, plan: Plan) -> bool:
    """A new service gets its pods under way first, and its status when other new ones have theirs."""
    first = not service.get("status") and bool(plan.writes)
    return first and all(isinstance(write, Create) for write in plan.writes)


def _log(service: Object, plan: Plan) -> None:
    meta = service["metadata"]
    _LOG.info(
        "reconciled",
        namespace=meta["namespace"],
        service=meta["name"],
        generation=meta.get("generation"),
        summary=plan.summary,
        writes=len(plan.writes),
    )


def _outcome(plan: Plan, *, obstructed: bool, wrote: bool) -> Outcome:
    after = None if plan.requeue_after is None else max(0.0, plan.requeue_after.total_seconds())
    return Outcome(requeue_after_seconds=after, obstructed=obstructed, wrote=wrote)
