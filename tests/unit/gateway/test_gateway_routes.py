"""Clusters and routes of one service."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from tailbound.api.inference_paths import DEFAULT_INFERENCE_PATHS
from tailbound.gateway.resources import ResourceType
from tailbound.gateway.routes import bundle_of
from tailbound.gateway.script import LUA_FILTER
from tailbound.traffic.model import Endpoint, NoBackend, Preview, Route, RouteBackend, ServiceKey

from tests.unit.gateway.delta_routes import route

HTTP = (Endpoint("10.0.0.1", 8080),)
GRPC = (Endpoint("10.0.0.1", 9000),)


def with_backends(*backends: RouteBackend, **changes: Any) -> Route:
    return replace(route("churn"), backends=backends, **changes)


def backend(revision: str, share: int, *, http: Any = HTTP, grpc: Any = None) -> RouteBackend:
    return RouteBackend(revision, share, share, http, grpc)


def routes_of(made: Route, name: str = "risk/churn") -> list[tuple[bool, Any]]:
    """The routes of a configuration: whether one is for gRPC; its clusters with weights, or its status."""
    (body,) = [item.body.value for item in bundle_of(made).resources if item.id == (ResourceType.ROUTE, name)]
    (host,) = RouteConfiguration.FromString(body).virtual_hosts
    return [
        (
            found.match.HasField("grpc"),
            found.direct_response.status
            or {each.name: each.weight.value for each in found.route.weighted_clusters.clusters},
        )
        for found in host.routes
    ]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        pytest.param(
            with_backends(unavailable=NoBackend.STOPPED), [(False, 503)], id="no backends: 503 for all"
        ),
        pytest.param(
            with_backends(backend("r1", 95, grpc=GRPC), backend("r2", 5, grpc=GRPC)),
            [
                (True, {"risk/churn/r1/grpc": 95, "risk/churn/r2/grpc": 5}),
                (False, {"risk/churn/r1/http": 95, "risk/churn/r2/http": 5}),
            ],
            id="both protocols",
        ),
        pytest.param(
            with_backends(backend("r1", 95, grpc=GRPC), backend("r2", 5)),
            [
                (True, {"risk/churn/r1/grpc": 95}),
                (False, {"risk/churn/r1/http": 95, "risk/churn/r2/http": 5}),
            ],
            id="one revision without gRPC",
        ),
        pytest.param(
            with_backends(backend("r1", 100)),
            [(True, 404), (False, {"risk/churn/r1/http": 100})],
            id="no gRPC: unimplemented",
        ),
        pytest.param(
            with_backends(backend("r1", 100, http=())),
            [(False, {"risk/churn/r1/http": 100})],
            id="no pods known: the empty cluster answers 503 to both",
        ),
        pytest.param(
            with_backends(backend("r1", 100, grpc=GRPC), backend("r2", 0, grpc=GRPC)),
            [(True, {"risk/churn/r1/grpc": 100}), (False, {"risk/churn/r1/http": 100})],
            id="a revision kept warm gets nothing",
        ),
    ],
)
def test_routes(made: Route, expected: list[tuple[bool, Any]]) -> None:
    assert routes_of(made) == expected


@pytest.mark.parametrize(
    ("preview", "expected"),
    [
        pytest.param(
            Preview(("churn-preview.risk",), backend("r2", 100, grpc=GRPC)),
            [(True, {"risk/churn/r2/grpc": 100}), (False, {"risk/churn/r2/http": 100})],
            id="candidate",
        ),
        pytest.param(Preview(("churn-preview.risk",), None), [(False, 421)], id="no-candidate"),
        pytest.param(
            Preview(("churn-preview.risk",), None, refused=True), [(False, 503)], id="refused-candidate"
        ),
    ],
)
def test_routes_of_a_preview(preview: Preview, expected: list[tuple[bool, Any]]) -> None:
    made = with_backends(backend("r1", 100), preview=preview)
    assert routes_of(made, "risk/churn/preview") == expected
    assert routes_of(made) == routes_of(replace(made, preview=None))


@pytest.mark.parametrize("length", [1, 30, 63])
def test_no_name_is_part_of_a_pattern(length: int) -> None:
    """Envoy bounds the size of a regular expression, and the two names together may have 126 characters."""
    service = ServiceKey("n" * length, "s" * length)
    hosts = (f"{service.name}.{service.namespace}", f"{service.name}-preview.{service.namespace}")
    made = with_backends(
        backend("r1", 100), service=service, hosts=hosts, preview=Preview(hosts[1:], backend("r2", 100))
    )
    routes = [item.body.value for item in bundle_of(made).resources if item.type is ResourceType.ROUTE]
    assert len(routes) == 2
    for body in routes:
        (host,) = RouteConfiguration.FromString(body).virtual_hosts
        assert list(host.domains) == ["*"]
        assert not any(each.match.headers for each in host.routes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        pytest.param({"sheds": True}, {False: "250", True: None}, id="shed-but-not-over-grpc"),
        pytest.param({}, {False: None, True: None}, id="queue"),
    ],
)
def test_pods_are_told_which_answers_are_late_where_these_are_not_wanted(
    changes: Any, told: dict[bool, str | None]
) -> None:
    """The header depends on whether a route is for gRPC. What a client says of it never counts."""
    made = with_backends(backend("r1", 100, grpc=GRPC), latency_target=timedelta(milliseconds=250), **changes)
    (body,) = [
        item.body.value for item in bundle_of(made).resources if item.id == (ResourceType.ROUTE, "risk/churn")
    ]
    (host,) = RouteConfiguration.FromString(body).virtual_hosts
    for found in host.routes:
        added = {each.header.key: each.header.value for each in found.request_headers_to_add}
        assert added.get("x-tailbound-latency-bound-ms") == told[found.match.HasField("grpc")]
        assert list(found.request_headers_to_remove) == ["x-tailbound-latency-bound-ms"]


def test_clusters_of_every_revision_and_port() -> None:
    bundle = bundle_of(with_backends(backend("r1", 100, grpc=GRPC), backend("r2", 0)))
    clusters = [item for item in bundle.resources if item.type is ResourceType.CLUSTER]
    assert [item.name for item in clusters] == [
        "risk/churn/r1/http",
        "risk/churn/r1/grpc",
        "risk/churn/r2/http",
    ]
    for item in clusters:
        cluster = Cluster.FromString(item.body.value)
        assert not cluster.HasField("outlier_detection")
        assert cluster.type == Cluster.EDS


def test_endpoints_change_nothing_but_the_assignment() -> None:
    before = bundle_of(with_backends(backend("r1", 100)))
    after = bundle_of(with_backends(backend("r1", 100, http=(*HTTP, Endpoint("10.0.0.2", 8080)))))
    changed = [item for item in after.resources if before.by_id[item.id].version != item.version]
    assert [item.type for item in changed] == [ResourceType.ENDPOINTS]
    assignment = ClusterLoadAssignment.FromString(changed[0].body.value)
    assert len(assignment.endpoints[0].lb_endpoints) == 2


@pytest.mark.parametrize(
    ("paths", "patterns"),
    [
        (DEFAULT_INFERENCE_PATHS, None),
        (
            ("/v1/a-b/*:run", "/x/**", "/y/{model}", "/v2/models/*/infer"),
            ["^/v1/a%-b/[^/]+%:run$", "^/x/.*$", "^/y/([^/]+)$", "^/v2/models/([^/]+)/infer$"],
        ),
    ],
    ids=["known-to-the-script", "others"],
)
def test_the_script_is_told_which_requests_are_inference_calls(
    paths: tuple[str, ...], patterns: list[str] | None
) -> None:
    made = bundle_of(with_backends(backend("r1", 100), inference_paths=paths))
    (body,) = [item.body.value for item in made.resources if item.id == (ResourceType.ROUTE, "risk/churn")]
    for found in RouteConfiguration.FromString(body).virtual_hosts[0].routes:
        told = found.metadata.filter_metadata[LUA_FILTER]
        assert (told["service"], told["model"]) == ("risk/churn", "churn")
        assert ([each.string_value for each in told["paths"].values] if "paths" in told else None) == patterns


def test_one_scope_per_host() -> None:
    bundle = bundle_of(route("churn", hosts=("a.example.com",)))
    scopes = [item.name for item in bundle.resources if item.type is ResourceType.SCOPE]
    assert scopes == ["churn.risk", "a.example.com"]


def test_versions_follow_content_only() -> None:
    first, second = bundle_of(route("churn")), bundle_of(route("churn", generation=9, traffic_generation=9))
    assert [item.version for item in first.resources] == [item.version for item in second.resources]
