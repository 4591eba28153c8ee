"""What the gateways do with `status.traffic`, in one word and one sentence.

| gateways that are Ready | word |
|---|---|
| none | NoGateway |
| one refused the newest state | RouteRejected |
| one unread, or behind, also with the decisions on hosts | WaitingForGateway |
| all applied it, another service has one of spec.hosts | HostConflict |
| all applied it, one of spec.hosts is not granted | HostNotGranted |
| all applied it | Acknowledged |
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tailbound.api.conditions import ConditionStatus, ConditionType, Reason
from tailbound.api.hosts import HostState, HostStatus
from tailbound.api.inferenceservice import InferenceService, RoutingStatus
from tailbound.api.rollout import previews
from tailbound.api.traffic import Observed, ServiceObservation, TrafficStatus
from tailbound.objects.unknown import Unknown
from tailbound.reconcile.owned_state import OwnedState
from tailbound.revisions.identity import canonical_json, text_hash

_NOTHING: Final = ServiceObservation()


@dataclass(frozen=True)
class Wanted:
    """The state that every gateway is to apply."""

    service: str
    """NAMESPACE/NAME."""
    generation: int
    """The generation of the spec; a later one will do."""
    traffic_generation: int
    hosts: tuple[HostStatus, ...] = ()
    has_ready_pod: bool = False
    """A revision that gets requests has a ready endpoint."""

    @property
    def denied(self) -> tuple[HostStatus, ...]:
        """The entries of spec.hosts that the service is not to answer to."""
        return tuple(each for each in self.hosts if each.state is not HostState.ACCEPTED)


@dataclass(frozen=True)
class Applied:
    """The word, the sentence, and whether it is safe to take away what had weight before."""

    reason: Reason
    message: str
    acknowledged: bool
    """Every Ready gateway applied this traffic generation, and there is at least one."""
    behind: str = ""
    """A gateway pod that does not know yet that a pod of the service is ready, or that none is; or empty."""

    @property
    def is_settled(self) -> bool:
        """No gateway is to apply anything more."""
        return self.reason is Reason.ACKNOWLEDGED and not self.behind


def applied(gateways: Mapping[str, Observed | Unknown], wanted: Wanted, *, kept: bool = False) -> Applied:
    """Judge what every gateway reports. One that could not be read counts as behind.

    `kept`: every gateway was seen to have applied it before, which stands for those that say nothing now.
    """
    if not gateways:
        return Applied(
            Reason.NO_GATEWAY,
            "no gateway pod is Ready, so that no request reaches the service; check the pods with the "
            "label app.kubernetes.io/component=gateway in the namespace of Tailbound",
            acknowledged=False,
        )
    telling = {pod: each for pod, each in gateways.items() if not kept or _speaks(each, wanted)}
    acknowledged = all(_routed(observed, wanted) for observed in telling.values())
    behind = next((pod for pod, each in sorted(telling.items()) if _is_behind(each, wanted)), "")
    findings = sorted(_findings(telling, wanted), key=lambda finding: _ORDER.index(finding[0]))
    if findings:
        reason, message = findings[0]
        return Applied(reason, message, acknowledged, behind)
    if wanted.denied:
        return Applied(*_denial(wanted), acknowledged, behind)
    return Applied(Reason.ACKNOWLEDGED, "every gateway pod has applied the routes", acknowledged, behind)


def acknowledgement(
    owned: OwnedState, routing: RoutingStatus, traffic: TrafficStatus | None
) -> Applied | None:
    """What the gateways do with this traffic; None while there is none.

    That all acknowledged it is kept in the status. Of a service with one revision it speaks for those that
    are silent: later ones get Ready only with the newest routes, and an idle service must not write because
    one is replaced. What a gateway says itself goes before: the status may be a backup's.
    """
    if traffic is None:
        return None
    stored = owned.service.status.condition(ConditionType.TRAFFIC_APPLIED)
    kept = (
        len(owned.deployments) < 2
        and traffic == owned.traffic
        and stored is not None
        and stored.status is ConditionStatus.TRUE
        and stored.observed_generation >= routing.generation
    )
    ready = any(each.weight and owned.ready_endpoints.get(each.revision) for each in traffic.backends)
    wanted = Wanted(owned.key, routing.generation, traffic.generation, owned.observation.hosts, ready)
    return applied(owned.observation.gateways, wanted, kept=kept)


def latest(gateways: Mapping[str, Observed | Unknown], service: str) -> int:
    """The highest generation of status.traffic that a gateway has applied; 0 if none has one."""
    reports = (each.services.get(service) for each in gateways.values() if isinstance(each, Observed))
    states = (report.applied for report in reports if report is not None)
    return max((state.traffic_generation for state in states if state is not None), default=0)


def _speaks(observed: Observed | Unknown, wanted: Wanted) -> bool:
    """Whether the gateway could be read, and knows the service."""
    state = _of(observed, wanted)
    return state.applied is not None or state.rejected is not None


_ORDER = (Reason.ROUTE_REJECTED, Reason.WAITING_FOR_GATEWAY)


def _denial(wanted: Wanted) -> tuple[Reason, str]:
    """The hosts that the service is not to answer to, who has them, and what to do."""
    namespace, _, _ = wanted.service.partition("/")
    granted = any(each.state is not HostState.NOT_GRANTED for each in wanted.denied)
    message = "; ".join(_why_denied(each, namespace) for each in wanted.denied)
    return Reason.HOST_CONFLICT if granted else Reason.HOST_NOT_GRANTED, f"spec.hosts: {message}"


def _why_denied(entry: HostStatus, namespace: str) -> str:
    match entry.state:
        case HostState.NOT_GRANTED:
            return (
                f"no HostGrant gives {entry.host} to namespace {namespace}: ask a cluster administrator for "
                "one, or remove the host"
            )
        case HostState.RESERVED:
            return f"{entry.host} is a name of {entry.owner or 'a Service'} inside the cluster: remove it"
        case _:
            return (
                f"{entry.host} belongs to InferenceService {entry.owner}: remove it here; to claim a host "
                "that is free again, remove it and then add it, because none is inherited"
            )


def _of(observed: Observed | Unknown, wanted: Wanted) -> ServiceObservation:
    return _NOTHING if isinstance(observed, Unknown) else observed.services.get(wanted.service, _NOTHING)


def _routed(observed: Observed | Unknown, wanted: Wanted) -> bool:
    state = _of(observed, wanted).applied
    return state is not None and state.traffic_generation == wanted.traffic_generation


def _is_behind(observed: Observed | Unknown, wanted: Wanted) -> bool:
    state = _of(observed, wanted).applied
    return state is not None and state.has_ready_pod is not wanted.has_ready_pod


def _findings(gateways: Mapping[str, Observed | Unknown], wanted: Wanted) -> Iterator[tuple[Reason, str]]:
    """The findings in the order of the pod names, so that the first of a kind is always the same."""
    for pod, observed in sorted(gateways.items()):
        if isinstance(observed, Unknown):
            yield Reason.WAITING_FOR_GATEWAY, f"gateway pod {pod} could not be read: {observed.reason}"
            continue
        state = _of(observed, wanted)
        rejected = state.rejected
        if rejected is not None and _is(rejected.generation, rejected.traffic_generation, wanted):
            yield Reason.ROUTE_REJECTED, f"gateway pod {pod} refused the route: {rejected.message}"
        elif state.applied is None or not _is(
            state.applied.generation, state.applied.traffic_generation, wanted
        ):
            yield Reason.WAITING_FOR_GATEWAY, f"gateway pod {pod} has not applied the newest routes yet"
        elif {*state.applied.denied_hosts} != {each.host for each in wanted.denied}:
            yield Reason.WAITING_FOR_GATEWAY, f"gateway pod {pod} has not applied the newest hosts yet"


def _is(generation: int, traffic_generation: int, wanted: Wanted) -> bool:
    return generation >= wanted.generation and traffic_generation == wanted.traffic_generation


def routing(service: InferenceService) -> RoutingStatus:
    """What gateways follow of the spec, and since which generation: no edit of anything else is awaited."""
    spec = service.spec
    followed = {
        "hosts": sorted(str(host) for host in spec.hosts),
        "timeout": spec.effective_timeout().milliseconds,
        "latency": None if spec.sla.latency is None else spec.sla.latency.p99.milliseconds,
        "overload": str(spec.overload),
        "preview": previews(spec.rollout.strategy, spec.rollout.promotion),
        "stopped": spec.stopped,
    }
    digest, known = text_hash(canonical_json(followed)), service.status.routing
    if known is not None and known.digest == digest:
        return known
    return RoutingStatus(digest=digest, generation=service.metadata.generation)
