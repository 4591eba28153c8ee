"""Why a service has as many pods as it has, in words. Pure."""

from collections.abc import Iterator
from typing import Final

from tailbound.api.conditions import ConditionStatus, ConditionType
from tailbound.api.inferenceservice import InferenceService
from tailbound.api.scaling import RevisionScaling, ScalingMode

# When each is worth a line: the other way round it is what everybody expects.
_TOLD: Final = (
    (ConditionType.SLA_MET, ConditionStatus.FALSE),
    (ConditionType.SCALING_LIMITED, ConditionStatus.TRUE),
    (ConditionType.METRICS_STALE, ConditionStatus.TRUE),
)


def scaling_lines(service: InferenceService) -> Iterator[str]:
    """One line on each revision's pods, and one on each condition that is not as it should be."""
    scaling, status = service.spec.scaling, service.status
    if not scaling.automatic:
        by = "the scale subresource" if scaling.mode is ScalingMode.EXTERNAL else "the spec"
        yield f"pods: {scaling.asked}, as {by} asks for."
        return
    if status.scaling is None or not status.scaling.revisions:
        yield "pods: nothing was decided yet; they stay as many as they are."
    else:
        yield from (_revision(each) for each in status.scaling.revisions)
    for kind, wanted in _TOLD:
        found = status.condition(kind)
        if found is not None and found.status == wanted:
            yield f"  {kind} is {found.status} ({found.reason}): {found.message}."


def _revision(told: RevisionScaling) -> str:
    limited = f", limited by {told.limited_by}" if told.limited_by else ""
    arriving = f"requests a second, for {told.share}% of the requests"
    ahead = "a second by the time that a further pod is ready"
    lines = (
        f"pods of {told.revision}: {told.replicas} ({told.rule}{limited}). {told.message}",
        f"  arrivals: {_figure(told.arrivals_per_second, arriving)}.",
        f"  forecast: {_figure(told.forecast_per_second, ahead)}.",
        f"  capacity: {_figure(told.capacity_per_second, 'a second for each pod')}.",
        f"  needed for the P99 target: {_figure(told.needed, 'pods')}.",
    )
    return "\n".join(lines)


def _figure(value: float | None, unit: str) -> str:
    return "unknown" if value is None else f"{value:g} {unit}"
