"""The rollout of one service: from what exists to one step of the machine, with the verdict in between."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from tailbound.api.inferenceservice import InferenceServiceSpec
from tailbound.api.rollout import Analysis, AnalysisSource, RolloutState, RolloutStatus
from tailbound.api.rollout import Evidence as ApiEvidence
from tailbound.api.rollout import Finding as ApiFinding
from tailbound.api.rollout import MetricFinding as ApiMetricFinding
from tailbound.judge import scrapes
from tailbound.judge.analysis import Pair, Terms, Verdict, judged, next_step, take_in
from tailbound.judge.metrics import Metric, MetricFinding, metric_of
from tailbound.judge.record import EvidenceState, memory_of, to_document
from tailbound.judge.verdict import Finding, Policy, error_objective, latency_objective
from tailbound.reconcile import ending
from tailbound.reconcile.needs import needs
from tailbound.reconcile.owned_state import OwnedState
from tailbound.reconcile.pods import PodFinding, most_restarts, report, unready_since
from tailbound.reconcile.scaling import sizing_of
from tailbound.reconcile.writes import refusal_of
from tailbound.revisions.record import CorruptRevisionError, from_object
from tailbound.rollout.actions import read_actions
from tailbound.rollout.demands import demands, without_mixed_counts
from tailbound.rollout.figures import rounded, short_of
from tailbound.rollout.machine import advance, begin
from tailbound.rollout.model import PodProblem, Rejection, RevisionState, RolloutInput, RolloutStep
from tailbound.rollout.weights import weight_of

_OVER: Final = frozenset({RolloutState.PROMOTED, RolloutState.ROLLED_BACK})
_P99: Final = 0.99
_TIMES: Final = (
    "step_started_at",
    "step_asked_at",
    "progress_at",
    "still_since",
    "no_room_since",
    "moving_since",
)


@dataclass(frozen=True)
class TrafficFacts:
    """What the caller knows beside what exists."""

    desired: str | None
    """The desired revision, if it can ever have a pod, or can be rejected for having none in time."""
    refused: PodProblem | None
    """What keeps it from having a Deployment."""
    acknowledged: bool
    """Every Ready gateway has applied status.traffic."""
    followed: bool
    """Every Ready gateway follows the spec as it is as well."""
    reported: int
    """The latest status.traffic that a gateway has applied, by its generation; 0 if none has one."""


def roll(world: OwnedState, known: TrafficFacts, now: datetime) -> RolloutStep:
    """One step, with findings and evidence in its status."""
    situation = _situation(world, known, now.replace(microsecond=0))
    who, rollout = begin(situation)
    if rollout is None:
        return advance(situation, who, rollout, Verdict(None))
    terms = replace(terms_of(world.service.spec), metrics=_metrics(world, rollout))
    asked = _demands(world.service.spec, terms)
    situation, memory = replace(situation, demands=asked), _memory(rollout)
    pair = Pair(
        candidate=rollout.revision,
        stable=rollout.from_revision,
        stable_serves=weight_of(situation.traffic, rollout.from_revision) > 0,
        pods=_short(world.ready_names.get(rollout.revision, ())),
        existing=_short(pod["metadata"]["name"] for pod in world.live_pods.get(rollout.revision, ())),
        candidate_serves=weight_of(situation.traffic, rollout.revision) > 0,
    )
    memory = take_in(memory, world.observation.readings, terms, pair, situation.now)
    memory = without_mixed_counts(memory, rollout, asked)
    memory, verdict = judged(memory, terms, pair, situation.now)
    step = advance(situation, who, rollout, verdict)
    if step.poll:
        step = replace(step, queries=tuple(each for metric in terms.metrics for each in metric.queries))
    return _with_evidence(step, next_step(memory, situation.now) if step.next_step else memory, verdict)


def _short(names: Iterable[str]) -> frozenset[str]:
    """What tells the pods of one revision apart, which is stored: the last part of their names."""
    return frozenset(name.rpartition("-")[2] for name in names)


def _situation(world: OwnedState, known: TrafficFacts, now: datetime) -> RolloutInput:
    service, spec = world.service, world.service.spec
    overtaken = world.traffic is not None and known.reported > world.traffic.generation
    stored = _in_time(service.status.rollout, now, overtaken=overtaken)
    holding = ending.holding(world.observation.pods, now)
    names = {*world.deployments, *world.stored_revisions, *world.ready_endpoints, *holding}
    names |= {known.desired} if known.desired is not None else set()
    late = ending.told(world.observation.pods, now)
    revisions = {
        name: replace(_state(world, name, known.desired, late), pods=holding.get(name, 0))
        for name in sorted(names)
    }
    stable = world.stable
    return RolloutInput(
        desired=known.desired,
        stable=stable if stable is not None and revisions[stable].rejection is None else None,
        revisions=revisions,
        sizing=sizing_of(world),
        stopped=spec.stopped,
        refused=known.refused,
        traffic=world.traffic,
        acknowledged=known.acknowledged,
        first_generation=_first_generation(world, known, now),
        overtaken=overtaken,
        spec=spec.rollout,
        stored=stored,
        actions=read_actions(
            service.metadata.annotations,
            {name: marks.handled for name, marks in world.marks.items()},
            {name: marks.under_way for name, marks in world.marks.items()},
        ),
        judged=bool(terms_of(world.service.spec).objectives or spec.rollout.analysis.metrics),
        demands=None,
        followed=known.followed,
        timeout=spec.effective_timeout().timedelta + _lag(spec.rollout.analysis),
        now=now,
        marks_refused=any(refused.kind == "ControllerRevision" for refused in world.observation.obstacles),
    )


def _first_generation(world: OwnedState, known: TrafficFacts, now: datetime) -> int:
    """1, unless a status was lost or restored: then one that no gateway can know."""
    return max(int(now.timestamp()) if world.deployments else 1, known.reported + 1)


def _in_time(stored: RolloutStatus | None, now: datetime, *, overtaken: bool) -> RolloutStatus | None:
    """With times that limits can be counted from.

    None is later than now, as after the clock was set back: no limit lasts longer for that. Where a gateway
    shows that the status is from a backup all are now: no limit is over for what it does not know of.
    """
    if stored is None:
        return None
    known = {name: value for name in _TIMES if (value := getattr(stored, name)) is not None}
    wrong = [name for name, value in known.items() if overtaken or value > now]
    return stored.model_copy(update=dict.fromkeys(wrong, now)) if wrong else stored


def _lag(analysis: Analysis) -> timedelta:
    """How much older than the reading a count may be."""
    return scrapes.FRESH if analysis.source is AnalysisSource.PROMETHEUS else timedelta()


def _state(world: OwnedState, name: str, desired: str | None, late: str) -> RevisionState:
    """All but the pods that may hold a device; `late`: which pods do not end, in words."""
    live, pods, marks = world.deployments.get(name), world.live_pods.get(name, ()), world.marks.get(name)
    # Most revisions of a history have nothing left to report on.
    told = report(pods, live) if pods or live is not None else None
    obstacle, ready = told.obstacle if told is not None else None, world.ready_names.get(name, ())
    return RevisionState(
        number=world.numbers.get(name, 0),
        restorable=name == desired or _readable(world, name),
        recorded=name in world.stored_revisions,
        deployed=live is not None,
        replicas=int(live["spec"].get("replicas", 0)) if live is not None else 0,
        ready=world.ready_endpoints.get(name, 0),
        restarts=most_restarts(pods),
        stuck=told.stuck + told.refused if told is not None else 0,
        unready_since=unready_since(pods),
        running=max(told.scheduled - world.ready_endpoints.get(name, 0), 0) if told is not None else 0,
        trouble=_trouble(world, name, obstacle, late) if obstacle is not None else None,
        unready=told.unready if told is not None else "",
        unready_pods=tuple(pod for each in pods if (pod := each["metadata"]["name"]) not in ready),
        promoted_at=marks.promoted_at if marks is not None else None,
        rejection=_rejection(world, name),
        refused=_refused(world, name) if live is not None else None,
    )


def _rejection(world: OwnedState, name: str) -> Rejection | None:
    """As its record says; or the status, as long as the API server refuses to write that."""
    marks, stored = world.marks.get(name), world.service.status.rollout
    if marks is not None and marks.rejected is not None:
        rejected = marks.rejected
        return Rejection(name, rejected.reason, rejected.message, rejected.by)
    if stored is None or not stored.unrecorded or stored.revision != name:
        return None
    return Rejection(name, stored.reason, stored.message)


def _refused(world: OwnedState, name: str) -> PodProblem | None:
    """Why its Deployment, which exists, cannot be changed."""
    obstacles = world.observation.obstacles
    found = next((each for each in obstacles if (each.kind, each.name) == ("Deployment", name)), None)
    if found is None:
        return None
    problem = refusal_of(found)
    return PodProblem(problem.reason, problem.message)


def _trouble(world: OwnedState, name: str, obstacle: PodFinding, late: str) -> PodProblem:
    trouble = PodProblem(obstacle.reason, obstacle.message)
    if not trouble.lacks_room:
        return trouble
    return replace(trouble, message=f"{obstacle.message}; a pod needs {needs(world, name)}{late}")


def _readable(world: OwnedState, name: str) -> bool:
    stored = world.stored_revisions.get(name)
    try:
        return stored is not None and bool(from_object(stored))
    except CorruptRevisionError:
        return False


def terms_of(spec: InferenceServiceSpec) -> Terms:
    """What a candidate of this spec is judged by."""
    sla, analysis = spec.sla, spec.rollout.analysis
    latency = () if sla.latency is None else (latency_objective(_P99),)
    errors = (
        ()
        if sla.error_rate is None
        else (error_objective(float(sla.error_rate.fraction), float(analysis.min_error_rate.fraction)),)
    )
    return Terms((*latency, *errors), Policy(analysis.policy), analysis.warmup_requests)


def _demands(spec: InferenceServiceSpec, terms: Terms) -> tuple[str, ...]:
    target = None if spec.sla.latency is None else spec.sla.latency.p99.milliseconds
    return demands(terms.objectives, target, terms.metrics)


def _metrics(world: OwnedState, rollout: RolloutStatus) -> tuple[Metric, ...]:
    service = world.service
    names = {
        "namespace": service.metadata.namespace,
        "service": service.metadata.name,
        "revision": rollout.revision,
        "stable": rollout.from_revision,
    }
    return tuple(metric_of(each, names) for each in service.spec.rollout.analysis.metrics)


def _memory(rollout: RolloutStatus) -> EvidenceState:
    """What the last decision left. What cannot be read begins from nothing: no request counts twice."""
    try:
        return memory_of(rollout.evidence) if rollout.evidence is not None else EvidenceState()
    except ValueError:
        return EvidenceState()


def _with_evidence(step: RolloutStep, memory: EvidenceState, verdict: Verdict) -> RolloutStep:
    if step.rollout is None:
        return step
    over = step.rollout.state in _OVER
    update = {
        "findings": tuple(_told(finding, verdict) for finding in verdict.findings),
        "metrics": tuple(_told_metric(finding) for finding in verdict.metrics),
        "evidence": None if over or memory == EvidenceState() else to_document(memory),
    }
    return replace(step, rollout=step.rollout.model_copy(update=update))


def _told(finding: Finding, verdict: Verdict) -> ApiFinding:
    objective, limits, numbers = finding.objective, finding.limits, finding.numbers
    counted = verdict.counted(objective.measure)
    return ApiFinding(
        measure=objective.measure,
        outcome=finding.outcome,
        allowed=objective.allowed,
        unacceptable=objective.unacceptable,
        requests=round(counted.judged, 2),
        bad=round(counted.bad, 2),
        absolute=_evidence(numbers.absolute, limits.absolute),
        late=_evidence(numbers.late, limits.late),
        relative=_evidence(numbers.relative, limits.relative),
        passing=_evidence(numbers.passing, limits.passing),
        improves_breach=finding.improves_breach,
    )


def _told_metric(finding: MetricFinding) -> ApiMetricFinding:
    numbers, limits = finding.numbers, finding.limits
    beyond = (
        _evidence(numbers.absolute, limits.absolute),
        _evidence(numbers.late, limits.late),
    )
    relative = _evidence(numbers.relative, limits.relative)
    return ApiMetricFinding(
        name=finding.metric.name,
        outcome=finding.outcome,
        samples=round(finding.judged, 2),
        mean=None if finding.mean is None else rounded(finding.mean),
        missing=finding.missing or None,
        unmatched=finding.unmatched,
        bound=finding.metric.bound,
        against=max(beyond, key=lambda each: each.value - each.threshold),
        relative=relative if finding.metric.compared else None,
        passing=_evidence(numbers.passing, limits.passing),
        improves_breach=finding.improves_breach,
    )


def _evidence(value: float, threshold: float) -> ApiEvidence:
    shown, needed = short_of(value, threshold)
    return ApiEvidence(value=shown, threshold=needed)
