"""Why a service has as many pods as it has, in words. Pure."""

from collections.abc import Iterator
from typing import Final

from tailbound.api.conditions import ConditionStatus, ConditionType
from tailbound.api.inferenceservice import InferenceService
from tailbound.api.scaling import RevisionScaling, Scaling, ScalingMode
from tailbound.objects.kubectl import Commands

# When each is worth a line: the other way round it is what everybody expects.
_TOLD: Final = (
    (ConditionType.SLA_MET, ConditionStatus.FALSE),
    (ConditionType.SCALING_LIMITED, ConditionStatus.TRUE),
    (ConditionType.METRICS_STALE, ConditionStatus.TRUE),
)


def scaling_lines(service: InferenceService) -> Iterator[str]:
    """One line on each revision's pods, and one on each condition that is not as it should be."""
    scaling, status = service.spec.scaling, service.status
    if service.spec.stopped:
        yield "pods: none, because spec.stopped is true."
        return
    if not scaling.automatic:
        yield f"pods: {scaling.asked}, as {_asks(scaling)} asks for."
    elif status.scaling is None or not status.scaling.revisions:
        yield "pods: there is no decision yet; their number does not change."
    else:
        yield from (_revision(each) for each in status.scaling.revisions)
    commands = Commands(service.metadata.namespace, service.metadata.name)
    floor = _floor(scaling, commands)
    if floor is not None:
        yield f"  {floor}."
    for kind, wanted in _TOLD:
        found = status.condition(kind)
        if found is not None and found.status == wanted:
            yield f"  {kind} is {found.status} ({found.reason}): {found.message}."


def _asks(scaling: Scaling) -> str:
    if scaling.mode is ScalingMode.EXTERNAL:
        return "the scale subresource"
    return "spec.scaling.replicas" if scaling.replicas > scaling.min else "the spec"


def _floor(scaling: Scaling, commands: Commands) -> str | None:
    """What spec.scaling.replicas does beside min, where that is easily overlooked.

    | mode | spec.scaling.replicas | what is said |
    |---|---|---|
    | external | any | nothing: it is the number of pods, and a condition says where bounds cut it |
    | auto | above min | that it is a floor, who may have left it, and how to remove it |
    | auto | above 1, below min | that min counts |
    | auto | otherwise | nothing |
    """
    asked, least = scaling.replicas, scaling.min
    if scaling.mode is ScalingMode.EXTERNAL or asked in (1, least):
        return None
    if asked < least:
        return (
            f"spec.scaling.replicas is {asked}, but spec.scaling.min is {least}: lower min to get fewer pods"
        )
    command = commands.kubectl("scale infs", commands.service, "--replicas=1")
    return (
        f"never fewer than {scaling.asked}: spec.scaling.replicas is {asked}, as kubectl scale or a "
        f"HorizontalPodAutoscaler, which may be gone, has left it; {command} leaves it to "
        f"spec.scaling.min, which is {least}"
    )


def _revision(sized: RevisionScaling) -> str:
    limited = f", limited by {sized.limited_by}" if sized.limited_by else ""
    arriving = f"requests a second, for {sized.share}% of the requests"
    ahead = "a second by the time that a further pod is ready"
    arithmetic = (f"  {sized.arithmetic}.",) if sized.arithmetic else ()
    lines = (
        f"pods of {sized.revision}: {sized.replicas} ({sized.rule}{limited}). {sized.message}",
        *arithmetic,
        f"  arrivals: {_figure(sized.arrivals_per_second, arriving)}.",
        f"  forecast: {_figure(sized.forecast_per_second, ahead)}.",
        f"  capacity: {_figure(sized.capacity_per_second, 'a second for each pod')}.",
        f"  needed for the P99 target: {_figure(sized.needed, 'pods')}.",
    )
    return "\n".join(lines)


def _figure(value: float | None, unit: str) -> str:
    return "unknown" if value is None else f"{value:g} {unit}"
