"""The rollout of one service: from what exists to one step of the machine, with the verdict in between."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from tailbound.api.inferenceservice import InferenceServiceSpec
from tailbound.api.rejection import Rejection
from tailbound.api.rollout import Analysis, AnalysisPolicy, AnalysisSource
from tailbound.judge import scrapes
from tailbound.judge.analysis import Pair, Terms, Verdict, judged, next_step, take_in
from tailbound.judge.metrics import Metric, metric_of
from tailbound.judge.record import EvidenceState, unpacked
from tailbound.judge.verdict import error_objective, latency_objective, unstated_errors
from tailbound.objects.fields import child, children
from tailbound.reconcile import ending, signatures
from tailbound.reconcile.class_returns import gives_up_after
from tailbound.reconcile.owned_state import OwnedState
from tailbound.reconcile.pod_classes import class_of
from tailbound.reconcile.pods import PodFinding, most_restarts, unready_since
from tailbound.reconcile.progress import in_time, judged_of, progress_of
from tailbound.reconcile.scaling import sizing_of
from tailbound.reconcile.writes import refusal_of
from tailbound.revisions.claims import claimed_devices
from tailbound.rollout.actions import read_actions
from tailbound.rollout.demands import demands, without_mixed_counts
from tailbound.rollout.machine import advance, begin
from tailbound.rollout.model import RevisionState, RolloutInput, RolloutStep
from tailbound.rollout.problem import Problem
from tailbound.rollout.progress import RolloutProgress
from tailbound.rollout.weights import weight_of

_P99: Final = 0.99


@dataclass(frozen=True)
class TrafficFacts:
    """What the caller knows beside what exists."""

    desired: str | None
    """The desired revision, if it can ever have a pod, or can be rejected for having none in time."""
    refused: Problem | None
    """What keeps it from having a Deployment."""
    acknowledged: bool
    """Every Ready gateway has applied status.traffic."""
    followed: bool
    """Every Ready gateway follows the spec as it is as well."""
    reported: int
    """The latest status.traffic that a gateway has applied, by its generation; 0 if none has one."""


def roll(owned: OwnedState, known: TrafficFacts, now: datetime) -> RolloutStep:
    """One step, with findings and evidence in its status."""
    given = _input(owned, known, now.replace(microsecond=0))
    who, rollout = begin(given)
    if rollout is None:
        return advance(given, who, rollout, Verdict(None))
    terms = terms_of(owned.service.spec)
    comparable = _on_one_class(owned, rollout)
    terms = replace(
        terms,
        metrics=_metrics(owned, rollout, comparable=comparable),
        policy=terms.policy if comparable else AnalysisPolicy.ABSOLUTE,
    )
    asked = _demands(owned.service.spec, terms)
    signature = signatures.comparison(owned, rollout.from_revision, rollout.revision)
    given = replace(given, demands=asked, signature=signature, elsewhere=not comparable)
    memory = _memory(rollout)
    pair = Pair(
        candidate=rollout.revision,
        stable=rollout.from_revision,
        stable_serves=weight_of(given.traffic, rollout.from_revision) > 0,
        pods=_short(owned.ready_names.get(rollout.revision, ())),
        existing=_short(pod.name for pod in owned.live_pods.get(rollout.revision, ())),
        candidate_serves=weight_of(given.traffic, rollout.revision) > 0,
    )
    memory = take_in(memory, owned.observation.readings, terms, pair, given.time)
    memory = without_mixed_counts(memory, rollout, asked)
    memory, verdict = judged(memory, terms, pair, given.time)
    step = advance(given, who, rollout, verdict)
    if step.poll:
        step = replace(step, queries=tuple(each for metric in terms.metrics for each in metric.queries))
    if step.rollout is None:
        return step
    memory = next_step(memory, given.time) if step.next_step else memory
    return replace(step, rollout=replace(step.rollout, judged=judged_of(step.rollout, memory, verdict)))


def _short(names: Iterable[str]) -> frozenset[str]:
    """The last parts of the pod names, which identify the pods of one revision."""
    return frozenset(name.rpartition("-")[2] for name in names)


def _input(owned: OwnedState, known: TrafficFacts, now: datetime) -> RolloutInput:
    service, spec = owned.service, owned.service.spec
    overtaken = owned.traffic is not None and known.reported > owned.traffic.generation
    stored = in_time(progress_of(service.status.rollout), now, overtaken=overtaken)
    holding = ending.holding(owned.pods, now)
    names = {*owned.deployments, *owned.stored_revisions, *owned.ready_endpoints, *holding}
    names |= {known.desired} if known.desired is not None else set()
    late = ending.remedies(owned.pods, now)
    revisions = {
        name: _state(owned, name, known.desired, late, holding.get(name, 0)) for name in sorted(names)
    }
    stable = owned.stable
    return RolloutInput(
        commands=owned.commands,
        desired=known.desired,
        stable=stable if stable is not None and revisions[stable].rejection is None else None,
        revisions=revisions,
        sizing=sizing_of(owned),
        stopped=spec.stopped,
        refused=known.refused,
        traffic=owned.traffic,
        acknowledged=known.acknowledged,
        first_generation=_first_generation(owned, known, now),
        overtaken=overtaken,
        spec=spec.rollout,
        stored=stored,
        actions=read_actions(
            service.metadata.annotations,
            {name: marks.handled for name, marks in owned.marks.items()},
            {name: marks.under_way for name, marks in owned.marks.items()},
        ),
        demands=None,
        followed=known.followed,
        timeout=spec.effective_timeout().timedelta + _lag(spec.rollout.analysis),
        time=now,
        marks_refused=any(each.kind == "ControllerRevision" for each in owned.observation.refused_writes),
    )


def _first_generation(owned: OwnedState, known: TrafficFacts, now: datetime) -> int:
    """1, unless a status was lost or restored: then one that no gateway can know."""
    return max(int(now.timestamp()) if owned.deployments else 1, known.reported + 1)


def _lag(analysis: Analysis) -> timedelta:
    """How much older than the reading a count may be."""
    return scrapes.FRESH if analysis.source is AnalysisSource.PROMETHEUS else timedelta()


def _state(owned: OwnedState, name: str, desired: str | None, late: str, holding: int) -> RevisionState:
    """One revision; `late`: which pods do not end, in words; `holding`: its pods that may hold a device."""
    live, pods, marks = owned.deployments.get(name), owned.live_pods.get(name, ()), owned.marks.get(name)
    report = owned.reports.get(name)
    obstacle, ready = report.obstacle if report is not None else None, owned.ready_names.get(name, ())
    return RevisionState(
        number=owned.numbers.get(name, 0),
        restorable=name == desired or owned.revision(name) is not None,
        recorded=name in owned.stored_revisions,
        deployed=live is not None,
        replicas=live.replicas if live is not None else 0,
        ready=owned.ready_endpoints.get(name, 0),
        pods=holding,
        restarts=most_restarts(pods),
        over_limit=report.over_limit if report is not None else 0,
        stuck=report.stuck + report.refused if report is not None else 0,
        unready_since=unready_since(pods),
        running=max(report.scheduled - owned.ready_endpoints.get(name, 0), 0) if report is not None else 0,
        downloading=report.downloading if report is not None else 0,
        trouble=_trouble(owned, name, obstacle, late) if obstacle is not None else None,
        unready=report.unready if report is not None else "",
        unready_pods=tuple(pod.name for pod in pods if pod.name not in ready),
        promoted_at=marks.promoted_at if marks is not None else None,
        rejection=_rejection(owned, name),
        tries=len(marks.former) if marks is not None else 0,
        refused=_refused(owned, name) if live is not None else None,
        gives_up_after=gives_up_after(owned, name),
    )


def _rejection(owned: OwnedState, name: str) -> Rejection | None:
    """The rejection in its record; or in the status, while the API server refuses to write the record."""
    marks, stored = owned.marks.get(name), owned.service.status.rollout
    if marks is not None and marks.rejected is not None:
        return marks.rejected
    if stored is None or not stored.unrecorded or stored.revision != name:
        return None
    return Rejection(name, stored.reason, stored.message)


def _refused(owned: OwnedState, name: str) -> Problem | None:
    """Why its Deployment, which exists, cannot be changed."""
    refused_writes = owned.observation.refused_writes
    found = next((each for each in refused_writes if (each.kind, each.name) == ("Deployment", name)), None)
    return refusal_of(found) if found is not None else None


def _trouble(owned: OwnedState, name: str, obstacle: PodFinding, late: str) -> Problem:
    needed = f"; a pod needs {pod_requirements(owned, name)}{late}" if obstacle.lacks_capacity else ""
    return Problem(obstacle.reason, obstacle.message + needed)


def terms_of(spec: InferenceServiceSpec) -> Terms:
    """What a candidate of this spec is judged by."""
    sla, analysis = spec.sla, spec.rollout.analysis
    latency = () if sla.latency is None else (latency_objective(_P99),)
    errors = (
        unstated_errors()
        if sla.error_rate is None
        else error_objective(float(sla.error_rate.fraction), float(analysis.min_error_rate.fraction))
    )
    return Terms((*latency, errors), analysis.policy, analysis.warmup_requests)


def _demands(spec: InferenceServiceSpec, terms: Terms) -> tuple[str, ...]:
    target = None if spec.sla.latency is None else spec.sla.latency.p99.milliseconds
    return demands(terms.objectives, target, terms.metrics)


def _on_one_class(owned: OwnedState, rollout: RolloutProgress) -> bool:
    """Whether both revisions run on the same hardware class, so that a difference is the revision's own.

    Pods of a revision that has just moved to another class may still run on the former one.
    """
    names = (rollout.revision, rollout.from_revision)
    classes = {each.hardware_class for name in names if (each := owned.revision(name)) is not None}
    placed = (class_of(pod) for name in names for pod in owned.live_pods.get(name, ()) if pod.scheduled)
    return len(classes.union(each for each in placed if each is not None)) < 2


def _metrics(owned: OwnedState, rollout: RolloutProgress, *, comparable: bool) -> tuple[Metric, ...]:
    service = owned.service
    names = {
        "namespace": service.metadata.namespace,
        "service": service.metadata.name,
        "revision": rollout.revision,
        "stable": rollout.from_revision,
    }
    metrics = service.spec.rollout.analysis.metrics
    return tuple(metric_of(each, names, comparable=comparable) for each in metrics)


def _memory(rollout: RolloutProgress) -> EvidenceState:
    """What the last decision left. What cannot be read begins from nothing: no request counts twice."""
    evidence = rollout.judged.evidence
    try:
        return unpacked(evidence) if evidence is not None else EvidenceState()
    except ValueError:
        return EvidenceState()


def pod_requirements(owned: OwnedState, name: str) -> str:
    """The needs of a pod, in words: devices, or else CPU and memory, and the class that asks for them."""
    revision = owned.revision(name)
    if revision is None:
        return "the resources in its Deployment"
    limits = {
        resource: amount
        for container in children(child(revision.template, "spec"), "containers")
        for resource, amount in child(container, "resources", "limits").items()
    }
    devices = {resource: amount for resource, amount in limits.items() if "/" in resource}
    claimed = {
        f"DeviceClass {name}": str(count)
        for name, count in claimed_devices(revision.template, revision.claims).items()
    }
    wanted = {**devices, **claimed} or limits
    amounts = ", ".join(f"{resource} {amount}" for resource, amount in wanted.items())
    return f"{amounts} (HardwareClass {revision.hardware_class})"
