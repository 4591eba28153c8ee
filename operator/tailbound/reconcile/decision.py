"""One decision about a service whose spec is valid: what is, what shall be, and the status that tells it."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from tailbound.api.conditions import ConditionStatus, ConditionType, Reason
from tailbound.api.inferenceservice import InferenceService, InferenceServiceStatus
from tailbound.api.meta import Condition
from tailbound.api.names import HANDLED_ANNOTATIONS, RETRY_ANNOTATION, preview_name
from tailbound.api.rollout import Strategy, previews
from tailbound.api.traffic import TrafficStatus, utc_seconds
from tailbound.reconcile import children, conditions, ending, scaling, status
from tailbound.reconcile.desired import Desired, Intended
from tailbound.reconcile.events import given_up, rollout_transition, transitions
from tailbound.reconcile.facts import Facts
from tailbound.reconcile.gateways import Applied, Wanted, applied, latest, routing
from tailbound.reconcile.model import Event, Object, Plan
from tailbound.reconcile.owned_state import OwnedState, controller_of, owner_reference, revision_of
from tailbound.reconcile.pods import PodsReport, report
from tailbound.reconcile.rollouts import TrafficFacts, roll
from tailbound.reconcile.writes import Writer
from tailbound.revisions.history import to_prune
from tailbound.revisions.identity import NAME_LIMIT
from tailbound.revisions.record import (
    CorruptRevisionError,
    Marks,
    Rejected,
    Revision,
    Superseded,
    from_object,
    to_object,
)
from tailbound.rollout.actions import named
from tailbound.rollout.model import PodProblem

RETRY_REFUSED: Final = timedelta(seconds=30)
AWAIT_RENDERING: Final = timedelta(seconds=1)


class Decision:
    """The steps share what is known; each adds its writes in the order in which they must happen."""

    def __init__(self, world: OwnedState, intent: Intended, desired: Desired, now: datetime) -> None:
        self._world, self._intent, self._desired, self._now = world, intent, desired, now
        self._service = world.service
        self._name = desired.revision.name if desired.revision is not None else None
        self._preview = _preview(world.service)
        self._key = f"{world.service.metadata.namespace}/{world.service.metadata.name}"
        self._routing = routing(world.service)
        self._writer = Writer(world, now)
        self._probe()
        self._applied = self._look_at_gateways(world.traffic)
        acknowledged = self._applied is not None and self._applied.acknowledged
        followed = self._applied is not None and self._applied.reason is Reason.ACKNOWLEDGED
        reported = latest(world.observation.gateways, self._key)
        known = TrafficFacts(*self._reachable(), acknowledged, followed, reported)
        self._step = roll(world, known, now)

    def plan(self) -> Plan:
        """Writes, then the status, and when to look again."""
        self._take_marks()
        self._try_what_weights_are_moved_for()
        self._keep_serving_revisions()
        self._give_stable_mark()
        self._bring_up_desired_revision()
        self._name_preview()
        self._shrink()
        self._prune()
        facts = self._facts()
        verdicts = conditions.verdicts(facts) | scaling.verdicts(self._world)
        stored = self._service.status
        merged = conditions.merge(
            scaling.still_true(self._service),
            verdicts,
            self._service.metadata.generation,
            self._now,
        )
        document = status.to_write(stored, self._status(merged))
        ready = verdicts[ConditionType.READY]
        changes = self._writer.writes or document is not None
        return Plan(
            writes=tuple(self._writer.writes),
            status=document,
            events=self._events(merged),
            requeue_after=self._requeue_after(),
            summary=f"{self._intent.name}: Ready={ready.status}/{ready.reason}" if changes else "",
            watch_gateways=facts.applied is not None and facts.applied.reason is not Reason.ACKNOWLEDGED,
            poll_counters=self._step.poll,
            queries=self._step.queries,
            scalable=scaling.scalable(self._world, self._step),
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

        That all acknowledged it is kept in the status. Of a service with one revision it speaks for those
        that are silent: later ones get Ready only with the newest routes, and an idle service must not write
        because one is replaced. What a gateway says itself goes before: the status may be a backup's.
        """
        if traffic is None:
            return None
        world = self._world
        wanted = Wanted(self._key, self._routing.generation, traffic.generation)
        known = self._service.status.condition(ConditionType.TRAFFIC_APPLIED)
        kept = (
            len(world.deployments) < 2
            and traffic == world.traffic
            and known is not None
            and known.status is ConditionStatus.TRUE
            and known.observed_generation >= self._routing.generation
        )
        return applied(world.observation.gateways, wanted, kept=kept)

    def _reachable(self) -> tuple[str | None, PodProblem | None]:
        """The desired revision, and what keeps it from having a pod.

        It is none as long as it cannot be rejected: there is nothing to return to.
        """
        name, world, problem = self._name, self._world, self._writer.problem
        deployed = name is not None and name in world.deployments
        missing = deployed and problem is not None and world.find("Service", str(name)) is None
        if not self._writer.blocked or (deployed and not missing):
            return name, None
        if name is None or problem is None or world.stable in (None, name):
            return None, None
        return name, PodProblem(problem.reason, problem.message)

    # What shall be.

    def _take_marks(self) -> None:
        """Marks leave the other revisions before one becomes the stable one, the rejected one first.

        Between two of these writes the operator may die: whatever is marked then leads to the same end.
        """
        marking = self._step.marking
        rejected = marking.rejection.revision if marking.rejection is not None else None
        others = [name for name in self._world.marks if name != marking.stable]
        for name in sorted(others, key=lambda name: name != rejected):
            marks = self._world.marks[name]
            changed = self._judged(name, marks)
            self._mark(name, marks, changed.retired() if marking.stable is not None else changed)

    def _judged(self, name: str, marks: Marks) -> Marks:
        """With what was learned of a revision and is decided on it, and with the hands that are done with."""
        marking, sizes = self._step.marking, self._world.observation.sizes
        sized = sizes.revisions.get(name) if sizes is not None else None
        if sized is not None and sized.capacity is not None:
            marks = replace(marks, capacity=sized.capacity)
        annotations = self._service.metadata.annotations
        hands = {
            hand: value
            for hand in (*marking.handled, *marking.under_way)
            if named(value := annotations.get(hand, marks.under_way.get(hand, ""))) == name
        }
        done = {hand: value for hand, value in hands.items() if hand in marking.handled}
        # For as long as the annotation is there: who removes it and sets it again asks again.
        known = {
            hand: value for hand, value in {**marks.handled, **done}.items() if annotations.get(hand) == value
        }
        under_way = {hand: value for hand, value in hands.items() if hand in marking.under_way}
        if (known, under_way) != (marks.handled, marks.under_way):
            marks = marks.remembering(known, under_way)
        if RETRY_ANNOTATION in done or name == marking.forgiven:
            marks = marks.forgiven()
        superseded, rejection, at = marking.superseded, marking.rejection, utc_seconds(self._now)
        if (vain := marking.not_returned) is not None and vain.revision == name:
            marks = replace(marks, not_returned=Rejected(at, vain.reason, vain.message, vain.by))
        known_by = marks.superseded.by if marks.superseded is not None else None
        if superseded is not None and superseded.revision == name and superseded.by != known_by:
            marks = marks.given_up(Superseded(at, superseded.by))
        if rejection is None or rejection.revision != name:
            return marks
        return marks.condemned(Rejected(at, rejection.reason, rejection.message, rejection.by))

    def _mark(self, name: str, marks: Marks, changed: Marks) -> None:
        # The record of the desired revision is made whole with its children.
        adopted = name != self._name and controller_of(self._world.stored_revisions[name]) is None
        revision = self._stored(name) if changed != marks or adopted else None
        if revision is not None:
            self._writer.apply(self._record(revision, changed), self._world.stored_revisions[name])

    def _give_stable_mark(self) -> None:
        """To an older revision; the desired one gets its marks with its record."""
        name, marks = self._step.marking.stable, self._world.marks
        if name is not None and name != self._name and name in marks:
            changed = self._judged(name, marks[name])
            self._mark(name, marks[name], changed.promoted(self._now, self._step.marking.promoted_by))

    def _keep_serving_revisions(self) -> None:
        """What serves beside the desired revision is kept whole; and if the service is stopped, it stops."""
        for name, replicas in self._step.fleet.items():
            revision = self._stored(name) if name != self._name else None
            if revision is not None:
                self._ensure_children(revision, replicas, come_what_may=True)

    def _try_what_weights_are_moved_for(self) -> None:
        """What may be refused comes before what is given up for it."""
        for name, replicas in self._step.tries.items():
            revision = self._desired.revision if name == self._name else self._stored(name)
            if revision is not None:
                self._writer.dry_run(
                    children.deployment(self._service, revision, revision.template, replicas)
                )

    def _bring_up_desired_revision(self) -> None:
        revision = self._desired.revision
        if revision is None:
            return
        self._writer.ensure(self._front_service(self._service.metadata.name))
        self._record_desired_revision(revision)
        replicas = self._step.fleet.get(revision.name)
        if replicas is not None:
            self._ensure_children(revision, replicas)

    def _front_service(self, name: str) -> dict[str, Any]:
        return children.front_service(self._service, self._world.observation.settings, name)

    def _name_preview(self) -> None:
        """The name of the preview comes last: a conflict about it keeps nothing else from being done."""
        if self._preview is not None and self._desired.revision is not None:
            self._writer.ensure(self._front_service(self._preview))

    def _record_desired_revision(self, revision: Revision) -> None:
        marking, stored = self._step.marking, self._world.marks.get(revision.name)
        marks = stored or Marks()
        changed = self._judged(revision.name, marks)
        if marking.stable == revision.name:
            changed = changed.promoted(self._now, marking.promoted_by)
        elif marking.stable is not None:
            changed = changed.retired()
        if stored is None or changed == marks:
            self._writer.ensure(self._record(revision, changed))
        elif marking.stable == revision.name:
            self._mark(revision.name, marks, changed)

    def _ensure_children(self, revision: Revision, replicas: int, *, come_what_may: bool = False) -> None:
        service, template = self._service, revision.template
        bodies = (
            children.revision_service(service, revision, template),
            children.deployment(service, revision, template, replicas),
        )
        for body in bodies:
            self._writer.ensure(body, come_what_may=come_what_may, vital=not come_what_may)
        if replicas > 1:
            budget = children.disruption_budget(service, revision)
            self._writer.ensure(budget, come_what_may=come_what_may, vital=False)

    def _shrink(self) -> None:
        """Take away the children of revisions that nothing needs, and budgets of what is no fleet."""
        seen = self._world.observation
        gone = self._unneeded if self._step.shrink else _nothing
        self._writer.delete(filter(gone, self._world.ours(seen.deployments)), "apps/v1", "Deployment")
        self._writer.delete(filter(gone, self._world.ours(seen.services)), "v1", "Service")
        budgets = (
            budget
            for budget in self._world.ours(seen.disruption_budgets)
            if gone(budget) or self._step.fleet.get(revision_of(budget) or "", 2) < 2
        )
        self._writer.delete(budgets, "policy/v1", "PodDisruptionBudget")
        if self._preview is None:
            name = preview_name(self._service.metadata.name)
            former = self._world.find("Service", name)
            own = self._world.ours([former] if former is not None else [])
            self._writer.delete((each for each in own if revision_of(each) is None), "v1", "Service")

    def _unneeded(self, child: Object) -> bool:
        """Nothing needs it, and the next decision will not return to it."""
        name = revision_of(child)
        return name is not None and name not in self._step.fleet and name != self._still_stable()

    def _still_stable(self) -> str | None:
        """The revision that keeps the mark of the stable one, also where the move of that mark is refused."""
        stable, following = self._world.stable, self._step.marking.stable
        if self._service.spec.stopped or stable is None:
            return None
        moves = following not in (None, stable)
        refused = any(
            self._writer.refuses("ControllerRevision", name)
            for name in (stable, following)
            if name is not None
        )
        return None if moves and not refused else stable

    def _prune(self) -> None:
        """Old history goes; what runs, serves or is marked stays."""
        world = self._world
        numbers = world.numbers | {self._intent.name: self._intent.number}
        marked = {name for name, marks in world.marks.items() if marks.stable}
        step, rollout = self._step, self._step.rollout
        in_use = {*world.deployments, *marked, *step.fleet, self._intent.name, step.stable, step.candidate}
        in_use |= {rollout.from_revision} if rollout is not None else set()
        annotations = self._service.metadata.annotations
        in_use |= {named(annotations[hand]) for hand in HANDLED_ANNOTATIONS if hand in annotations}
        limit = self._service.spec.rollout.history_limit
        doomed = [world.stored_revisions[name] for name in to_prune(numbers, in_use, limit)]
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
        world, target = self._world, self._step.flow.target
        serves = target is not None and world.ready_endpoints.get(target, 0) > 0
        name = self._name or ""
        return Facts(
            stopped=self._service.spec.stopped,
            problem=self._writer.problem or self._desired.problem,
            conflict=self._writer.conflict,
            waiting=self._writer.waiting,
            desired=self._desired,
            step=self._step,
            applied=self._look_at_gateways(self._step.flow.traffic),
            replicas=self._step.fleet.get(name, 0),
            ready=world.ready_endpoints.get(name, 0),
            was_stable=name == world.stable,
            serving=target if serves else None,
            recreates=self._service.spec.rollout.strategy is Strategy.RECREATE,
            pods=self._pods(name),
            target_pods=self._pods(target or ""),
            pods_left=bool(world.observation.pods),
            late=ending.told(world.observation.pods, self._now),
        )

    def _pods(self, name: str) -> PodsReport:
        return report(self._world.live_pods.get(name, ()), self._world.deployments.get(name))

    def _status(self, merged: tuple[Condition, ...]) -> InferenceServiceStatus:
        world, step = self._world, self._step
        return InferenceServiceStatus(
            observed_generation=self._service.metadata.generation,
            url=status.url(world),
            traffic=step.flow.traffic,
            routing=self._routing,
            stable=status.revision_status(world, step, step.stable),
            canary=status.revision_status(world, step, step.candidate),
            rollout=step.rollout,
            scaling=scaling.status(world, step),
            serving_pods=status.serving_pods(world, step),
            replicas=status.total_replicas(world.deployments.values()),
            selector=status.selector(world),
            conditions=merged,
        )

    def _events(self, merged: tuple[Condition, ...]) -> tuple[Event, ...]:
        stored = self._service.status
        told = transitions(stored.conditions, merged, stored.rollout)
        return (
            *told,
            *rollout_transition(stored.rollout, self._step.rollout, told),
            *given_up(self._step.marking.superseded),
        )

    def _requeue_after(self) -> timedelta | None:
        awaited = self._desired.revision is None and self._desired.problem is None
        late = ending.next_overdue(self._world.observation.pods, self._now)
        wakes = (
            late - self._now if late is not None else None,
            RETRY_REFUSED if self._world.observation.obstacles else None,
            AWAIT_RENDERING if awaited else self._step.wake,
        )
        return min((wake for wake in wakes if wake is not None), default=None)


def _preview(service: InferenceService) -> str | None:
    """The name of the Service of its previews; None if it has none, or if no Service can be called so."""
    name, rollout = preview_name(service.metadata.name), service.spec.rollout
    return name if previews(rollout.strategy, rollout.promotion) and len(name) <= NAME_LIMIT else None


def _nothing(child: Object) -> bool:
    return False
