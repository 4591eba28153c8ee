"""`kubectl tailbound status`: who serves, who is on the way, and the evidence against its threshold. Pure."""

from collections.abc import Sequence
from datetime import datetime

from tailbound.api.conditions import ConditionStatus, ConditionType
from tailbound.api.findings import (
    EvidenceStatus,
    FindingStatus,
    MetricFindingStatus,
)
from tailbound.api.inferenceservice import InferenceService, RevisionStatus
from tailbound.api.parsing import InvalidObject
from tailbound.api.rollout import RolloutState, RolloutStatus
from tailbound.cli.downloads import FetchLog, downloads
from tailbound.cli.hardware import hardware_lines
from tailbound.cli.subject import Subject, gave_up_return, judged_now, returns
from tailbound.cli.table import age, indented, table
from tailbound.judge.verdict import Outcome
from tailbound.rollout.figures import count, proof

_NONE = "-"
_BAR = 8
# Shown while they are True.
_ABNORMAL = (
    ConditionType.ACTION_REFUSED,
    ConditionType.CONFLICT,
    ConditionType.SCALING_LIMITED,
    ConditionType.METRICS_STALE,
    ConditionType.SIGNATURE_CHANGED,
)


def overview(services: Sequence[InferenceService | InvalidObject], *, namespaces: bool) -> str:
    """One line for each service; that of one which cannot be read says why."""
    heading = ["NAME", "READY", "REPLICAS", "PROMOTED", "STABLE", "CANARY", "WEIGHT", "STATE", "REASON"]
    rows = [["NAMESPACE", *heading] if namespaces else heading]
    for namespace, name, cells in sorted(map(_line, services), key=lambda line: line[:2]):
        rows.append([namespace, name, *cells] if namespaces else [name, *cells])
    return table(rows)


def _line(service: InferenceService | InvalidObject) -> tuple[str, str, list[str]]:
    """Namespace, name, and the other cells."""
    if isinstance(service, InvalidObject):
        return service.namespace, service.name, [*[_NONE] * 7, f"cannot be read: {service.message}"]
    metadata, status = service.metadata, service.status
    ready, promoted = (status.condition(kind) for kind in (ConditionType.READY, ConditionType.PROMOTED))
    rollout = status.rollout
    cells = [
        ready.status if ready is not None else _NONE,
        status.serving_pods or _NONE,
        promoted.status if promoted is not None else _NONE,
        status.stable.revision if status.stable is not None else _NONE,
        status.canary.revision if status.canary is not None else _NONE,
        f"{rollout.weight}%" if rollout is not None and not rollout.state.is_over else _NONE,
        rollout.state if rollout is not None else _NONE,
        _reason(service),
    ]
    return metadata.namespace, metadata.name, cells


def _reason(service: InferenceService) -> str:
    """The reason of the rollout where it says more than its state, else that of Ready: what is wrong now."""
    rollout, ready = service.status.rollout, service.status.condition(ConditionType.READY)
    if rollout is not None and rollout.reason and rollout.reason != rollout.state:
        return rollout.reason
    return ready.reason if ready is not None else _NONE


def status(subject: Subject, now: datetime, logs: Sequence[FetchLog] = ()) -> str:
    """All that is known about one service now."""
    service = subject.service
    parts = [f"{subject.title}  {service.status.url}".rstrip(), indented(_conditions(subject))]
    parts += ["", indented(_revisions(subject))]
    hardware = hardware_lines(service)
    if hardware:
        parts += ["", indented("\n".join(hardware))]
    if logs:
        parts += ["", indented(downloads(logs))]
    if subject.rollout is not None:
        parts += ["", indented(_rollout(subject, subject.rollout, now))]
        if subject.rollout.findings:
            parts += ["", indented(_findings(subject.rollout))]
        if subject.rollout.metrics:
            parts += ["", indented(_metrics(subject.rollout))]
    return "\n".join(parts)


def _conditions(subject: Subject) -> str:
    always = (ConditionType.READY, ConditionType.PROMOTED)
    lines = [
        f"{each.type} is {each.status} ({each.reason}): {each.message}"
        for each in (subject.service.status.condition(kind) for kind in (*always, *_ABNORMAL))
        if each is not None and (each.type in always or each.status is ConditionStatus.TRUE)
    ]
    return "\n".join([*([subject.unseen] if subject.unseen is not None else []), *lines])


def _revisions(subject: Subject) -> str:
    rows = [["ROLE", "REVISION", "REQUESTS", "READY"]]
    for role, each in (("stable", subject.service.status.stable), ("canary", subject.service.status.canary)):
        rows.append([role, *_revision(subject, each)])
    return table(rows)


def _revision(subject: Subject, revision: RevisionStatus | None) -> list[str]:
    if revision is None:
        return [_NONE, _NONE, _NONE]
    weight = f"{subject.weight(revision.revision)}%"
    return [revision.revision, weight, f"{revision.ready} of {revision.replicas}"]


def _rollout(subject: Subject, rollout: RolloutStatus, now: datetime) -> str:
    weights = subject.service.spec.rollout.weights
    steps = bool(rollout.from_revision) and not rollout.state.is_over and not returns(rollout)
    analysing = steps and rollout.step < len(weights)
    step = f", step {rollout.step + 1} of {len(weights)} ({weights[rollout.step]}%)" if analysing else ""
    since = rollout.step_started_at
    lasts = f" for {age(now, since)}" if since is not None and analysing else ""
    reason = f" ({rollout.reason})" if rollout.reason and rollout.reason != rollout.state else ""
    what, state = f"rollout of {rollout.revision}", _state(rollout.state)
    if returns(rollout):
        what, state = f"rollback to {rollout.revision}", "under way"
    if gave_up_return(rollout):
        what, state = f"rollback to {rollout.from_revision}", "abandoned"
    head = f"{what}: {state}{reason}{step}{lasts}"
    return f"{head}\n{rollout.message}" if rollout.message else head


def _state(state: RolloutState) -> str:
    return {RolloutState.ROLLED_BACK: "rolled back"}.get(state, state.lower())


def _outcome(each: FindingStatus | MetricFindingStatus, rollout: RolloutStatus) -> str:
    """The verdict. Before the first request nothing passes, and to wait is none where nothing is awaited."""
    seen = each.requests if isinstance(each, FindingStatus) else each.samples
    settled = each.outcome != Outcome.WAIT and (seen or each.outcome != Outcome.PASS)
    return each.outcome if settled or judged_now(rollout) else _NONE


def _findings(rollout: RolloutStatus) -> str:
    rows = [["OBJECTIVE", "BAD", "ALLOWED", "BEYOND SLA", "WORSE", "PASSES", "OUTCOME"]]
    for each in rollout.findings:
        beyond = max(each.absolute, each.late, key=lambda evidence: evidence.value - evidence.threshold)
        rows.append(
            [
                each.measure,
                f"{count(each.bad)} of {count(each.requests)}",
                f"{100 * each.allowed:.4g} %",
                _against(beyond),
                _against(each.relative),
                _against(each.passing),
                _outcome(each, rollout),
            ]
        )
    return table(rows)


def _metrics(rollout: RolloutStatus) -> str:
    rows = [["METRIC", "IS", "BOUND", "SAMPLES", "BEYOND BOUND", "WORSE", "PASSES", "OUTCOME"]]
    for each in rollout.metrics:
        value, bound = _NONE if each.mean is None else f"{each.mean:.4g}", f"{each.bound:.4g}"
        evidence = [
            _against(each.against),
            _against(each.relative) if each.relative is not None else _NONE,
            _against(each.passing),
        ]
        rows.append([each.name, value, bound, count(each.samples), *evidence, _outcome(each, rollout)])
    return table(rows)


def _against(evidence: EvidenceStatus) -> str:
    """The evidence, its threshold, and how far it is on the way there."""
    share = max(0.0, min(1.0, evidence.value / evidence.threshold)) if evidence.threshold > 0 else 0.0
    full = int(share * _BAR)
    return f"{'#' * full}{'.' * (_BAR - full)} {proof(evidence.value, evidence.threshold)}"
