"""The decision on one service. The controller calls `read`, `draft` and `decide`, in this order.

Where the spec is valid, the decision is a list of passes, each a pure function of earlier results:

| pass | reads | result |
|---|---|---|
| `snapshot.read` | the observation | `Snapshot`: what exists, and the revision that the spec asks for |
| `desired.find_or_make` | snapshot, draft | `Desired`: that revision, or what is in the way of it |
| `writes.resolve` of `_probes` | snapshot, desired | `Resolved`: what is in the way of its children |
| `_traffic_facts` | all of these | `TrafficFacts`: what gateways do, and what can get requests |
| `rollouts.roll` | snapshot, facts | `RolloutStep`: weights, replicas of every revision, marks |
| `writes.resolve` of `WRITES` | `Decided` | `Resolved`: the writes in their order |
| `facts.facts_of` | `Decided`, resolved | `Facts`: what the rules of the conditions read |
| `conditions.verdicts` | facts | the conditions |
| `status.document` | `Decided`, conditions | the status |
| `_plan` | all of these | `Plan`: writes, status, events, and when to look again |

Deciding again on what came of a plan ends at a fixed point, where a plan holds neither writes nor a status. A
write that the caller reports as a `RefusedWrite` is withheld; deciding without it is the next attempt.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import chain
from typing import Final

from tailbound.api.conditions import ConditionType, Reason
from tailbound.api.inferenceservice import InferenceServiceStatus
from tailbound.api.parsing import InvalidObject, parse
from tailbound.objects.fields import child
from tailbound.objects.metadata import KubernetesObject
from tailbound.reconcile import (
    child_writes,
    class_returns,
    conditions,
    dead_pods,
    downloads,
    ending,
    marks,
    placements,
    scaling,
    signatures,
    status,
)
from tailbound.reconcile.decided import Decided
from tailbound.reconcile.desired import Desired, Draft, DraftVersion, draft_of, find_or_make
from tailbound.reconcile.events import given_up, rollout_transition, transitions
from tailbound.reconcile.facts import Facts, facts_of
from tailbound.reconcile.gateways import acknowledgement, latest
from tailbound.reconcile.model import DownloadRequest, Event, Plan
from tailbound.reconcile.owned_state import OwnedState
from tailbound.reconcile.rollouts import TrafficFacts, roll
from tailbound.reconcile.snapshot import BeingDeleted, InvalidService, Reading, Snapshot, read
from tailbound.reconcile.writes import ObstacleProbe, Resolved, WriteRequest, resolve
from tailbound.revisions.rendering import Rendering, RenderRequest
from tailbound.rollout.problem import Problem

__all__ = ["decide", "draft", "draft_version", "read", "wanted_rendering"]
"""The functions that the controller calls, `read` among them."""


def draft_version(reading: Reading) -> DraftVersion | None:
    """The versions of what `draft` is made from; None if nothing can be rendered."""
    return reading.intended.version(reading.owned) if isinstance(reading, Snapshot) else None


def wanted_rendering(reading: Reading) -> RenderRequest | None:
    """The rendering that `draft` needs; None if nothing can be: an invalid spec, no runtime, no class."""
    return reading.intended.request(reading.owned) if isinstance(reading, Snapshot) else None


def draft(reading: Reading, rendering: Rendering) -> Draft:
    """The revision that the spec would be made into with this rendering."""
    return draft_of(reading.owned, reading.intended, rendering) if isinstance(reading, Snapshot) else None


def decide(reading: Reading, drafted: Draft, now: datetime) -> Plan:
    """What to do now. Never raises for what people wrote: it becomes a condition."""
    match reading:
        case BeingDeleted():
            return Plan(summary="being deleted")
        case InvalidService():
            return _refuse(reading, now)
        case Snapshot():
            return decide_on(reading, drafted, now)


def _refuse(invalid: InvalidService, now: datetime) -> Plan:
    """A stored object that does not validate: children are untouched, the status says what to correct."""
    stored = parse(InferenceServiceStatus, child(invalid.service, "status"))
    if isinstance(stored, InvalidObject):
        stored = InferenceServiceStatus()
    generation = KubernetesObject(invalid.service).generation
    merged = conditions.merge(stored.conditions, conditions.invalid(invalid.message), generation, now)
    wanted = stored.model_copy(update={"observed_generation": generation, "conditions": merged})
    document = status.to_write(stored, wanted)
    return Plan(
        status=document,
        events=transitions(stored.conditions, merged),
        summary="invalid" if document is not None else "",
    )


RETRY_REFUSED: Final = timedelta(seconds=30)
AWAIT_RENDERING: Final = timedelta(seconds=1)

WRITES: Final[tuple[Callable[[Decided], Iterator[WriteRequest]], ...]] = (
    marks.marks_of_others,
    child_writes.trials,
    child_writes.serving_revisions,
    marks.mark_of_older_stable,
    child_writes.desired_revision,
    child_writes.resolution,
    child_writes.preview_service,
    child_writes.unneeded_children,
    child_writes.dead_pods_left_behind,
    child_writes.old_history,
)
"""The passes of the writes, in the order in which the writes must happen: the operator may die after any."""


def decide_on(snapshot: Snapshot, draft: Draft, now: datetime) -> Plan:
    """Run the passes."""
    owned = snapshot.owned
    desired = find_or_make(snapshot.owned, snapshot.intended, draft)
    probed = resolve(owned, _probes(owned, desired), now)
    step = roll(owned, _traffic_facts(snapshot, desired, probed), now)
    decided = Decided(snapshot, desired, step, now)
    requests = chain.from_iterable(write_pass(decided) for write_pass in WRITES)
    resolved = resolve(owned, requests, now, probed)
    return _plan(decided, resolved, facts_of(decided, resolved))


def _probes(owned: OwnedState, desired: Desired) -> Iterator[ObstacleProbe]:
    """The names that must be free, or ours, before anything is decided about traffic."""
    yield ObstacleProbe("Service", owned.service.metadata.name)
    if desired.revision is not None:
        for kind in ("ControllerRevision", "Service", "Deployment"):
            yield ObstacleProbe(kind, desired.revision.name)
        for claim in desired.revision.claims:
            yield ObstacleProbe("ResourceClaimTemplate", claim.name)


def _traffic_facts(snapshot: Snapshot, desired: Desired, found: Resolved) -> TrafficFacts:
    """The facts that the rollout needs beside what exists."""
    owned = snapshot.owned
    applied = acknowledgement(owned, snapshot.routing, owned.traffic)
    name, refused = _reachable(owned, desired, found)
    return TrafficFacts(
        desired=name,
        refused=refused,
        acknowledged=applied is not None and applied.acknowledged,
        followed=applied is not None and applied.reason is Reason.ACKNOWLEDGED,
        reported=latest(owned.observation.gateways, owned.key),
    )


def _reachable(owned: OwnedState, desired: Desired, found: Resolved) -> tuple[str | None, Problem | None]:
    """The desired revision, and what keeps it from having a pod.

    It is none as long as it cannot be rejected: there is nothing to return to.
    """
    name, problem = desired.name, found.problem
    deployed = name is not None and name in owned.deployments
    missing = deployed and problem is not None and owned.find("Service", str(name)) is None
    if not found.blocked or (deployed and not missing):
        return name, None
    if name is None or problem is None or owned.stable in (None, name):
        return None, None
    return name, problem


def _plan(decided: Decided, resolved: Resolved, facts: Facts) -> Plan:
    """Writes, then the status, and when to look again."""
    owned, step = decided.owned, decided.step
    verdicts = conditions.verdicts(facts) | scaling.verdicts(owned)
    generation = owned.service.metadata.generation
    merged = conditions.merge(scaling.still_true(owned.service), verdicts, generation, decided.now)
    wanted = status.document(decided, merged)
    document = status.to_write(owned.service.status, wanted)
    ready = verdicts[ConditionType.READY]
    changes = resolved.writes or document is not None
    return Plan(
        writes=resolved.writes,
        status=document,
        events=_events(decided, wanted),
        requeue_after=_requeue_after(decided),
        summary=f"{decided.intended.name}: Ready={ready.status}/{ready.reason}" if changes else "",
        watch_gateways=facts.applied is not None and not facts.applied.is_settled,
        poll_counters=step.poll,
        queries=step.queries,
        unread=tuple(signatures.unread(owned, step.rollout)),
        download=_download(decided),
        scalable=scaling.scalable(owned, step),
    )


def _download(decided: Decided) -> DownloadRequest | None:
    if decided.desired.unresolved is not None:
        return downloads.of_job(decided.owned, decided.intended.name)
    return downloads.wanted(decided.owned, decided.name)


def _events(decided: Decided, wanted: InferenceServiceStatus) -> tuple[Event, ...]:
    stored = decided.owned.service.status
    events = transitions(stored.conditions, wanted.conditions, stored.rollout)
    return (
        *events,
        *rollout_transition(stored.rollout, wanted.rollout, events),
        *given_up(decided.step.marking.superseded),
    )


def _requeue_after(decided: Decided) -> timedelta | None:
    """The first time at which something may be different though nothing that is observed has changed."""
    desired, observation = decided.desired, decided.owned.observation
    awaited = desired.revision is None and desired.problem is None and desired.unresolved is None
    late = ending.next_overdue(decided.owned.pods, decided.now)
    dead = dead_pods.next_left_behind(decided.owned.pods, decided.now)
    fallback = placements.next_wake(decided.fallbacks.values())
    wakes = (
        class_returns.next_look(decided.class_return, decided.now),
        fallback - decided.now if fallback is not None else None,
        dead - decided.now if dead is not None else None,
        late - decided.now if late is not None else None,
        RETRY_REFUSED if observation.refused_writes else None,
        AWAIT_RENDERING if awaited else decided.step.wake,
    )
    return min((wake for wake in wakes if wake is not None), default=None)
