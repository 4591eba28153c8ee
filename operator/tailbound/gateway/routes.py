"""Envoy routes: per service one RouteConfiguration, another one for its preview, and a scope for every host.

Truth table of one service's routes, first match wins:

| backends | pods with a gRPC port | pods known | a gRPC request gets   | any other request gets |
|----------|-----------------------|------------|-----------------------|------------------------|
| none     |                       |            | 503, saying why       | 503, saying why        |
| some     | some                  |            | the grpc clusters     | the http clusters      |
| some     | none                  | yes        | 404 (Unimplemented)   | the http clusters      |
| some     | none                  | no         | the http clusters, which are empty: 503        |

Scopes alone tell the names of a preview from those of its service, at any length of a name. What its
RouteConfiguration leads to is the candidate, in the same way; 421 while none is under way; 503 while the
candidate's configuration is refused.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

from envoy.config.core.v3.base_pb2 import DataSource, HeaderValue, HeaderValueOption, Metadata
from envoy.config.route.v3.route_components_pb2 import (
    DirectResponseAction,
    RetryPolicy,
    RouteAction,
    RouteMatch,
    VirtualHost,
    WeightedCluster,
)
from envoy.config.route.v3.route_components_pb2 import (
    Route as EnvoyRoute,
)
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.config.route.v3.scoped_route_pb2 import ScopedRouteConfiguration
from envoy.extensions.filters.http.buffer.v3.buffer_pb2 import BufferPerRoute
from envoy.extensions.retry.host.previous_hosts.v3.previous_hosts_pb2 import PreviousHostsPredicate
from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import ListValue, Struct, Value
from google.protobuf.wrappers_pb2 import UInt32Value

from tailbound.api.inference_paths import DEFAULT_INFERENCE_PATHS
from tailbound.api.runtime_contract import GRPC_PORT_NAME, HTTP_PORT_NAME, LATENCY_BOUND_HEADER
from tailbound.gateway.clusters import METADATA_NAMESPACE, cluster_name, cluster_resources
from tailbound.gateway.counting import (
    DEADLINE_FIELD,
    LATENCY_FIELD,
    MOST_PATIENCE,
    NAMESPACE_FIELD,
    PATIENCE_FIELD,
    SERVICE_FIELD,
    SHEDS_FIELD,
)
from tailbound.gateway.listener import BUFFER_FILTER
from tailbound.gateway.local_replies import RETRY_AFTER_SECONDS
from tailbound.gateway.resources import Bundle, EnvoyResource, ResourceType, packed, resource
from tailbound.gateway.script import (
    HOST_HEADER,
    LUA_FILTER,
    MODEL_FIELD,
    OWNER_FIELD,
    PATHS_FIELD,
    STREAM_HEADER,
    lua_patterns,
)
from tailbound.traffic.model import NoBackend, Preview, Route, RouteBackend, ServiceKey

CONNECT_RETRIES = 3
# A stream on which nothing moves is cut this long after the request's own timeout, which has an answer.
IDLE_GRACE = timedelta(seconds=10)

_WHY = {
    NoBackend.STOPPED: "InferenceService {service} is stopped: set spec.stopped to false to start it",
    NoBackend.NOT_STARTED: "InferenceService {service} has no serving pod yet: see its conditions",
    NoBackend.REJECTED: "The configuration of InferenceService {service} is refused: see its conditions",
}
_NO_CANDIDATE = (
    "InferenceService {service} has no new revision now: this host answers while one waits for its promotion"
)
_NO_PREVIEW = (
    "The newest configuration of InferenceService {service} is refused, so that its new revision cannot be "
    "reached: see its conditions"
)
_NO_GRPC = "InferenceService {service} offers no gRPC: its runtime has no port named grpc"


def bundle_of(route: Route) -> Bundle:
    """Every resource that Envoy needs for one service."""
    return Bundle(route, (*cluster_resources(route), *scope_resources(route), *_route_resources(route)))


def fallbacks(newest: Route, good: Route | None) -> Iterator[Route]:
    """What to serve, best first, where Envoy refuses the newest state. `good` is what it took last.

    | requests to the service | requests to its preview |
    |---|---|
    | the newest state, if it has a preview | as `_previews` says without an earlier one |
    | the last good state, with its pods as they are now | as `_previews` says |
    | the last good state, with its pods as they were then | as `_previews` says |
    | 503, saying why | as `_previews` says |
    """
    if newest.preview is not None:
        yield from _offered(newest, newest, None)
    if good is not None:
        yield from _offered(_with_present_pods(good, newest), newest, good.preview)
        yield from _offered(good, newest, good.preview)
    yield from _offered(_stand_in(newest), newest, None)


def _offered(state: Route, newest: Route, had: Preview | None) -> Iterator[Route]:
    """The route `state` with the hosts of the newest one, once for each preview that may be, and for none."""
    previewed = newest.preview.hosts if newest.preview is not None else ()
    for preview in _previews(had, newest.preview):
        hosts = tuple(host for host in newest.hosts if preview is not None or host not in previewed)
        yield replace(state, hosts=hosts, denied_hosts=newest.denied_hosts, preview=preview)


def _previews(had: Preview | None, wanted: Preview | None) -> list[Preview | None]:
    """The previews to try in turn beside a state that had one of its own. None is of another revision:

    | the newest preview | that of the state | previews |
    |---|---|---|
    | none | any | no name leads there |
    | of a candidate | of the same one, same names | as it was; 503, saying why; no name leads there |
    | of a candidate | anything else | 503, saying why; no name leads there |
    | without a candidate | any | 421, saying so; no name leads there |
    """
    if wanted is None:
        return [None]
    same = had is not None and had.hosts == wanted.hosts and _candidate(had) == _candidate(wanted) is not None
    absent = Preview(wanted.hosts, None, refused=wanted.backend is not None)
    return [*([had] if same else []), absent, None]


def _candidate(preview: Preview) -> str | None:
    return preview.backend.revision if preview.backend is not None else None


def _with_present_pods(former: Route, newest: Route) -> Route:
    """An earlier state, with those pods of its revisions that the newest one knows."""
    preview = newest.preview.backend if newest.preview is not None else None
    known = {each.revision: each for each in (*newest.backends, *([preview] if preview is not None else []))}
    backends = tuple(
        replace(each, http=known[each.revision].http, grpc=known[each.revision].grpc)
        if each.revision in known
        else each
        for each in former.backends
    )
    return replace(former, backends=backends)


def _stand_in(newest: Route) -> Route:
    """The route that answers that the configuration of the service is refused."""
    return replace(
        newest,
        backends=(),
        unavailable=NoBackend.REJECTED,
        timeout=timedelta(seconds=1),
        latency_target=None,
    )


def scope_resources(route: Route) -> list[EnvoyResource]:
    """One scope per host, named after it: when a host changes hands, it never has two owners at once."""
    own, preview = route_names(route.service)
    previewed = route.preview.hosts if route.preview is not None else ()
    return [
        resource(
            ResourceType.SCOPE,
            host,
            ScopedRouteConfiguration(
                name=host,
                route_configuration_name=preview if host in previewed else own,
                key=ScopedRouteConfiguration.Key(
                    fragments=[ScopedRouteConfiguration.Key.Fragment(string_key=host)]
                ),
            ),
        )
        for host in route.hosts
    ]


def route_names(service: ServiceKey | str) -> tuple[str, str]:
    """Names of the RouteConfigurations of a service and of its preview."""
    return str(service), f"{service}/preview"


def _route_resources(route: Route) -> list[EnvoyResource]:
    name, preview = route_names(route.service)
    made = [_route_resource(name, _routes(route))]
    if route.preview is not None:
        made.append(_route_resource(preview, _to_preview(route, route.preview)))
    return made


def _route_resource(name: str, routes: list[EnvoyRoute]) -> EnvoyResource:
    configuration = RouteConfiguration(
        name=name,
        virtual_hosts=[VirtualHost(name=name, domains=["*"], routes=routes)],
        request_headers_to_remove=[HOST_HEADER, STREAM_HEADER, "x-envoy-external-address"],
    )
    return resource(ResourceType.ROUTE, name, configuration)


def _routes(route: Route) -> list[EnvoyRoute]:
    if route.unavailable is not None:
        return [_direct(route, _anything(), 503, _WHY[route.unavailable])]
    return _to_backends(route, route.backends)


def _to_preview(route: Route, preview: Preview) -> list[EnvoyRoute]:
    if preview.refused:
        routes = [_direct(route, _anything(), 503, _NO_PREVIEW)]
    elif preview.backend is None:
        routes = [_direct(route, _anything(), 421, _NO_CANDIDATE)]
    else:
        routes = _to_backends(route, [preview.backend])
    for made in routes:
        # Without it, nothing counts the request.
        made.metadata.filter_metadata[METADATA_NAMESPACE].fields[NAMESPACE_FIELD].string_value = ""
    return routes


def _anything() -> RouteMatch:
    return RouteMatch(prefix="/")


def _to_backends(route: Route, backends: Sequence[RouteBackend]) -> list[EnvoyRoute]:
    grpc_only = _anything()
    grpc_only.grpc.SetInParent()
    http = _forward(route, _anything(), HTTP_PORT_NAME, backends)
    with_grpc = [backend for backend in backends if backend.share and backend.grpc is not None]
    if with_grpc:
        return [_forward(route, grpc_only, GRPC_PORT_NAME, with_grpc), http]
    if any(backend.http for backend in backends):
        return [_direct(route, grpc_only, 404, _NO_GRPC), http]
    return [http]


def _direct(route: Route, match: RouteMatch, status: int, text: str) -> EnvoyRoute:
    retry_after = HeaderValueOption(header=HeaderValue(key="retry-after", value=str(RETRY_AFTER_SECONDS)))
    return EnvoyRoute(
        name=str(route.service),
        match=match,
        direct_response=DirectResponseAction(
            status=status, body=DataSource(inline_string=text.format(service=route.service))
        ),
        response_headers_to_add=[retry_after] if status == 503 else [],
        metadata=_metadata(route),
        typed_per_filter_config=_UNBUFFERED,
    )


def _forward(route: Route, match: RouteMatch, port: str, backends: Sequence[RouteBackend]) -> EnvoyRoute:
    is_grpc = port == GRPC_PORT_NAME
    action = RouteAction(
        weighted_clusters=WeightedCluster(
            clusters=[
                WeightedCluster.ClusterWeight(
                    name=cluster_name(route.service, backend.revision, port),
                    weight=UInt32Value(value=backend.share),
                )
                for backend in backends
                if backend.share
            ]
        ),
        timeout=_duration(route.timeout),
        idle_timeout=_duration(route.timeout + IDLE_GRACE),
        retry_policy=_retry_policy(),
    )
    if is_grpc:
        # A client's shorter deadline is honoured. Once this is set, Envoy heeds no other timeout.
        action.max_stream_duration.max_stream_duration.CopyFrom(_duration(route.timeout))
        action.max_stream_duration.grpc_timeout_header_max.CopyFrom(_duration(route.timeout))
    bound = None if is_grpc else _latency_bound(route)
    return EnvoyRoute(
        name=str(route.service),
        match=match,
        route=action,
        # Headers are removed first: a client's own one never reaches a pod.
        request_headers_to_remove=[LATENCY_BOUND_HEADER],
        request_headers_to_add=[] if bound is None else [bound],
        metadata=_metadata(route),
        # Buffering would hold back a stream until its client has sent everything.
        typed_per_filter_config=_UNBUFFERED if is_grpc else {},
    )


def _latency_bound(route: Route) -> HeaderValueOption | None:
    """What tells a pod which answers are late; None where they are wanted all the same."""
    if not route.sheds or route.latency_target is None:
        return None
    milliseconds = route.latency_target // timedelta(milliseconds=1)
    return HeaderValueOption(header=HeaderValue(key=LATENCY_BOUND_HEADER, value=str(milliseconds)))


def _metadata(route: Route) -> Metadata:
    timeout = route.timeout.total_seconds()
    latency = timeout if route.latency_target is None else route.latency_target.total_seconds()
    facts = {
        NAMESPACE_FIELD: route.service.namespace,
        SERVICE_FIELD: route.service.name,
        "timeout": f"{timeout:g}s",
        LATENCY_FIELD: f"{latency:.3f}s",
        SHEDS_FIELD: "yes" if route.sheds else "no",
        # Timers of a busy Envoy fire somewhat early.
        DEADLINE_FIELD: f"{timeout * 0.9:.3f}s",
        PATIENCE_FIELD: f"{min(timeout / 4, MOST_PATIENCE.total_seconds()):.3f}s",
    }
    fields = {OWNER_FIELD: _text(str(route.service)), MODEL_FIELD: _text(route.service.name)}
    if route.inference_paths != DEFAULT_INFERENCE_PATHS:
        patterns = ListValue(values=[_text(each) for each in lua_patterns(route.inference_paths)])
        fields[PATHS_FIELD] = Value(list_value=patterns)
    return Metadata(
        filter_metadata={
            METADATA_NAMESPACE: Struct(fields={name: _text(value) for name, value in facts.items()}),
            LUA_FILTER: Struct(fields=fields),
        }
    )


def _text(value: str) -> Value:
    return Value(string_value=value)


def _retry_policy() -> RetryPolicy:
    """Only what certainly reached no server is sent again, and to another pod if there is one."""
    return RetryPolicy(
        retry_on="connect-failure",
        num_retries=UInt32Value(value=CONNECT_RETRIES),
        retry_host_predicate=[
            RetryPolicy.RetryHostPredicate(
                name="previous_hosts", typed_config=packed(PreviousHostsPredicate())
            )
        ],
        host_selection_retry_max_attempts=5,
        retry_back_off=RetryPolicy.RetryBackOff(
            base_interval=_duration(timedelta(milliseconds=10)),
            max_interval=_duration(timedelta(milliseconds=100)),
        ),
    )


def _duration(length: timedelta) -> Duration:
    duration = Duration()
    duration.FromTimedelta(length)
    return duration


_UNBUFFERED = {BUFFER_FILTER: packed(BufferPerRoute(disabled=True))}
