"""What the gateways do with `status.traffic`, in one word and one sentence.

| gateways that are Ready | word |
|---|---|
| none | NoGateway |
| one refused the newest state | RouteRejected |
| one unread, or behind | WaitingForGateway |
| all applied it, one denies a host | HostConflict |
| all applied it | Acknowledged |
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tailbound.api.conditions import ConditionStatus, ConditionType, Reason
from tailbound.api.inferenceservice import InferenceService, RoutingStatus
from tailbound.api.rollout import previews
from tailbound.api.traffic import Observed, ServiceObservation, TrafficStatus
from tailbound.reconcile.model import Unread
from tailbound.reconcile.owned_state import OwnedState
from tailbound.revisions.identity import canonical_json, text_hash


@dataclass(frozen=True)
class Wanted:
    """The state that every gateway is to apply."""

    service: str
    """NAMESPACE/NAME."""
    generation: int
    """The generation of the spec; a later one will do."""
    traffic_generation: int


@dataclass(frozen=True)
class Applied:
    """The word, the sentence, and whether it is safe to take away what had weight before."""

    reason: Reason
    message: str
    acknowledged: bool
    """Every Ready gateway applied this traffic generation, and there is at least one."""


def applied(gateways: Mapping[str, Observed | Unread], wanted: Wanted, *, kept: bool = False) -> Applied:
    """Judge what every gateway reports. One that could not be read counts as behind.

    `kept`: every gateway was seen to have applied it before, which stands for those that say nothing now.
    """
    if not gateways:
        return Applied(
            Reason.NO_GATEWAY,
            "no gateway pod is Ready, so that nothing is routed; look at the pods labelled "
            "app.kubernetes.io/component=gateway in Tailbound's own namespace",
            acknowledged=False,
        )
    telling = {pod: each for pod, each in gateways.items() if not kept or _speaks(each, wanted)}
    acknowledged = all(_routed(observed, wanted) for observed in telling.values())
    findings = sorted(_findings(telling, wanted), key=lambda finding: _ORDER.index(finding[0]))
    if findings:
        reason, message = findings[0]
        return Applied(reason, message, acknowledged)
    return Applied(Reason.ACKNOWLEDGED, "every gateway pod has applied the routes", acknowledged)


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
    wanted = Wanted(owned.key, routing.generation, traffic.generation)
    return applied(owned.observation.gateways, wanted, kept=kept)


def latest(gateways: Mapping[str, Observed | Unread], service: str) -> int:
    """The highest generation of status.traffic that a gateway has applied; 0 if none has one."""
    reports = (each.services.get(service) for each in gateways.values() if isinstance(each, Observed))
    states = (report.applied for report in reports if report is not None)
    return max((state.traffic_generation for state in states if state is not None), default=0)


def _speaks(observed: Observed | Unread, wanted: Wanted) -> bool:
    """It could be read, and knows of the service."""
    state = _of(observed, wanted)
    return state.applied is not None or state.rejected is not None


_ORDER = (Reason.ROUTE_REJECTED, Reason.WAITING_FOR_GATEWAY, Reason.HOST_CONFLICT)


def _of(observed: Observed | Unread, wanted: Wanted) -> ServiceObservation:
    nothing = ServiceObservation()
    return nothing if isinstance(observed, Unread) else observed.services.get(wanted.service, nothing)


def _routed(observed: Observed | Unread, wanted: Wanted) -> bool:
    state = _of(observed, wanted).applied
    return state is not None and state.traffic_generation == wanted.traffic_generation


def _findings(gateways: Mapping[str, Observed | Unread], wanted: Wanted) -> Iterator[tuple[Reason, str]]:
    """In order of the pods' names, so that the first of a kind is the same each time."""
    for pod, observed in sorted(gateways.items()):
        if isinstance(observed, Unread):
            yield Reason.WAITING_FOR_GATEWAY, f"gateway pod {pod} could not be read: {observed.why}"
            continue
        state = _of(observed, wanted)
        rejected = state.rejected
        if rejected is not None and _is(rejected.generation, rejected.traffic_generation, wanted):
            yield Reason.ROUTE_REJECTED, f"gateway pod {pod} refused the route: {rejected.message}"
        elif state.applied is None or not _is(
            state.applied.generation, state.applied.traffic_generation, wanted
        ):
            yield Reason.WAITING_FOR_GATEWAY, f"gateway pod {pod} has not applied the newest routes yet"
        elif state.denied_hosts:
            hosts = ", ".join(sorted(state.denied_hosts))
            yield (
                Reason.HOST_CONFLICT,
                f"spec.hosts: {hosts} belongs to another service; remove it here or there",
            )


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
