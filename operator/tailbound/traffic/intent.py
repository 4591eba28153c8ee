"""Reading one InferenceService: the fields that routing depends on, checked, and nothing else.

Deliberately not the whole API model: a gateway must go on routing a service whose other fields a newer
operator understands better than it does, or that were edited by hand.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

from tailbound.api.hosts import HostStatus
from tailbound.api.inference_paths import usable_paths
from tailbound.api.inferenceservice import Host, Overload, ServiceLevel, effective_timeout
from tailbound.api.meta import DNS_LABEL, ObjectMeta
from tailbound.api.parsing import InvalidObject, parse
from tailbound.api.quantities import Duration
from tailbound.api.quantity_fields import duration_between
from tailbound.api.rollout import Strategy, previews
from tailbound.api.schema import Model
from tailbound.api.traffic import Backend, TrafficStatus
from tailbound.objects.fields import Object, child, number
from tailbound.objects.metadata import KubernetesObject
from tailbound.traffic.model import RouteRejection, ServiceKey

_REVISION = re.compile(DNS_LABEL)
_BEGINNING = datetime.fromtimestamp(0, UTC)


class _Spec(Model):
    hosts: tuple[Host, ...] = ()
    timeout: (
        Annotated[Duration, duration_between("1ms", "1h", "the time that the gateway gives one request")]
        | None
    ) = None
    sla: ServiceLevel = ServiceLevel()
    overload: object = None
    rollout: object = None
    stopped: bool = False


class _Status(Model):
    traffic: TrafficStatus | None = None
    canary: object = None
    hosts: tuple[HostStatus, ...] | None = None
    inference_paths: object = None


class _RoutingFields(Model):
    metadata: ObjectMeta
    spec: _Spec = _Spec()
    status: _Status = _Status()


@dataclass(frozen=True)
class RoutingSpec:
    """The routing fields of one InferenceService, valid."""

    service: ServiceKey
    created: datetime
    generation: int
    hosts: tuple[str, ...]
    """spec.hosts."""
    record: tuple[HostStatus, ...] | None
    """status.hosts; None if it is absent."""
    timeout: timedelta
    latency_target: timedelta | None
    error_target: float | None
    """spec.sla.errorRate, from 0 to 1."""
    sheds: bool
    stopped: bool
    traffic: TrafficStatus | None
    previews: bool
    """Its candidates answer to names of their own before they take over."""
    inference_paths: tuple[str, ...]
    """Paths of inference calls, as status.inferencePaths has them."""
    candidate: str | None
    """The revision that is on its way and gets no request yet."""


def key_of(obj: Object) -> ServiceKey:
    """Namespace and name of an InferenceService."""
    view = KubernetesObject(obj)
    return ServiceKey(view.namespace, view.name)


def read_intent(obj: Object) -> RoutingSpec | RouteRejection:
    """The routing fields, or why they cannot be used: the field, its value and the remedy."""
    read = parse(_RoutingFields, obj)
    if isinstance(read, InvalidObject):
        return RouteRejection(
            KubernetesObject(obj).generation,
            max(number(child(obj, "status", "traffic"), "generation") or 0, 0),
            read.message,
        )
    spec, traffic = read.spec, read.status.traffic
    problem = None if traffic is None else _problem_with(traffic.backends)
    if traffic is not None and problem is not None:
        return RouteRejection(
            read.metadata.generation, traffic.generation, f"status.traffic.backends: {problem}"
        )
    latency, error_rate = spec.sla.latency, spec.sla.error_rate
    return RoutingSpec(
        service=key_of(obj),
        created=read.metadata.creation_timestamp or _BEGINNING,
        generation=read.metadata.generation,
        hosts=spec.hosts,
        record=read.status.hosts,
        timeout=effective_timeout(spec.timeout, spec.sla).timedelta,
        latency_target=None if latency is None else latency.p99.timedelta,
        error_target=None if error_rate is None else float(error_rate.fraction),
        sheds=spec.overload == Overload.SHED and latency is not None,
        stopped=spec.stopped,
        traffic=traffic,
        previews=previews(
            _text(spec.rollout, "strategy") or Strategy.BLUE_GREEN, _text(spec.rollout, "promotion")
        ),
        inference_paths=usable_paths(read.status.inference_paths),
        candidate=_candidate(read.status),
    )


def _candidate(status: _Status) -> str | None:
    weighted = {backend.revision for backend in status.traffic.backends} if status.traffic else set()
    name = _text(status.canary, "revision")
    return name if weighted and name not in weighted and _REVISION.fullmatch(name) else None


def _text(raw: object, field: str) -> str:
    """A field of what a preview depends on: whatever is wrong with it, the service is routed."""
    value = raw.get(field) if isinstance(raw, dict) else None
    return value if isinstance(value, str) else ""


def _problem_with(backends: Sequence[Backend]) -> str | None:
    """What a hand-written list of backends may get wrong although its types are right."""
    for backend in backends:
        if _REVISION.fullmatch(backend.revision) is None:
            return (
                f"'{backend.revision}' cannot name a revision: "
                "write the name of a ControllerRevision of this service"
            )
    total = sum(backend.weight for backend in backends)
    if backends and total != 100:
        return f"the weights add up to {total}: make them add up to 100"
    return None
