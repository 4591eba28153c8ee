"""Routes that Envoy takes or refuses, and what became of them there."""

from datetime import UTC, datetime, timedelta

from envoy.config.route.v3.scoped_route_pb2 import ScopedRouteConfiguration
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryResponse
from tailbound.api.traffic import AppliedRoute
from tailbound.gateway.resources import ResourceType
from tailbound.traffic.model import Endpoint, Preview, Route, RouteBackend, ServiceKey

from tests.unit.gateway.fake_envoy import ENDPOINTS, ROUTE, SCOPE, FakeEnvoy

POISON = 9999  # a port that Envoy refuses, in these tests
POISON_SECONDS = 13  # a timeout that Envoy refuses


def route(
    name: str,
    weights: dict[str, int] | None = None,
    *,
    hosts: tuple[str, ...] = (),
    generation: int = 1,
    traffic_generation: int = 1,
    port: int = 8080,
    seconds: int = 2,
    candidate: str | None = "",
) -> Route:
    """A route without a preview, unless a candidate is named or the lack of one."""
    preview = None
    if candidate != "":
        backend = (
            RouteBackend(candidate, 100, 100, (Endpoint("10.0.0.2", port),), None) if candidate else None
        )
        preview = Preview((f"{name}-preview.risk",), backend)
    return Route(
        service=ServiceKey("risk", name),
        created=datetime(2026, 1, 1, tzinfo=UTC),
        generation=generation,
        traffic_generation=traffic_generation,
        hosts=(f"{name}.risk", *hosts, *(preview.hosts if preview is not None else ())),
        denied_hosts=(),
        backends=tuple(
            RouteBackend(revision, weight, weight, (Endpoint("10.0.0.1", port),), None)
            for revision, weight in (weights or {f"{name}-r1": 100}).items()
        ),
        unavailable=None,
        timeout=timedelta(seconds=seconds),
        latency_target=None,
        preview=preview,
    )


def refuses_poison(type_: ResourceType, name: str, body: bytes) -> bool:
    if type_ is ENDPOINTS:
        return b"\x18\x8f\x4e" in body  # port_value 9999
    if type_ is ROUTE and name.endswith("/preview") and b"r9" in body:
        return True
    return type_ is ROUTE and b"13s" in body


def applied(envoy: FakeEnvoy, name: str) -> tuple[int, int] | None:
    found: AppliedRoute | None = envoy.session.applied.get(ServiceKey("risk", name))
    return None if found is None else (found.generation, found.traffic_generation)


def watch_preview(envoy: FakeEnvoy) -> set[str]:
    """The names of the routes of churn's preview that Envoy has had so far."""
    seen: set[str] = set()
    take = envoy.take

    def spy(response: DeltaDiscoveryResponse) -> None:
        take(response)
        if "churn-preview.risk" in envoy.names(SCOPE):
            scope = ScopedRouteConfiguration.FromString(envoy.has[SCOPE]["churn-preview.risk"][1])
            seen.add(scope.route_configuration_name)

    envoy.take = spy  # type: ignore[method-assign]
    return seen


def expect_equal(envoy: FakeEnvoy) -> None:
    """Envoy has what the configuration says, and has never been in a bad state on the way."""
    wanted = {
        (type_, name): resource.version
        for type_ in ResourceType
        for name in envoy.configuration.names(type_)
        if (resource := envoy.configuration.get(type_, name)) is not None
    }
    assert envoy.versions() == wanted
    assert envoy.violations == []
