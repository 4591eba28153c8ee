"""The conditions of one service: ordered rules over what was found and decided.

Ready (first row that fits; "desired" is the revision of the spec as it is):

| what holds | status | reason |
|---|---|---|
| the revision that has the requests took over once, and none of its endpoints is ready | False | NotReady |
| another revision than desired serves, or there is a problem, and no gateway is Ready | False | NoGateway |
| something must be changed, or a write was refused | False | that of the problem |
| children of a deleted namesake are not gone yet | Unknown | Pending |
| spec.stopped | False | Stopped |
| there is no desired revision yet | Unknown | Pending |
| desired has all requests, acknowledged, and a ready endpoint | True | Serving |
| desired was rejected | False | RolledBack |
| desired has some of the requests, another revision the rest | Unknown | RollingOut |
| desired takes over as its pods get ready | Unknown | RollingOut |
| desired has no request to answer yet, and its pods are stuck | False | that of the pods |
| desired has all requests and a ready endpoint, the gateways wait | Unknown | WaitingForGateway |
| the same, and the gateways refuse, deny a host, or are none | False | theirs |
| desired took over once | False | NotReady |
| another revision answers | Unknown | RollingOut |
| pods download | Unknown | Fetching |
| otherwise | Unknown | Starting |

The first two rows are not for a stopped service, nor where strategy `recreate` takes the old pods away first,
nor for a desired revision without a problem, of which more is said further down.

Reconciling is True unless Stalled is, Ready is True with every replica ready, or the service is stopped for
good. What serves now comes first in every message that would be read as if something did. Messages hold no
counts or times that change by themselves: an idle service writes nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from tailbound.api.conditions import STALLING, ConditionStatus, ConditionType, Reason
from tailbound.api.meta import Condition
from tailbound.api.rollout import RolloutState
from tailbound.api.runtime_contract import TerminationReason
from tailbound.reconcile.facts import Facts
from tailbound.rollout.sizing import ALL
from tailbound.rollout.weights import weight_of

_FETCH_VERDICTS = frozenset(
    Reason(reason.value) for reason in TerminationReason if reason is not TerminationReason.FETCHED
)
_RENDERED = "the runtime's template is being rendered"
_TRUE, _FALSE, _UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN


@dataclass(frozen=True)
class ConditionVerdict:
    """A condition without its times."""

    status: ConditionStatus
    reason: Reason
    message: str


def verdicts(facts: Facts) -> dict[ConditionType, ConditionVerdict]:
    """Every condition of a service whose spec is valid."""
    ready = _ready(facts)
    stalled = _stalled(facts)
    found = {
        ConditionType.READY: ready,
        ConditionType.RECONCILING: _reconciling(facts, ready, stalled),
        ConditionType.STALLED: stalled,
        ConditionType.SCHEDULED: _scheduled(facts),
        ConditionType.MODEL_VERIFIED: _model_verified(facts),
        ConditionType.TRAFFIC_APPLIED: _traffic_applied(facts),
        ConditionType.PROMOTED: promoted(facts),
        ConditionType.ACTION_REFUSED: _action_refused(facts),
        ConditionType.CONFLICT: _conflict(facts),
    }
    if facts.desired.rendering_known:
        found[ConditionType.RUNTIME_OUTDATED] = _runtime_outdated(facts)
    return found


def invalid(message: str) -> dict[ConditionType, ConditionVerdict]:
    """The conditions of a stored object that does not validate; nothing else was looked at."""
    return {
        ConditionType.READY: ConditionVerdict(_FALSE, Reason.INVALID_SPEC, message),
        ConditionType.RECONCILING: ConditionVerdict(_FALSE, Reason.INVALID_SPEC, message),
        ConditionType.STALLED: ConditionVerdict(_TRUE, Reason.INVALID_SPEC, message),
    }


def merge(
    old: Sequence[Condition], new: dict[ConditionType, ConditionVerdict], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """The conditions to store, in the order of ConditionType. A time changes only with its status.

    A condition that `new` does not speak about stays as it is.
    """
    before, now = {condition.type: condition for condition in old}, now.replace(microsecond=0)
    merged = []
    for kind in ConditionType:
        previous, verdict = before.get(kind), new.get(kind)
        if verdict is None:
            merged.extend([previous] if previous is not None else [])
            continue
        unchanged = previous is not None and previous.status == verdict.status
        merged.append(
            Condition(
                type=kind,
                status=verdict.status,
                reason=verdict.reason,
                message=verdict.message,
                last_transition_time=previous.last_transition_time if previous and unchanged else now,
                observed_generation=generation,
            )
        )
    return tuple(merged)


def _ready(facts: Facts) -> ConditionVerdict:
    return next(_ready_rules(facts))


def _ready_rules(facts: Facts) -> Iterator[ConditionVerdict]:
    now, name, problem, rollout = facts.serves_now, facts.name, facts.problem, facts.step.rollout
    if facts.outage is not None:
        yield ConditionVerdict(_FALSE, facts.outage, now + _besides(facts))
    if problem is not None:
        yield ConditionVerdict(_FALSE, problem.reason, now + problem.message)
    if facts.waiting is not None:
        yield ConditionVerdict(_UNKNOWN, Reason.PENDING, now + facts.waiting)
    if facts.stopped:
        yield _stopped(facts)
    if name is None:
        yield ConditionVerdict(_UNKNOWN, Reason.PENDING, now + _RENDERED)
    applied = facts.applied
    if facts.on_target and applied is not None and applied.reason is Reason.ACKNOWLEDGED:
        yield ConditionVerdict(_TRUE, Reason.SERVING, f"{name} serves")
    if facts.step.rejection is not None:
        yield ConditionVerdict(_FALSE, Reason.ROLLED_BACK, now + _besides(facts))
    another = facts.serving is not None and facts.serving != name
    shared = (another and facts.share > 0) or (facts.takes_over and not facts.on_target)
    if rollout is not None and shared:
        yield ConditionVerdict(_UNKNOWN, Reason.ROLLING_OUT, rollout.message)
    obstacle = facts.pods.obstacle
    comes = f"; {facts.coming_back}" if facts.coming_back is not None else ""
    waits = rollout is not None and rollout.no_room_since is not None and rollout.revision == name
    if obstacle is not None and not facts.on_target:
        why = rollout.message if rollout is not None and waits else obstacle.message
        lead = f"no endpoint of {name} is ready{facts.fails}: " if facts.fails else ""
        yield ConditionVerdict(_FALSE, obstacle.reason, (now if another else lead) + why + comes)
    if facts.on_target and applied is not None:
        status = _UNKNOWN if applied.reason is Reason.WAITING_FOR_GATEWAY else _FALSE
        yield ConditionVerdict(status, applied.reason, applied.message)
    if facts.was_stable:
        here = now if another else ""
        why = f": {facts.pods.unready}" if facts.pods.unready else ""
        silent = f"no endpoint of {name} is ready{facts.fails}"
        yield ConditionVerdict(_FALSE, Reason.NOT_READY, f"{here}{silent}{why}{comes}")
    if another:
        yield ConditionVerdict(_UNKNOWN, Reason.ROLLING_OUT, now + _besides(facts))
    yield _starting(facts)


def _besides(facts: Facts) -> str:
    """What is to be said of the desired revision beside what serves now. First row that fits.

    | what holds | what is said |
    |---|---|
    | there is a problem | the problem |
    | something must be gone first | what |
    | there is no desired revision yet | that it is rendered |
    | it was rejected | why |
    | an older one comes back, or a rollout is under way | what that is at |
    | otherwise | it is starting |
    """
    rejection, rollout = facts.step.rejection, facts.step.rollout
    under_way = rollout is not None and rollout.state is not RolloutState.PROMOTED
    rules = (
        (facts.problem is not None, facts.problem.message if facts.problem is not None else ""),
        (facts.waiting is not None, facts.waiting or ""),
        (facts.name is None, _RENDERED),
        (rejection is not None, f"{facts.name} was rejected: {rejection.message if rejection else ''}"),
        (under_way, rollout.message if rollout is not None else ""),
    )
    return next((message for holds, message in rules if holds), f"{facts.name} is starting")


def _stopped(facts: Facts) -> ConditionVerdict:
    if not facts.pods_left:
        return ConditionVerdict(_FALSE, Reason.STOPPED, "spec.stopped is true: no pods")
    if facts.step.flow.settled or facts.applied is None:
        return ConditionVerdict(_FALSE, Reason.STOPPED, f"spec.stopped is true: pods are ending{facts.late}")
    waits = facts.applied.message
    return ConditionVerdict(
        _FALSE, Reason.STOPPED, f"spec.stopped is true: pods end when no gateway routes to them: {waits}"
    )


def _starting(facts: Facts) -> ConditionVerdict:
    if facts.pods.fetching:
        return ConditionVerdict(_UNKNOWN, Reason.FETCHING, f"pods of {facts.name} are downloading the model")
    return ConditionVerdict(_UNKNOWN, Reason.STARTING, f"{facts.name} is starting")


def _stalled(facts: Facts) -> ConditionVerdict:
    if facts.problem is not None and facts.problem.reason in STALLING:
        outage = facts.serves_now if facts.down is not None else ""
        return ConditionVerdict(_TRUE, facts.problem.reason, outage + facts.problem.message)
    rejection = facts.step.rejection
    if rejection is not None and facts.step.flow.settled and facts.step.flow.whole:
        remedy = "change the spec, or try it again with kubectl tailbound retry"
        message = f"{facts.serves_now}{facts.name} was rejected: {remedy}"
        return ConditionVerdict(_TRUE, Reason.ROLLED_BACK, message)
    return ConditionVerdict(
        _FALSE, Reason.NOT_STALLED, "nothing is in the way that has to be changed by hand"
    )


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
    if stalled.status is _TRUE:
        return ConditionVerdict(_FALSE, stalled.reason, stalled.message)
    if ready.status is _TRUE and facts.coming_back is not None:
        return ConditionVerdict(_TRUE, Reason.ROLLING_OUT, facts.coming_back)
    short_of = facts.ready < facts.replicas
    finished = facts.pods_left is False if facts.stopped else ready.status is _TRUE and not short_of
    if finished:
        return ConditionVerdict(_FALSE, Reason.RECONCILED, "everything is as the spec wants it")
    if ready.status is _TRUE:
        obstacle = facts.pods.obstacle
        why = f": {facts.pods.unready}" if facts.pods.unready else ""
        missing = f"{facts.name} has fewer ready endpoints than it is to have{why}"
        return (
            ConditionVerdict(_TRUE, obstacle.reason, obstacle.message)
            if obstacle is not None
            else ConditionVerdict(_TRUE, Reason.STARTING, missing)
        )
    return ConditionVerdict(_TRUE, ready.reason, ready.message)


def _idle(facts: Facts) -> ConditionVerdict | None:
    """What is said of pods while there are none."""
    if facts.pods.count:
        return None
    if facts.stopped:
        return ConditionVerdict(_UNKNOWN, Reason.STOPPED, "spec.stopped is true: no pods")
    return ConditionVerdict(_UNKNOWN, Reason.PENDING, "there are no pods yet")


def _scheduled(facts: Facts) -> ConditionVerdict:
    """
    | a pod is refused or finds no node | pods | all have a node | status | reason |
    |---|---|---|---|---|
    | yes | any | any | False | QuotaExceeded or Unschedulable |
    | no | none | - | Unknown | Pending or Stopped |
    | no | some | yes | True | Scheduled |
    | no | some | no | Unknown | Pending |
    """
    refused = facts.pods.first_of(Reason.QUOTA_EXCEEDED, Reason.UNSCHEDULABLE)
    if refused is not None:
        return ConditionVerdict(_FALSE, refused.reason, refused.message)
    idle = _idle(facts)
    if idle is not None:
        return idle
    if facts.pods.scheduled == facts.pods.count:
        return ConditionVerdict(_TRUE, Reason.SCHEDULED, "every pod has a node")
    return ConditionVerdict(_UNKNOWN, Reason.PENDING, "the scheduler has not placed every pod yet")


def _model_verified(facts: Facts) -> ConditionVerdict:
    """
    | a fetch container is stuck | a pod has fetched | one is fetching | status | reason |
    |---|---|---|---|---|
    | and says why itself | any | any | False | that of the container |
    | for another cause | any | any | Unknown | that of the container |
    | no | yes | any | True | DigestMatches |
    | no | no | yes | Unknown | Fetching |
    | no | no | no | Unknown | Pending or Stopped |
    """
    failure = facts.pods.fetch_failure
    if failure is not None:
        status = _FALSE if failure.reason in _FETCH_VERDICTS else _UNKNOWN
        return ConditionVerdict(status, failure.reason, failure.message)
    if facts.pods.fetched:
        return ConditionVerdict(_TRUE, Reason.DIGEST_MATCHES, "the model has the SHA-256 digest of the spec")
    if facts.pods.fetching:
        return ConditionVerdict(_UNKNOWN, Reason.FETCHING, "the model is being downloaded")
    return _idle(facts) or ConditionVerdict(
        _UNKNOWN, Reason.PENDING, "no pod has begun to download the model"
    )


def _traffic_applied(facts: Facts) -> ConditionVerdict:
    if facts.applied is None:
        return ConditionVerdict(_UNKNOWN, Reason.PENDING, "there is nothing to route to yet")
    status = _TRUE if facts.applied.reason is Reason.ACKNOWLEDGED else _FALSE
    return ConditionVerdict(status, facts.applied.reason, facts.applied.message)


def promoted(facts: Facts) -> ConditionVerdict:
    """Promoted: whether the newest spec's revision has taken over for good.

    | desired revision | status.rollout | status | reason |
    |---|---|---|---|
    | none | any | Unknown | Pending |
    | was rejected | any | False | RolledBack |
    | is another than the stable one, and spec.stopped is true | any | Unknown | Stopped |
    | is the stable one, without all requests | any | Unknown | that of the rollout, RollingOut without one |
    | is the stable one | takes its requests back from another | Unknown | that of the rollout |
    | is the stable one | any other | True | Promoted, or PromotedManually |
    | is on its way | any | Unknown | that of the rollout, RollingOut without one |
    """
    name, step = facts.name, facts.step
    outage = facts.serves_now if facts.down is not None else ""
    if name is None:
        return ConditionVerdict(_UNKNOWN, Reason.PENDING, f"{outage}there is no revision of this spec yet")
    rollout = step.rollout
    if step.rejection is not None:
        return ConditionVerdict(_FALSE, Reason.ROLLED_BACK, outage + step.rejection.message)
    if facts.stopped and name != step.stable:
        waits = f"spec.stopped is true: {name} takes over at the earliest once it is false"
        return ConditionVerdict(_UNKNOWN, Reason.STOPPED, waits)
    moves = rollout is not None and (rollout.revision, rollout.state) == (name, RolloutState.PROMOTING)
    has_all = facts.stopped or weight_of(step.flow.traffic, name) == ALL
    if name == step.stable and has_all and not moves:
        manual = rollout is not None and rollout.reason == Reason.PROMOTED_MANUALLY
        reason = Reason.PROMOTED_MANUALLY if manual else Reason.PROMOTED
        return ConditionVerdict(_TRUE, reason, f"{outage}{name} has taken over")
    if rollout is None or rollout.state in (RolloutState.ROLLED_BACK, RolloutState.PROMOTED):
        return ConditionVerdict(_UNKNOWN, Reason.ROLLING_OUT, f"{outage}{name} does not have all requests")
    # Another version of the operator may have stored a reason that this one does not know.
    reason = Reason(rollout.reason) if rollout.reason in {*Reason} else Reason.ROLLING_OUT
    return ConditionVerdict(_UNKNOWN, reason, outage + rollout.message)


def _action_refused(facts: Facts) -> ConditionVerdict:
    refusal = facts.step.refusal
    if refusal is None:
        return ConditionVerdict(
            _FALSE, Reason.NO_ACTION_REFUSED, "no annotation asks a rollout for what it cannot do"
        )
    return ConditionVerdict(_TRUE, Reason.ACTION_REFUSED, refusal)


def _runtime_outdated(facts: Facts) -> ConditionVerdict:
    if facts.name is None:
        return ConditionVerdict(_UNKNOWN, Reason.PENDING, "there is no revision yet")
    if facts.desired.outdated is None:
        return ConditionVerdict(
            _FALSE, Reason.UP_TO_DATE, f"the pods of {facts.name} are as they would be made now"
        )
    return ConditionVerdict(_TRUE, facts.desired.outdated.reason, facts.desired.outdated.message)


def _conflict(facts: Facts) -> ConditionVerdict:
    if facts.conflict is None:
        return ConditionVerdict(_FALSE, Reason.NO_CONFLICT, "no write of a child is refused or undone")
    return ConditionVerdict(
        _TRUE, facts.conflict.reason, f"{facts.conflict.message}; the rest goes on without it"
    )
