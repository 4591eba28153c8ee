"""How many pods a service's revisions are to have, and what is said of it.

Pods of a revision for all requests (first row that fits; within min and max, and asked for through /scale
always):

| spec.scaling | the autoscaler | the revision | pods |
|---|---|---|---|
| the traffic does not decide | any | any | as many as the spec asks for |
| it does | has decided on it | any | what it decided |
| it does | has not yet, or cannot | is deployed | as it is: an operator that starts changes nothing |
| it does | has not yet, or cannot | is to be | as the stable one has, or min |

Until there is a decision for the share at hand, the pods are those that its traffic needs if they are as fast
as those of the stable revision, as far as that fits the decision that there is (`sizing.py`).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tailbound.api.batching import Batching
from tailbound.api.conditions import ConditionStatus, ConditionType, Reason
from tailbound.api.inferenceservice import InferenceService
from tailbound.api.meta import Condition
from tailbound.api.scaling import RevisionScaling, Scaling, ScalingMode, ScalingStatus
from tailbound.autoscale.decision import Decision
from tailbound.autoscale.model import Known, Limit, Objective, Unknown
from tailbound.reconcile.conditions import ConditionVerdict
from tailbound.reconcile.model import Carrier, ScalingDecision, ScalingDecisions, ScalingRequest
from tailbound.reconcile.owned_state import OwnedState
from tailbound.revisions.record import CorruptRevisionError, from_object
from tailbound.rollout.model import RolloutStep
from tailbound.rollout.sizing import ALL, Size, Sizing, fixed

ALLOWED_LATE: Final = 0.01
"""Share of the requests that may be slower than a P99 target."""
_DIGITS: Final = 3
_MOST_WAITING: Final = 0.9
"""Of the target: longer than this no request waits for its batch, as far as sizing goes."""
_TRUE, _FALSE, _UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN


def sizing_of(world: OwnedState) -> Sizing:
    """The pods of every revision."""
    scaling = world.service.spec.scaling
    if not scaling.automatic:
        return fixed(scaling.asked)
    sizes = {name: _size_told(world, name, pods) for name, pods in _deployed(world).items()}
    sizes |= {name: _size(each) for name, each in _sized(world).items()}
    usual = sizes.get(world.stable or "", Size(scaling.asked))
    return Sizing(least=scaling.asked, most=scaling.most, usual=usual, sizes=sizes)


def _size(sized: ScalingDecision) -> Size:
    """The number that was decided, and what the traffic alone asked for."""
    decision, needed = sized.decision, sized.decision.explanation.needed
    known = max(1, round(needed.value)) if isinstance(needed, Known) else None
    return Size(max(1, decision.replicas), sized.share, known)


def scalable(world: OwnedState, step: RolloutStep) -> ScalingRequest | None:
    """What the autoscaler is to decide on or to watch; None without a P99 target, or where it is stopped."""
    spec = world.service.spec
    latency = spec.sla.latency
    if latency is None or spec.stopped:
        return None
    target = latency.p99.timedelta.total_seconds()
    carriers = {
        name: Carrier(step.carries.get(name, ALL), _objective(world, name, target))
        for name, pods in step.fleet.items()
        if pods > 0
    }
    return ScalingRequest(
        spec.scaling.asked, spec.scaling.most, target, carriers, only_watched=not spec.scaling.automatic
    )


def _objective(world: OwnedState, name: str, target: float) -> Objective:
    """The target, and how this revision batches: by its own record, as an edit makes another revision."""
    stored = world.stored_revisions.get(name)
    try:
        recorded = json.loads(from_object(stored).spec_json) if stored is not None else {}
        batching = Batching.model_validate(recorded.get("batching", {}))
    except (CorruptRevisionError, ValueError):
        batching = Batching()
    delay = batching.max_queue_delay
    seconds = 0.0 if delay is None else delay.timedelta.total_seconds()
    # A request that waits as long as it may take in all is late anyway.
    return Objective(target, batching.effective_max_batch_size(), min(seconds, _MOST_WAITING * target))


def status(world: OwnedState, step: RolloutStep) -> ScalingStatus | None:
    """What the pods were sized by; the figures change only with a decision."""
    if not world.service.spec.scaling.automatic:
        return None
    told = world.service.status.scaling or ScalingStatus()
    before = {each.revision: each for each in told.revisions if each.revision in step.fleet}
    now = {
        name: _told(name, each, before.get(name))
        for name, each in _sized(world).items()
        if name in step.fleet
    }
    revisions = before | now
    return ScalingStatus(revisions=tuple(revisions[name] for name in sorted(revisions)))


def still_true(service: InferenceService) -> tuple[Condition, ...]:
    """The stored conditions, without those on scaling that no longer apply.

    | condition | applies |
    |---|---|
    | SLAMet | with a P99 target |
    | ScalingLimited | where pods follow the traffic, or the scale subresource asks for what bounds forbid |
    | MetricsStale | where pods follow the traffic |
    """
    scaling = service.spec.scaling
    applies: dict[str, bool] = {
        ConditionType.SLA_MET: service.spec.sla.latency is not None,
        ConditionType.SCALING_LIMITED: scaling.automatic or _asked(scaling) is not None,
        ConditionType.METRICS_STALE: scaling.automatic,
    }
    return tuple(each for each in service.status.conditions if applies.get(each.type, True))


def verdicts(world: OwnedState) -> dict[ConditionType, ConditionVerdict]:
    """The conditions on scaling that are known now; `still_true` keeps the others as they are.

    | pods | the autoscaler | conditions |
    |---|---|---|
    | follow the traffic | has looked | SLAMet, ScalingLimited, MetricsStale |
    | are fixed | has looked | SLAMet; ScalingLimited where bounds cut what is asked for |
    | any | has not | ScalingLimited where bounds cut what is asked for |
    """
    sizes, asked = world.observation.sizes, _asked(world.service.spec.scaling)
    found = {} if asked is None else {ConditionType.SCALING_LIMITED: asked}
    if sizes is None:
        return found
    decisions = {name: each.decision for name, each in sorted(sizes.revisions.items())}
    missing = sorted({*sizes.missing, *(each for one in decisions.values() for each in one.stale)})
    stale = _stale(world, missing, sizes.awaited)
    if world.service.spec.scaling.automatic:
        found = {
            ConditionType.SCALING_LIMITED: asked or _limited(world, decisions),
            ConditionType.METRICS_STALE: stale,
        }
    met = _met(world, sizes, decisions, missing, stale.reason)
    return found if met is None else {ConditionType.SLA_MET: met, **found}


def _met(
    world: OwnedState,
    sizes: ScalingDecisions,
    decisions: Mapping[str, Decision],
    missing: Sequence[str],
    stale: Reason,
) -> ConditionVerdict | None:
    """
    | metrics | requests of the last minute | before | status | reason |
    |---|---|---|---|---|
    | are missing | any | any | Unknown | that of MetricsStale |
    | are there | at most 1 % were late | any | True | WithinTarget |
    | are there | more were late | any | False | TargetMissed, and what would help |
    | are there | none | True or False | as it was | as it was |
    | are there | none | else | Unknown | Pending |
    """
    latency = world.service.spec.sla.latency
    if latency is None:
        return None
    target, late = latency.p99, sizes.late
    if missing:
        return ConditionVerdict(
            _UNKNOWN, stale, f"it is not known while metrics are missing: {'; '.join(missing)}"
        )
    if late is None:
        before = world.service.status.condition(ConditionType.SLA_MET)
        kept = before is not None and before.status != _UNKNOWN
        return None if kept else ConditionVerdict(_UNKNOWN, Reason.PENDING, "no request was seen yet")
    if late <= ALLOWED_LATE:
        return ConditionVerdict(
            _TRUE, Reason.WITHIN_TARGET, f"99 of 100 requests are answered within {target}"
        )
    message = f"more than one request in a hundred takes longer than {target}"
    refused = rounded(sizes.shed)
    if refused:
        message = f"{message}, or would: about {100 * refused:g}% are refused for it (spec.overload)"
    helps = (*_unreachable(decisions, str(target)), *_fixed(world.service.spec.scaling))
    return ConditionVerdict(_FALSE, Reason.TARGET_MISSED, "; ".join([message, *helps]))


def _unreachable(decisions: Mapping[str, Decision], target: str) -> Iterator[str]:
    """What is said of revisions whose target no number of pods meets."""
    for name, decision in decisions.items():
        if decision.unreachable is not None:
            yield (
                f"more pods would not help: a pod of {name} that has nothing else to do takes up to "
                f"{decision.unreachable:.2g}s, which is more than {target}: raise spec.sla.latency.p99, or "
                "make the model faster"
            )


def _fixed(scaling: Scaling) -> Iterator[str]:
    """What helps a service with too few pods whose number does not follow the traffic."""
    if scaling.mode is ScalingMode.EXTERNAL:
        yield f"spec.scaling.replicas asks for {scaling.asked} pods: ask for more, or make the model faster"
    elif not scaling.automatic:
        yield (
            f"the number of pods is fixed at {scaling.asked}: raise spec.scaling.min, set spec.scaling.max "
            "above it for pods to follow the traffic, or make the model faster"
        )


def rounded(share: float) -> float:
    """A share for people, to one digit: a status that follows every request would be written with each."""
    return float(f"{share:.0e}")


def _limited(world: OwnedState, decisions: Mapping[str, Decision]) -> ConditionVerdict:
    """
    | what keeps a revision from having the pods that it needs | status | reason |
    |---|---|---|
    | a quota, or admission | True | QuotaExceeded |
    | pods of it find no node | True | Unschedulable |
    | spec.scaling.max | True | AtMaximum |
    | nothing | False | NotLimited |
    """
    words = {
        Limit.QUOTA: (Reason.QUOTA_EXCEEDED, "the API server admits no further pods of {}: raise the quota"),
        Limit.HARDWARE: (Reason.UNSCHEDULABLE, "no node has room for further pods of {}: add nodes"),
        Limit.MAX: (Reason.AT_MAXIMUM, "{} needs more pods than spec.scaling.max allows: raise it"),
    }
    for limit, (reason, message) in words.items():
        name = next((name for name, each in decisions.items() if each.limited_by is limit), None)
        if name is not None:
            return ConditionVerdict(_TRUE, reason, message.format(name))
    return ConditionVerdict(_FALSE, Reason.NOT_LIMITED, "nothing keeps the pods from following the traffic")


def _asked(scaling: Scaling) -> ConditionVerdict | None:
    """
    | spec.scaling.replicas, as kubectl scale or a HorizontalPodAutoscaler sets it | status | reason |
    |---|---|---|
    | above max | True | AtMaximum |
    | below min, with mode external | True | AtMinimum |
    | otherwise | none | none |
    """
    wants = f"spec.scaling.replicas asks for {scaling.replicas} pods, and spec.scaling"
    if scaling.replicas > scaling.most:
        message = f"{wants}.max allows {scaling.most}: raise it, or scale to fewer"
        return ConditionVerdict(_TRUE, Reason.AT_MAXIMUM, message)
    if scaling.mode is ScalingMode.EXTERNAL and scaling.replicas < scaling.min:
        message = f"{wants}.min keeps {scaling.min}: lower it, or scale to more"
        return ConditionVerdict(_TRUE, Reason.AT_MINIMUM, message)
    return None


def _stale(world: OwnedState, missing: Sequence[str], awaited: bool) -> ConditionVerdict:
    """
    | something is missing | it was never there, and is to come | before | status | reason |
    |---|---|---|---|---|
    | no | any | any | False | MetricsFresh |
    | yes | yes | nothing, or Unknown | Unknown | Pending |
    | yes | yes | else | True | MetricsMissing |
    | yes | no | any | True | MetricsMissing |
    """
    if not missing:
        return ConditionVerdict(_FALSE, Reason.METRICS_FRESH, "everything that pods are sized by is known")
    before = world.service.status.condition(ConditionType.METRICS_STALE)
    if awaited and (before is None or before.status == _UNKNOWN):
        return ConditionVerdict(_UNKNOWN, Reason.PENDING, "the first metrics are still to come")
    message = f"no pod is taken away while it is not known how many are needed: {'; '.join(missing)}"
    return ConditionVerdict(_TRUE, Reason.METRICS_MISSING, message)


def _told(name: str, sized: ScalingDecision, before: RevisionScaling | None) -> RevisionScaling:
    decision = sized.decision
    known = (sized.share, decision.replicas, decision.limited_by)
    if before is not None and (before.share, before.replicas, before.limited_by or Limit.NONE) == known:
        return before
    why = decision.explanation
    return RevisionScaling(
        revision=name,
        share=sized.share,
        replicas=decision.replicas,
        needed=_figure(why.needed),
        arrivals_per_second=_figure(why.arrivals),
        forecast_per_second=_figure(why.forecast),
        capacity_per_second=_figure(why.capacity),
        rule=decision.reason,
        limited_by="" if decision.limited_by is Limit.NONE else decision.limited_by,
        message=decision.words(),
        arithmetic=why.line,
    )


def _figure(value: Known[float] | Unknown) -> float | None:
    """For people: a rate is not known to more digits."""
    return float(f"{value.value:.{_DIGITS}g}") if isinstance(value, Known) else None


def _sized(world: OwnedState) -> Mapping[str, ScalingDecision]:
    sizes = world.observation.sizes
    return sizes.revisions if sizes is not None else {}


def _deployed(world: OwnedState) -> dict[str, int]:
    pods = {name: int(each["spec"].get("replicas", 0)) for name, each in world.deployments.items()}
    return {name: count for name, count in pods.items() if count > 0}


def _size_told(world: OwnedState, name: str, pods: int) -> Size:
    """The pods of a deployed revision, and the decision that they were last made by."""
    told = world.service.status.scaling or ScalingStatus()
    known = next((each for each in told.revisions if each.revision == name), None)
    if known is None:
        return Size(pods)
    return Size(pods, known.share, max(1, round(known.replicas if known.needed is None else known.needed)))
