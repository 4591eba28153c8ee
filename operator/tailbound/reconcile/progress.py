"""The progress of a rollout, read from status.rollout and written there; nothing else converts them. Pure."""

from collections.abc import Callable
from dataclasses import fields, replace
from datetime import datetime
from typing import Final

from tailbound.api.conditions import known_reason
from tailbound.api.findings import EvidenceStatus, FindingStatus, MetricFindingStatus
from tailbound.api.rollout import Refusal, RolloutStatus
from tailbound.judge.analysis import Verdict
from tailbound.judge.metrics import MetricFinding
from tailbound.judge.record import EvidenceState, packed
from tailbound.judge.verdict import Finding
from tailbound.rollout.figures import rounded, short_of
from tailbound.rollout.problem import Problem
from tailbound.rollout.progress import Judgement, RolloutProgress

_SAME: Final = tuple(each.name for each in fields(RolloutProgress) if each.name not in ("refused", "judged"))
"""The fields that status.rollout has under the same names."""


def progress_of(status: RolloutStatus | None) -> RolloutProgress | None:
    """The progress that is stored; None where there has not been a rollout."""
    if status is None:
        return None
    return RolloutProgress(
        **{name: getattr(status, name) for name in _SAME},
        refused=_refused(status.refused),
        judged=Judgement(status.findings, status.metrics, status.evidence),
    )


def status_of(progress: RolloutProgress | None) -> RolloutStatus | None:
    """The status.rollout to store; None where there has not been a rollout."""
    if progress is None:
        return None
    refused, judged = progress.refused, progress.judged
    return RolloutStatus.model_construct(
        **{name: getattr(progress, name) for name in _SAME},
        refused=Refusal(reason=refused.reason, message=refused.message) if refused is not None else None,
        findings=judged.findings,
        metrics=judged.metrics,
        evidence=judged.evidence,
    )


def _refused(stored: Refusal | None) -> Problem | None:
    """What was refused; a reason of another version of the operator is not known, and is found again."""
    reason = known_reason(stored.reason) if stored is not None else None
    return Problem(reason, stored.message) if stored is not None and reason is not None else None


def in_time(stored: RolloutProgress | None, now: datetime, *, overtaken: bool) -> RolloutProgress | None:
    """The progress with times that limits can be counted from.

    None is later than now, as after the clock was set back: no limit lasts longer for that. Where a gateway
    shows that the status is from a backup all are now: no limit is over for what it does not know of.
    """
    if stored is None:
        return None
    bounded = _bounded(now, overtaken=overtaken)
    return replace(
        stored,
        step_started_at=bounded(stored.step_started_at),
        step_asked_at=bounded(stored.step_asked_at),
        progress_at=bounded(stored.progress_at),
        still_since=bounded(stored.still_since),
        no_capacity_since=bounded(stored.no_capacity_since),
        moving_since=bounded(stored.moving_since),
    )


def _bounded(now: datetime, *, overtaken: bool) -> Callable[[datetime | None], datetime | None]:
    def bounded(at: datetime | None) -> datetime | None:
        return at if at is None or (at <= now and not overtaken) else now

    return bounded


def judged_of(progress: RolloutProgress, memory: EvidenceState, verdict: Verdict) -> Judgement:
    """What the evidence says at this poll, with figures that people read; the evidence itself is exact."""
    return Judgement(
        findings=tuple(_finding(each, verdict) for each in verdict.findings),
        metrics=tuple(_metric_finding(each) for each in verdict.metrics),
        evidence=None if progress.is_over or memory == EvidenceState() else packed(memory),
    )


def _finding(finding: Finding, verdict: Verdict) -> FindingStatus:
    objective, limits, numbers = finding.objective, finding.limits, finding.numbers
    counted = verdict.counted(objective.measure)
    return FindingStatus(
        measure=objective.measure,
        outcome=finding.outcome,
        allowed=objective.allowed,
        assumed=not objective.stated,
        unacceptable=objective.unacceptable,
        requests=round(counted.judged, 2),
        bad=round(counted.bad, 2),
        absolute=_evidence(numbers.absolute, limits.absolute),
        late=_evidence(numbers.late, limits.late),
        relative=_evidence(numbers.relative, limits.relative),
        passing=_evidence(numbers.passing, limits.passing),
        improves_breach=finding.improves_breach,
    )


def _metric_finding(finding: MetricFinding) -> MetricFindingStatus:
    numbers, limits = finding.numbers, finding.limits
    beyond = (
        _evidence(numbers.absolute, limits.absolute),
        _evidence(numbers.late, limits.late),
    )
    relative = _evidence(numbers.relative, limits.relative)
    return MetricFindingStatus(
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


def _evidence(value: float, threshold: float) -> EvidenceStatus:
    shown, needed = short_of(value, threshold)
    return EvidenceStatus(value=shown, threshold=needed)
