"""One decision about a service whose spec is valid: what is, what shall be, and the status that tells it."""

from datetime import datetime, timedelta
from typing import Any, Final

from tailbound.api.conditions import ConditionStatus, ConditionType, Reason
from tailbound.api.inferenceservice import InferenceServiceStatus
from tailbound.api.meta import Condition
from tailbound.api.traffic import TrafficStatus
from tailbound.reconcile import children, conditions, status
from tailbound.reconcile.conditions import Facts
from tailbound.reconcile.desired import Desired, Intent
from tailbound.reconcile.events import transitions
from tailbound.reconcile.gateways import Applied, Wanted, applied
from tailbound.reconcile.model import Object, Plan
from tailbound.reconcile.pods import report
from tailbound.reconcile.rollover import RevisionState, Situation, roll
from tailbound.reconcile.world import World, owner_reference, revision_of
from tailbound.reconcile.writes import Writer
from tailbound.revisions.history import to_prune
from tailbound.revisions.record import (
    CorruptRevisionError,
    Marks,
    Revision,
    from_object,
    to_object,
)

RETRY_REFUSED: Final = timedelta(seconds=30)
AWAIT_RENDERING: Final = timedelta(seconds=1)


class Decision:
    """The steps share what is known; each adds its writes in the order in which they must happen."""

    def __init__(self, world: World, intent: Intent, desired: Desired, now: datetime) -> None:
        self._world, self._intent, self._desired, self._now = world, intent, desired, now
        self._service = world.service
        self._name = desired.revision.name if desired.revision is not None else None
        self._writer = Writer(world)
        self._probe()
        self._applied = self._look_at_gateways(world.traffic)
        self._rollover = roll(self._situation())

    def plan(self) -> Plan:
        """Writes, then the status, and when to look again."""
        self._retire_marks()
        self._keep_serving_revisions()
        self._bring_up_desired_revision()
        self._shrink()
        self._prune()
        facts = self._facts()
        verdicts = conditions.verdicts(facts)
        stored = self._service.status
        merged = conditions.merge(stored.conditions, verdicts, self._service.metadata.generation, self._now)
        document = status.to_write(stored, self._status(merged))
        ready = verdicts[ConditionType.READY]
        changes = self._writer.writes or document is not None
        return Plan(
            writes=tuple(self._writer.writes),
            status=document,
            events=transitions(stored.conditions, merged),
            requeue_after=self._requeue_after(),
            summary=f"{self._intent.name}: Ready={ready.status}/{ready.reason}" if changes else "",
            watch_gateways=facts.applied is not None and facts.applied.reason is not Reason.ACKNOWLEDGED,
        )

    # What is.

    def _probe(self) -> None:
        """Find out what is in the way before anything is decided about traffic."""
        self._writer.probe("Service", self._service.metadata.name)
        revision = self._desired.revision
        if revision is None:
            return
        for kind in ("ControllerRevision", "Service", "Deployment"):
            self._writer.probe(kind, revision.name)

    def _look_at_gateways(self, traffic: TrafficStatus | None) -> Applied | None:
        """What the gateways do with this traffic; None while there is none.

        Once every gateway has acknowledged it the fact is kept in the status: later gateways become Ready
        only with the newest routes, and an idle service must not write because one is replaced.
        """
        if traffic is None:
            return None
        metadata, gateways = self._service.metadata, self._world.observation.gateways
        known = self._service.status.condition(ConditionType.TRAFFIC_APPLIED)
        if (
            gateways
            and traffic == self._world.traffic
            and known is not None
            and known.status is ConditionStatus.TRUE
            and known.observed_generation == metadata.generation
        ):
            return Applied(Reason.ACKNOWLEDGED, known.message, acknowledged=True)
        wanted = Wanted(f"{metadata.namespace}/{metadata.name}", metadata.generation, traffic.generation)
        return applied(gateways, wanted)

    def _situation(self) -> Situation:
        world = self._world
        names = {*world.deployments, *world.stored_revisions, *world.ready_endpoints}
        return Situation(
            desired=self._reachable(),
            replicas=self._service.spec.scaling.min,
            stopped=self._service.spec.stopped,
            traffic=world.traffic,
            acknowledged=self._applied is not None and self._applied.acknowledged,
            revisions={
                name: RevisionState(
                    number=world.numbers.get(name, 0),
                    deployed=name in world.deployments,
                    ready=world.ready_endpoints.get(name, 0),
                    stable=name == world.stable,
                )
                for name in sorted(names)
            },
            first_generation=self._first_generation(),
        )

    def _reachable(self) -> str | None:
        """The desired revision, unless what is in the way keeps it from ever having a pod."""
        never = self._writer.blocked and self._name not in self._world.deployments
        return None if never else self._name

    def _first_generation(self) -> int:
        """1, unless a status was lost: gateways may know any count, but none as high as the time."""
        return int(self._now.timestamp()) if self._world.deployments else 1

    # What shall be.

    def _retire_marks(self) -> None:
        """The stable mark leaves the other revisions before the promoted one gets it."""
        if not self._rollover.promoted:
            return
        for name, marks in self._world.marks.items():
            if marks.stable and name != self._name:
                revision = self._stored(name)
                if revision is not None:
                    self._writer.apply(
                        self._record(revision, marks.retired()), self._world.stored_revisions[name]
                    )

    def _keep_serving_revisions(self) -> None:
        """What serves beside the desired revision is kept whole; and if the service is stopped, it stops."""
        target, stopped = self._rollover.target, self._service.spec.stopped
        names = sorted(self._world.deployments) if stopped and self._rollover.settled else [target]
        for name in names:
            revision = self._stored(name) if name != self._name else None
            if revision is not None and not (stopped and self._rollover.shrink):
                replicas = 0 if stopped else self._service.spec.scaling.min
                self._ensure_children(revision, replicas, come_what_may=True)

    def _bring_up_desired_revision(self) -> None:
        revision = self._desired.revision
        if revision is None:
            return
        self._writer.ensure(children.front_service(self._service, self._world.observation.settings))
        marks = self._world.marks.get(revision.name, Marks())
        promoted = self._rollover.promoted
        self._writer.ensure(self._record(revision, marks.promoted(self._now) if promoted else marks))
        self._ensure_children(revision, self._replicas(revision))

    def _replicas(self, revision: Revision) -> int:
        """Stopping: weight off first, observed, then no pods."""
        if not self._service.spec.stopped:
            return self._service.spec.scaling.min
        live = self._world.deployments.get(revision.name)
        if live is None or self._rollover.settled:
            return 0
        return int(live["spec"].get("replicas", 0))

    def _ensure_children(self, revision: Revision, replicas: int, *, come_what_may: bool = False) -> None:
        service, template = self._service, revision.template
        bodies = [
            children.revision_service(service, revision, template),
            children.deployment(service, revision, template, replicas),
        ]
        if replicas > 1:
            bodies.append(children.disruption_budget(service, revision))
        for body in bodies:
            self._writer.ensure(body, come_what_may=come_what_may)

    def _shrink(self) -> None:
        """Take away the children of revisions that nothing needs, and budgets of what is no fleet."""
        seen = self._world.observation
        gone = self._unneeded if self._rollover.shrink else _nothing
        self._writer.delete(filter(gone, self._world.ours(seen.deployments)), "apps/v1", "Deployment")
        self._writer.delete(filter(gone, self._world.ours(seen.services)), "v1", "Service")
        budgets = (
            budget
            for budget in self._world.ours(seen.disruption_budgets)
            if gone(budget) or (revision_of(budget) == self._name and not self._is_fleet())
        )
        self._writer.delete(budgets, "policy/v1", "PodDisruptionBudget")

    def _unneeded(self, child: Object) -> bool:
        return revision_of(child) not in (None, self._name, self._rollover.target)

    def _is_fleet(self) -> bool:
        return self._desired.revision is not None and self._replicas(self._desired.revision) > 1

    def _prune(self) -> None:
        """Old history goes; what runs, serves or is marked stays."""
        world = self._world
        numbers = world.numbers | {self._intent.name: self._intent.number}
        marked = {name for name, marks in world.marks.items() if marks.stable}
        in_use = {*world.deployments, *marked, self._intent.name, self._rollover.target}
        doomed = [world.stored_revisions[name] for name in to_prune(numbers, in_use)]
        self._writer.delete(doomed, "apps/v1", "ControllerRevision")

    def _stored(self, name: str | None) -> Revision | None:
        """A stored revision; None if it is gone or cannot be read: then it is left alone."""
        stored = self._world.stored_revisions.get(name) if name is not None else None
        try:
            return from_object(stored) if stored is not None else None
        except CorruptRevisionError:
            return None

    def _record(self, revision: Revision, marks: Marks) -> dict[str, Any]:
        metadata = self._service.metadata
        return to_object(
            revision,
            marks,
            service=metadata.name,
            namespace=metadata.namespace,
            owner=owner_reference(self._service),
        )

    # What is told.

    def _facts(self) -> Facts:
        world, target = self._world, self._rollover.target
        serves = target is not None and world.ready_endpoints.get(target, 0) > 0
        name = self._name or ""
        return Facts(
            stopped=self._service.spec.stopped,
            problem=self._writer.problem or self._desired.problem,
            waiting=self._writer.waiting,
            desired=self._desired,
            rollover=self._rollover,
            applied=self._look_at_gateways(self._rollover.traffic),
            replicas=self._service.spec.scaling.min,
            ready=world.ready_endpoints.get(name, 0),
            was_stable=name == world.stable,
            serving=target if serves else None,
            pods=report(world.live_pods.get(name, ()), world.deployments.get(name)),
            pods_left=bool(world.observation.pods),
        )

    def _status(self, merged: tuple[Condition, ...]) -> InferenceServiceStatus:
        world = self._world
        stable, following = status.stable_and_next(world.stable, self._reachable(), self._rollover)
        return InferenceServiceStatus(
            observed_generation=self._service.metadata.generation,
            url=status.url(world),
            traffic=self._rollover.traffic,
            stable=status.revision_status(world, stable),
            next=status.revision_status(world, following),
            replicas=status.total_replicas(world.deployments.values()),
            selector=status.selector(world),
            conditions=merged,
        )

    def _requeue_after(self) -> timedelta | None:
        if self._world.observation.obstacles:
            return RETRY_REFUSED
        awaited = self._desired.revision is None and self._desired.problem is None
        return AWAIT_RENDERING if awaited else None


def _nothing(child: Object) -> bool:
    return False
