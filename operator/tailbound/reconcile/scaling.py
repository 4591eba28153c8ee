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
from functools import lru_cache
from typing import Final

from tailbound.api.batching import Batching
from tailbound.api.conditions import ConditionType, Reason
from tailbound.api.inferenceservice import InferenceService, Latency
from tailbound.api.meta import Condition
from tailbound.api.scaling import RevisionScaling, Scaling, ScalingMode, ScalingStatus
from tailbound.autoscale.decision import ReplicaDecision
from tailbound.autoscale.model import Known, LatencyTarget, Limit
from tailbound.objects.unknown import Unknown
from tailbound.reconcile.condition_verdict import FALSE, TRUE, UNKNOWN, ConditionVerdict
from tailbound.reconcile.model import RevisionLoad, ScalingDecision, ScalingDecisions, ScalingRequest
from tailbound.reconcile.owned_state import OwnedState
from tailbound.rollout.model import RolloutStep
from tailbound.rollout.sizing import ALL, Size, Sizing, fixed

ALLOWED_LATE: Final = 0.01
"""Share of the requests that may be slower than a P99 target."""
_DIGITS: Final = 3
_MOST_WAITING: Final = 0.9
"""Fraction of the latency target for which sizing lets a request wait for its batch at most."""
_NOT_LIMITED: Final = ConditionVerdict(
    FALSE, Reason.NOT_LIMITED, "no limit keeps the number of pods from following the traffic"
)
_METRICS_FRESH: Final = ConditionVerdict(
    FALSE, Reason.METRICS_FRESH, "all metrics for the number of pods are known"
)


def sizing_of(owned: OwnedState) -> Sizing:
    """The pods of every revision."""
    scaling = owned.service.spec.scaling
    if not scaling.automatic:
        return fixed(scaling.asked)
    stored = _stored(owned)
    sizes = {name: _size_before(pods, stored.get(name)) for name, pods in _deployed(owned).items()}
    sizes |= {name: _size(each) for name, each in _sized(owned).items()}
    usual = sizes.get(owned.stable or "", Size(scaling.asked))
    return Sizing(least=scaling.asked, most=scaling.most, usual=usual, sizes=sizes)


def _size(sized: ScalingDecision) -> Size:
    """The number that was decided, and what the traffic alone asked for."""
    decision, needed = sized.decision, sized.decision.explanation.needed
    known = max(1, round(needed.value)) if isinstance(needed, Known) else None
    return Size(max(1, decision.replicas), sized.share, known)


def scalable(owned: OwnedState, step: RolloutStep) -> ScalingRequest | None:
    """What the autoscaler is to decide on or to watch; None without a P99 target, or where it is stopped."""
    spec = owned.service.spec
    latency = spec.sla.latency
    if latency is None or spec.stopped:
        return None
    target = latency.p99.timedelta.total_seconds()
    carriers = {
        name: RevisionLoad(step.carries.get(name, ALL), _objective(owned, name, target))
        for name, pods in step.fleet.items()
        if pods > 0
    }
    return ScalingRequest(
        least=spec.scaling.asked,
        most=spec.scaling.most,
        p99_seconds=target,
        revisions=carriers,
        only_watched=not spec.scaling.automatic,
        settled=_settled_sizes(owned, step, latency),
    )


def _settled_sizes(
    owned: OwnedState, step: RolloutStep, latency: Latency
) -> Mapping[str, tuple[int, int, str]] | None:
    """
    | conditions on the SLA and on scaling | pods | sizes |
    |---|---|---|
    | one is not the best, or of another generation | any | None |
    | all are the best | are fixed | nothing of any revision |
    | all are the best | differ from the stored decisions | None |
    | all are the best | are as in the stored decisions | these decisions |
    """
    service, automatic = owned.service, owned.service.spec.scaling.automatic
    best = {ConditionType.SLA_MET: _within(latency)}
    if automatic:
        best |= {ConditionType.SCALING_LIMITED: _NOT_LIMITED, ConditionType.METRICS_STALE: _METRICS_FRESH}
    generation = service.metadata.generation
    if not all(_says(service.status.condition(kind), verdict, generation) for kind, verdict in best.items()):
        return None
    if not automatic:
        return {}
    stored = _stored(owned)
    if step.carries or step.fleet != {name: each.replicas for name, each in stored.items()}:
        return None
    return {name: (each.share, each.replicas, each.limited_by or Limit.NONE) for name, each in stored.items()}


def _says(stored: Condition | None, verdict: ConditionVerdict, generation: int) -> bool:
    """Whether a stored condition is this verdict on this generation."""
    if stored is None:
        return False
    found = (stored.status, stored.reason, stored.message, stored.observed_generation)
    return found == (verdict.status, verdict.reason, verdict.message, generation)


def _objective(owned: OwnedState, name: str, target: float) -> LatencyTarget:
    """The target, and how this revision batches: by its own record, as an edit makes another revision."""
    revision = owned.revision(name)
    batching = _batching(revision.spec_json) if revision is not None else Batching()
    delay = batching.max_queue_delay
    seconds = 0.0 if delay is None else delay.timedelta.total_seconds()
    # A request that waits as long as it may take in all is late anyway.
    return LatencyTarget(target, batching.effective_max_batch_size(), min(seconds, _MOST_WAITING * target))


@lru_cache(maxsize=4096)
def _batching(spec_json: str) -> Batching:
    """How a revision batches whose stored spec is this text; as by default where it cannot be read."""
    try:
        return Batching.model_validate(json.loads(spec_json).get("batching", {}))
    except ValueError:
        return Batching()


def status(owned: OwnedState, step: RolloutStep) -> ScalingStatus | None:
    """What the pods were sized by; the figures change only with a decision."""
    if not owned.service.spec.scaling.automatic:
        return None
    before = {name: each for name, each in _stored(owned).items() if name in step.fleet}
    now = {
        name: _status_of(name, each, before.get(name))
        for name, each in _sized(owned).items()
        if name in step.fleet
    }
    revisions = before | now
    return ScalingStatus(revisions=tuple(revisions[name] for name in sorted(revisions)))


def still_true(service: InferenceService) -> tuple[Condition, ...]:
    """The stored conditions, without those on the SLA and on scaling that no longer apply.

    | condition | applies |
    |---|---|
    | SLAMet | with a P99 target |
    | Judged | without one |
    | ScalingLimited | where pods follow the traffic, or the scale subresource asks for what bounds forbid |
    | MetricsStale | where pods follow the traffic |
    """
    scaling = service.spec.scaling
    applies: dict[str, bool] = {
        ConditionType.SLA_MET: service.spec.sla.latency is not None,
        ConditionType.JUDGED: service.spec.sla.latency is None,
        ConditionType.SCALING_LIMITED: scaling.automatic or _asked(scaling) is not None,
        ConditionType.METRICS_STALE: scaling.automatic,
    }
    return tuple(each for each in service.status.conditions if applies.get(each.type, True))


def verdicts(owned: OwnedState) -> dict[ConditionType, ConditionVerdict]:
    """The conditions on scaling that are known now; `still_true` keeps the others as they are.

    | pods | the autoscaler | conditions |
    |---|---|---|
    | follow the traffic | has looked | SLAMet, ScalingLimited, MetricsStale |
    | are fixed | has looked | SLAMet; ScalingLimited where bounds cut what is asked for |
    | any | has not | ScalingLimited where bounds cut what is asked for |
    """
    sizes, asked = owned.observation.sizes, _asked(owned.service.spec.scaling)
    found = {} if asked is None else {ConditionType.SCALING_LIMITED: asked}
    if sizes is None:
        return found
    decisions = {name: each.decision for name, each in sorted(sizes.revisions.items())}
    missing = sorted({*sizes.missing, *(each for one in decisions.values() for each in one.stale)})
    stale = _stale(owned, missing, sizes.awaited)
    if owned.service.spec.scaling.automatic:
        found = {
            ConditionType.SCALING_LIMITED: asked or _limited(owned, decisions),
            ConditionType.METRICS_STALE: stale,
        }
    met = _met(owned, sizes, decisions, missing, stale.reason)
    return found if met is None else {ConditionType.SLA_MET: met, **found}


def _met(
    owned: OwnedState,
    sizes: ScalingDecisions,
    decisions: Mapping[str, ReplicaDecision],
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
    latency = owned.service.spec.sla.latency
    if latency is None:
        return None
    target, late = latency.p99, sizes.late
    if missing:
        return ConditionVerdict(
            UNKNOWN, stale, f"the latency is not known while metrics are missing: {'; '.join(missing)}"
        )
    if late is None:
        before = owned.service.status.condition(ConditionType.SLA_MET)
        kept = before is not None and before.status != UNKNOWN
        return None if kept else ConditionVerdict(UNKNOWN, Reason.PENDING, "no request was seen yet")
    if late <= ALLOWED_LATE:
        return _within(latency)
    message = f"more than one request in a hundred takes longer than {target}"
    refused = rounded(sizes.shed)
    if refused:
        message = f"{message}, or would: about {100 * refused:g}% are refused for it (spec.overload)"
    helps = (*_unreachable(decisions, str(target)), *_fixed(owned.service.spec.scaling))
    return ConditionVerdict(FALSE, Reason.TARGET_MISSED, "; ".join([message, *helps]))


def _within(latency: Latency) -> ConditionVerdict:
    return ConditionVerdict(
        TRUE, Reason.WITHIN_TARGET, f"99 of 100 requests are answered within {latency.p99}"
    )


def _unreachable(decisions: Mapping[str, ReplicaDecision], target: str) -> Iterator[str]:
    """What is said of revisions whose target no number of pods meets."""
    for name, decision in decisions.items():
        if decision.unreachable is not None:
            yield (
                f"more pods would not help: even an idle pod of {name} takes up to "
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


def _limited(owned: OwnedState, decisions: Mapping[str, ReplicaDecision]) -> ConditionVerdict:
    """
    | what keeps a revision from having the pods that it needs | status | reason |
    |---|---|---|
    | a quota | True | QuotaExceeded |
    | another rule of admission | True | PodRefused |
    | pods of it find no node | True | Unschedulable |
    | spec.scaling.max | True | AtMaximum |
    | nothing | False | NotLimited |
    """
    words = {
        Limit.QUOTA: (Reason.QUOTA_EXCEEDED, "the API server admits no further pods of {}: raise the quota"),
        Limit.REFUSED: (
            Reason.POD_REFUSED,
            "the API server refuses further pods of {}: the condition Scheduled says why",
        ),
        Limit.HARDWARE: (Reason.UNSCHEDULABLE, "no node has capacity for further pods of {}: add nodes"),
        Limit.MAX: (Reason.AT_MAXIMUM, "{} needs more pods than spec.scaling.max allows: raise it"),
    }
    for limit, (reason, message) in words.items():
        name = next((name for name, each in decisions.items() if each.limited_by is limit), None)
        if name is not None:
            return ConditionVerdict(TRUE, reason, message.format(name))
    return _NOT_LIMITED


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
        return ConditionVerdict(TRUE, Reason.AT_MAXIMUM, message)
    if scaling.mode is ScalingMode.EXTERNAL and scaling.replicas < scaling.min:
        message = f"{wants}.min keeps {scaling.min}: lower it, or scale to more"
        return ConditionVerdict(TRUE, Reason.AT_MINIMUM, message)
    return None


def _stale(owned: OwnedState, missing: Sequence[str], awaited: bool) -> ConditionVerdict:
    """
    | something is missing | it was never there, and is to come | before | status | reason |
    |---|---|---|---|---|
    | no | any | any | False | MetricsFresh |
    | yes | yes | nothing, or Unknown | Unknown | Pending |
    | yes | yes | else | True | MetricsMissing |
    | yes | no | any | True | MetricsMissing |
    """
    if not missing:
        return _METRICS_FRESH
    before = owned.service.status.condition(ConditionType.METRICS_STALE)
    if awaited and (before is None or before.status == UNKNOWN):
        return ConditionVerdict(UNKNOWN, Reason.PENDING, "the first metrics have not arrived yet")
    message = f"no pod is removed while metrics are missing: {'; '.join(missing)}"
    return ConditionVerdict(TRUE, Reason.METRICS_MISSING, message)


def _status_of(name: str, sized: ScalingDecision, before: RevisionScaling | None) -> RevisionScaling:
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
        message=decision.message(),
        arithmetic=why.account.line,
    )


def _figure(value: Known[float] | Unknown) -> float | None:
    """The value for people, rounded to the digits to which a rate is known."""
    return float(f"{value.value:.{_DIGITS}g}") if isinstance(value, Known) else None


def _sized(owned: OwnedState) -> Mapping[str, ScalingDecision]:
    sizes = owned.observation.sizes
    return sizes.revisions if sizes is not None else {}


def _deployed(owned: OwnedState) -> dict[str, int]:
    pods = {name: each.replicas for name, each in owned.deployments.items()}
    return {name: count for name, count in pods.items() if count > 0}


def _stored(owned: OwnedState) -> dict[str, RevisionScaling]:
    """What the status says of the pods of each revision."""
    stored = owned.service.status.scaling or ScalingStatus()
    return {each.revision: each for each in stored.revisions}


def _size_before(pods: int, known: RevisionScaling | None) -> Size:
    """The pods of a deployed revision, and the decision that they were last made by."""
    if known is None:
        return Size(pods)
    return Size(pods, known.share, max(1, round(known.replicas if known.needed is None else known.needed)))
