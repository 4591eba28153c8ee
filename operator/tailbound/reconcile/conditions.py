"""The conditions of one service: ordered rules over what was found and decided.

`readiness.py` has the rules of Ready, `promotion.py` those of Promoted, the others are here.

Reconciling is False if Stalled is True, if Ready is True with every replica ready, or if the service is
stopped and has no pods. A message begins with the revision that serves now wherever it could be misread
otherwise. Messages hold no counts or times that change by themselves, so that nothing is written for an idle
service; those of a download change at each tenth of it.
"""

from collections.abc import Sequence
from datetime import datetime

from tailbound.api.conditions import PLACELESS, STALLING, ConditionType, Reason
from tailbound.api.meta import Condition
from tailbound.api.runtime_contract import TerminationReason
from tailbound.objects.printable import printable
from tailbound.reconcile import promotion, readiness
from tailbound.reconcile.condition_verdict import FALSE, TRUE, UNKNOWN, ConditionVerdict
from tailbound.reconcile.facts import Facts
from tailbound.reconcile.sources import Unresolved
from tailbound.rollout import again

_FETCH_VERDICTS = frozenset(
    Reason(reason.value) for reason in TerminationReason if reason is not TerminationReason.FETCHED
)


def verdicts(facts: Facts) -> dict[ConditionType, ConditionVerdict]:
    """Every condition of a service whose spec is valid."""
    ready = readiness.ready(facts)
    stalled = _stalled(facts)
    found = {
        ConditionType.READY: ready,
        ConditionType.RECONCILING: _reconciling(facts, ready, stalled),
        ConditionType.STALLED: stalled,
        ConditionType.SCHEDULED: _scheduled(facts),
        ConditionType.MODEL_VERIFIED: _model_verified(facts),
        ConditionType.TRAFFIC_APPLIED: _traffic_applied(facts),
        ConditionType.PROMOTED: promotion.promoted(facts),
        ConditionType.ACTION_REFUSED: _action_refused(facts),
        ConditionType.CONFLICT: _conflict(facts),
    }
    if facts.desired.rendering_known:
        found[ConditionType.RUNTIME_OUTDATED] = _runtime_outdated(facts)
    if facts.signature is not None:
        found[ConditionType.SIGNATURE_CHANGED] = facts.signature
    if facts.unjudged:
        found[ConditionType.JUDGED] = ConditionVerdict(FALSE, Reason.NOT_JUDGED, facts.unjudged)
    return found


def invalid(message: str) -> dict[ConditionType, ConditionVerdict]:
    """The conditions of a stored object that fails validation, from which nothing else is derived."""
    return {
        ConditionType.READY: ConditionVerdict(FALSE, Reason.INVALID_SPEC, message),
        ConditionType.RECONCILING: ConditionVerdict(FALSE, Reason.INVALID_SPEC, message),
        ConditionType.STALLED: ConditionVerdict(TRUE, Reason.INVALID_SPEC, message),
    }


def merge(
    old: Sequence[Condition], new: dict[ConditionType, ConditionVerdict], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """The conditions to store, in the order of ConditionType. A time changes only with its status.

    A condition that is not in `new` is kept as it is.
    """
    before, now = {condition.type: condition for condition in old}, now.replace(microsecond=0)
    merged = []
    for kind in ConditionType:
        previous, verdict = before.get(kind), new.get(kind)
        if verdict is None:
            merged.extend([previous] if previous is not None else [])
            continue
        merged.append(_decided(kind, verdict, previous, generation, now))
    return tuple(merged)


def _decided(
    kind: ConditionType,
    verdict: ConditionVerdict,
    previous: Condition | None,
    generation: int,
    now: datetime,
) -> Condition:
    """The condition of this verdict: the previous one itself where it says the same."""
    message = printable(verdict.message)
    said = (verdict.status, verdict.reason, message, generation)
    if previous is not None:
        known = (previous.status, previous.reason, previous.message, previous.observed_generation)
        if known == said:
            return previous
    unchanged = previous is not None and previous.status == verdict.status
    return Condition(
        type=kind,
        status=verdict.status,
        reason=verdict.reason,
        message=message,
        last_transition_time=previous.last_transition_time if previous and unchanged else now,
        observed_generation=generation,
    )


def _stalled(facts: Facts) -> ConditionVerdict:
    if facts.problem is not None and facts.problem.reason in STALLING:
        outage = facts.serves_now if facts.down is not None else ""
        return ConditionVerdict(TRUE, facts.problem.reason, outage + facts.problem.message)
    rejection = facts.step.rejection
    waits = rejection is not None and facts.step.again_at is None
    if waits and facts.step.flow.settled and facts.step.flow.whole:
        message = f"{facts.serves_now}{facts.name} was rejected: {again.remedy(None, facts.commands)}"
        return ConditionVerdict(TRUE, Reason.ROLLED_BACK, message)
    return ConditionVerdict(FALSE, Reason.NOT_STALLED, "no problem needs a change by a user")


def _reconciling(facts: Facts, ready: ConditionVerdict, stalled: ConditionVerdict) -> ConditionVerdict:
    """
    | Stalled | Ready | replicas | status | reason |
    |---|---|---|---|---|
    | True | any | any | False | that of Stalled |
    | False | True | any, and an older one is on its way back | True | RollingOut |
    | False | True | all ready | False | Reconciled |
    | False | True | some missing | True | that of the pods, or Starting |
    | False | Stopped | none left | False | Reconciled |
    | False | otherwise | any | True | that of Ready |
    """
    if stalled.status is TRUE:
        return ConditionVerdict(FALSE, stalled.reason, stalled.message)
    if ready.status is TRUE and facts.coming_back is not None:
        return ConditionVerdict(TRUE, Reason.ROLLING_OUT, facts.coming_back)
    short_of = facts.ready < facts.replicas
    finished = facts.pods_left is False if facts.stopped else ready.status is TRUE and not short_of
    if finished:
        return ConditionVerdict(FALSE, Reason.RECONCILED, "all pods and routes match the spec")
    if ready.status is TRUE:
        obstacle = facts.pods.obstacle or next(iter(facts.pods.dead), None)
        why = f": {facts.pods.unready}" if facts.pods.unready else ""
        missing = f"{facts.name} has fewer ready endpoints than replicas{why}"
        return (
            ConditionVerdict(TRUE, obstacle.reason, obstacle.message)
            if obstacle is not None
            else ConditionVerdict(TRUE, Reason.STARTING, missing)
        )
    return ConditionVerdict(TRUE, ready.reason, ready.message)


def _idle(facts: Facts) -> ConditionVerdict | None:
    """The verdict of a condition about pods while there are none."""
    if facts.pods.count:
        return None
    if facts.stopped:
        return ConditionVerdict(UNKNOWN, Reason.STOPPED, "spec.stopped is true: there are no pods")
    return ConditionVerdict(UNKNOWN, Reason.PENDING, "there are no pods yet")


def _scheduled(facts: Facts) -> ConditionVerdict:
    """
    | a pod is refused or finds no node | pods | all have a node | status | reason |
    |---|---|---|---|---|
    | yes | any | any | False | that of the pod |
    | no | none | - | Unknown | Pending or Stopped |
    | no | some | yes, of the first class | True | Scheduled |
    | no | some | yes, of another class | True | FallbackClass |
    | no | some | no | Unknown | Pending |
    """
    refused = facts.pods.first_of(*PLACELESS, Reason.QUOTA_EXCEEDED, Reason.UNSCHEDULABLE)
    if refused is not None:
        return ConditionVerdict(FALSE, refused.reason, refused.message)
    idle = _idle(facts)
    if idle is not None:
        return idle
    if facts.pods.scheduled == facts.pods.count and facts.fallback:
        message = f"every pod has been assigned to a node, of {facts.fallback}"
        return ConditionVerdict(TRUE, Reason.FALLBACK_CLASS, message)
    if facts.pods.scheduled == facts.pods.count:
        return ConditionVerdict(TRUE, Reason.SCHEDULED, "every pod has been assigned to a node")
    return ConditionVerdict(UNKNOWN, Reason.PENDING, "the scheduler has not assigned every pod to a node yet")


def _model_verified(facts: Facts) -> ConditionVerdict:
    """
    | a fetch container is stuck | a pod has fetched | one is fetching | status | reason |
    |---|---|---|---|---|
    | of the Job that finds the digest | - | - | False, or Unknown as below | that of the container |
    | none, and the Job is not through | - | - | Unknown | Fetching |
    | with another digest | yes | any | False | SourceChanged |
    | and says why itself | any | any | False | that of the container |
    | for another cause | any | any | Unknown | that of the container |
    | no | yes | any | True | DigestMatches |
    | no | no | yes | Unknown | Fetching |
    | no | no | no | Unknown | Pending or Stopped |
    """
    failure = facts.pods.fetch_failure
    if facts.desired.unresolved is not None:
        return _resolving(facts.desired.unresolved)
    if failure is not None and failure.reason is Reason.DIGEST_MISMATCH and facts.pods.fetched:
        return ConditionVerdict(
            FALSE,
            Reason.SOURCE_CHANGED,
            "the source has changed since pods of the same revision fetched the model, which serve on: "
            f"restore it, or set spec.model.sha256 to the digest of the new one; {failure.message}",
        )
    if failure is not None:
        return _not_fetched(failure.reason, failure.message)
    if facts.pods.fetched:
        model = facts.desired.revision.model if facts.desired.revision is not None else None
        whose = f"that its source had when {facts.name} was made" if model is not None else "of the spec"
        return ConditionVerdict(TRUE, Reason.DIGEST_MATCHES, f"the model has the SHA-256 digest {whose}")
    return _not_fetched_yet(facts)


def _resolving(unresolved: Unresolved) -> ConditionVerdict:
    if unresolved.problem is not None:
        return _not_fetched(unresolved.problem.reason, unresolved.problem.message)
    return ConditionVerdict(UNKNOWN, Reason.FETCHING, unresolved.message)


def _not_fetched(reason: Reason, message: str) -> ConditionVerdict:
    return ConditionVerdict(FALSE if reason in _FETCH_VERDICTS else UNKNOWN, reason, message)


def _not_fetched_yet(facts: Facts) -> ConditionVerdict:
    if facts.pods.fetching:
        return ConditionVerdict(UNKNOWN, Reason.FETCHING, f"the model is being downloaded{facts.download}")
    return _idle(facts) or ConditionVerdict(
        UNKNOWN, Reason.PENDING, "no pod has started to download the model"
    )


def _traffic_applied(facts: Facts) -> ConditionVerdict:
    if facts.applied is None:
        return ConditionVerdict(UNKNOWN, Reason.PENDING, "there is no revision to route requests to yet")
    status = TRUE if facts.applied.reason is Reason.ACKNOWLEDGED else FALSE
    return ConditionVerdict(status, facts.applied.reason, facts.applied.message)


def _action_refused(facts: Facts) -> ConditionVerdict:
    refusal = facts.step.refusal
    if refusal is None:
        return ConditionVerdict(
            FALSE, Reason.NO_ACTION_REFUSED, "no annotation asks for an action that is impossible"
        )
    return ConditionVerdict(TRUE, Reason.ACTION_REFUSED, refusal)


def _runtime_outdated(facts: Facts) -> ConditionVerdict:
    if facts.name is None:
        return ConditionVerdict(UNKNOWN, Reason.PENDING, "there is no revision yet")
    if facts.desired.outdated is None:
        return ConditionVerdict(
            FALSE,
            Reason.UP_TO_DATE,
            f"the pods of {facts.name} match the present runtime, HardwareClass and operator",
        )
    return ConditionVerdict(TRUE, facts.desired.outdated.reason, facts.desired.outdated.message)


def _conflict(facts: Facts) -> ConditionVerdict:
    if facts.conflict is None:
        return ConditionVerdict(
            FALSE, Reason.NO_CONFLICT, "no write to a child object is refused or reverted"
        )
    return ConditionVerdict(
        TRUE, facts.conflict.reason, f"{facts.conflict.message}; everything else is still reconciled"
    )
