"""The reconciler over the simulated cluster, in virtual time, with others who write beside it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, cast

from tailbound.controller.execute import Executor
from tailbound.controller.reconciler import PassOutcome, Reconciler
from tailbound.controller.stores import Stores
from tailbound.controller.subscriptions import Followed, Subscriptions
from tailbound.kube.errors import KubeError, Transient
from tailbound.kube.objects import Key
from tailbound.kube.protocol import KubeClient
from tailbound.kube.resources import INFERENCE_SERVICES, Resource
from tailbound.objects.fields import Object
from tailbound.reconcile.desired import Draft
from tailbound.reconcile.model import (
    Apply,
    Create,
    Delete,
    DryRun,
    Observation,
    Plan,
    Write,
)
from tailbound.reconcile.snapshot import BeingDeleted, Reading
from tailbound.telemetry.events import EventWriter
from tailbound.telemetry.metrics import Metrics

from tests.support.copies import copied
from tests.support.simulated.objects import NAME, NAMESPACE
from tests.support.simulated.simulator import SETTINGS, Simulator

KEY = (NAMESPACE, NAME)
EVENT = timedelta(milliseconds=100)
"""From a write to the watch event of it."""


@dataclass
class Api:
    """The API server of a simulated cluster, as far as a reconciler asks it."""

    simulator: Simulator
    refuses: Callable[[str, str], KubeError | None] = lambda kind, name: None
    """By kind and name of a child that is to be written."""
    after: Callable[[str, str], None] = lambda kind, name: None
    """What others do after a write of that kind and name."""
    prunes: str = ""
    """Field of the status that it does not know."""
    managers: Mapping[str, Any] = field(default_factory=dict)
    """By kind, the newest foreign entry of managedFields."""
    writes: list[tuple[datetime, str, str]] = field(default_factory=list)
    """Attempts: when, kind, name."""
    events: list[tuple[str, str]] = field(default_factory=list)
    """Reason and message."""

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object | None:
        found = self.simulator.objects.get((resource.kind, name))
        if found is None:
            return None
        entries = [self.managers[resource.kind]] if resource.kind in self.managers else []
        return {**found, "metadata": {**found["metadata"], "managedFields": entries}}

    async def create(self, resource: Resource, body: Object) -> Object:
        return self._write(resource, body["metadata"]["name"], Create(body))

    async def apply(self, resource: Resource, body: Object, *, dry_run: bool = False) -> Object:
        return self._write(resource, body["metadata"]["name"], DryRun(body) if dry_run else Apply(body))

    async def delete(
        self, resource: Resource, namespace: str | None, name: str, uid: str, version: str, propagation: str
    ) -> Object | None:
        write = Delete(resource.api_version, resource.kind, str(namespace), name, uid, version)
        self._write(resource, name, write)
        return self.simulator.objects.get((resource.kind, name))

    async def replace_status(self, resource: Resource, body: Object) -> Object:
        simulator = self.simulator
        assert body["metadata"]["resourceVersion"] == simulator.service["metadata"]["resourceVersion"]
        self.writes.append((simulator.now, resource.kind, "status"))
        simulator.seen_ready = simulator.ready_revisions()
        simulator.check_weight(body["status"])
        simulator.service["status"] = copied(dict(body["status"]))
        simulator.service["status"].pop(self.prunes, None)
        simulator.touch(simulator.service)
        answer = copied(simulator.service)
        self.after(resource.kind, "status")
        return answer

    async def create_event(self, body: Object) -> None:
        self.events.append((body["reason"], body["message"]))

    def _write(self, resource: Resource, name: str, write: Write) -> Object:
        self.writes.append((self.simulator.now, resource.kind, name))
        refused = self.refuses(resource.kind, name)
        if refused is not None:
            raise refused
        self.simulator.write(write)
        answer = copied(self.simulator.objects.get((resource.kind, name), {}))
        self.after(resource.kind, name)
        return answer


@dataclass
class Decider:
    """Decides on the simulated cluster, with the refused writes that the reconciler has met."""

    simulator: Simulator
    service: Object = field(default_factory=dict)
    """The service as the reconciler sees it: with evidence that is not written yet."""

    def read(self, observation: Observation) -> Reading:
        self.simulator.refused_writes = observation.refused_writes
        self.service = observation.service
        return BeingDeleted()

    def decide(self, _reading: Reading, _drafted: Draft, _now: datetime) -> Plan:
        self.simulator.seen_ready = self.simulator.ready_revisions()
        observation = replace(self.simulator.observation(), service=self.service)
        plan = self.simulator.decided(observation)
        self.simulator.polls, self.simulator.queries = plan.poll_counters, plan.queries
        return plan


class Operator:
    """One service and its reconciler."""

    def __init__(self, simulator: Simulator, **api: Any) -> None:
        self.simulator, self.api = simulator, Api(simulator, **api)
        self._stores = Stores(lambda _: None)
        cluster, metrics = cast(KubeClient, self.api), Metrics()
        self._reconciler = Reconciler(
            self._stores,
            Executor(cluster, self._stores, metrics, lambda: True),
            cast(Subscriptions, _Nobody()),
            cast(Any, None),
            EventWriter(cluster, "operator-0", lambda: simulator.now, lambda: "x"),
            Decider(simulator),
            SETTINGS,
            lambda: simulator.now,
        )

    async def passes(self) -> PassOutcome:
        """One pass over what is there now."""
        self._stores.of[INFERENCE_SERVICES].upsert(copied(self.simulator.service))
        return await self._reconciler.reconcile(KEY)

    async def works(self, seconds: float) -> None:
        """Reconcile in a cluster where everything works: after every change, and when one asks for it."""
        simulator = self.simulator
        end = simulator.now + timedelta(seconds=seconds)
        while simulator.now < end:
            simulator.work()
            simulator.traffic(100)
            before = simulator.versions
            try:
                outcome = await self.passes()
            except Transient:
                outcome = PassOutcome(requeue_after_seconds=1.0)  # as of a worker's first failures
            if simulator.versions != before:
                simulator.now += EVENT
            elif simulator.polls:
                simulator.now += timedelta(seconds=2)
            else:
                asked = outcome.requeue_after_seconds
                pause = timedelta(seconds=seconds if asked is None else asked)
                simulator.now = min(end, simulator.now + pause + EVENT)

    def written(self, kind: str, seconds: float) -> int:
        """How often something of this kind was written, or tried, within so many seconds from now back."""
        since = self.simulator.now - timedelta(seconds=seconds)
        return sum(at >= since and written == kind for at, written, _ in self.api.writes)


@dataclass
class _Nobody:
    """Follows nothing: the simulator tells what gateways report."""

    def view(self, _: Key) -> Followed:
        return Followed(gateways={}, readings=None, signatures={}, sizes=None)

    def __getattr__(self, _: str) -> Any:
        return self

    def __call__(self, *_: Any) -> None:
        return None
