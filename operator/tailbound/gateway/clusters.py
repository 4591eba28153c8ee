"""Envoy clusters and their endpoints: one of each per revision and port.

A cluster never changes once it is made, as everything in it follows from its name: Envoy would warm a changed
one by waiting for endpoints that it already has.
"""

from collections.abc import Iterable

from envoy.config.cluster.v3.circuit_breaker_pb2 import CircuitBreakers
from envoy.config.cluster.v3.cluster_pb2 import Cluster, UpstreamConnectionOptions
from envoy.config.core.v3.address_pb2 import Address, SocketAddress, TcpKeepalive
from envoy.config.core.v3.base_pb2 import Metadata
from envoy.config.core.v3.config_source_pb2 import AggregatedConfigSource, ApiVersion, ConfigSource
from envoy.config.core.v3.protocol_pb2 import (
    Http1ProtocolOptions,
    Http2ProtocolOptions,
    KeepaliveSettings,
)
from envoy.config.core.v3.protocol_pb2 import (
    HttpProtocolOptions as CommonOptions,
)
from envoy.config.endpoint.v3.endpoint_components_pb2 import Endpoint as EnvoyEndpoint
from envoy.config.endpoint.v3.endpoint_components_pb2 import LbEndpoint, LocalityLbEndpoints
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions
from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.wrappers_pb2 import UInt32Value

from tailbound.api.runtime_contract import GRPC_PORT_NAME, HTTP_PORT_NAME
from tailbound.gateway.listener import BUFFER_BYTES
from tailbound.gateway.resources import EnvoyResource, ResourceType, packed, resource
from tailbound.traffic.model import Endpoint, Route, RouteBackend, ServiceKey

# High enough never to refuse what a revision could still queue, low enough to bound the gateway's memory.
MOST_CONNECTIONS = 16_384
MOST_REQUESTS = 65_536
MOST_RETRIES = 1_024
# Of a pod's address that swallows packets; a refused connection is retried at once.
CONNECT_TIMEOUT = Duration(seconds=1)
# Servers close idle connections too, many after 5 s. Closing first avoids sending into a closing connection.
HTTP_IDLE_TIMEOUT = Duration(seconds=4)
GRPC_IDLE_TIMEOUT = Duration(seconds=300)

METADATA_NAMESPACE = "tailbound"
_HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def cluster_name(service: ServiceKey, revision: str, port: str) -> str:
    """Unique by service, so that a hand-written status.traffic cannot reach into a neighbour's clusters."""
    return f"{service}/{revision}/{port}"


def cluster_resources(route: Route) -> list[EnvoyResource]:
    """Clusters and endpoints of every revision that the route names, weighted or not."""
    return [
        made
        for backend in _backends(route)
        for port, endpoints in _ports(backend)
        for made in _cluster(route.service, backend.revision, port, endpoints)
    ]


def _backends(route: Route) -> tuple[RouteBackend, ...]:
    """The backends with a weight, and the backend of the preview if it has none."""
    preview = route.preview.backend if route.preview is not None else None
    if preview is None or preview.revision in {each.revision for each in route.backends}:
        return route.backends
    return (*route.backends, preview)


def _ports(backend: RouteBackend) -> list[tuple[str, Iterable[Endpoint]]]:
    ports: list[tuple[str, Iterable[Endpoint]]] = [(HTTP_PORT_NAME, backend.http)]
    if backend.grpc is not None:
        ports.append((GRPC_PORT_NAME, backend.grpc))
    return ports


def _cluster(
    service: ServiceKey, revision: str, port: str, endpoints: Iterable[Endpoint]
) -> list[EnvoyResource]:
    name = cluster_name(service, revision, port)
    facts = Struct(fields={"revision": Value(string_value=revision)})
    cluster = Cluster(
        name=name,
        type=Cluster.EDS,
        eds_cluster_config=Cluster.EdsClusterConfig(eds_config=_ads()),
        lb_policy=Cluster.LEAST_REQUEST,
        connect_timeout=CONNECT_TIMEOUT,
        per_connection_buffer_limit_bytes=UInt32Value(value=BUFFER_BYTES),
        circuit_breakers=_circuit_breakers(),
        typed_extension_protocol_options={_HTTP_OPTIONS: _PROTOCOLS[port]},
        upstream_connection_options=UpstreamConnectionOptions(tcp_keepalive=_keepalive()),
        metadata=Metadata(filter_metadata={METADATA_NAMESPACE: facts}),
    )
    assignment = ClusterLoadAssignment(
        cluster_name=name, endpoints=[LocalityLbEndpoints(lb_endpoints=[_lb_endpoint(e) for e in endpoints])]
    )
    return [
        resource(ResourceType.CLUSTER, name, cluster),
        resource(ResourceType.ENDPOINTS, name, assignment),
    ]


def _lb_endpoint(endpoint: Endpoint) -> LbEndpoint:
    socket = SocketAddress(address=endpoint.address, port_value=endpoint.port)
    return LbEndpoint(endpoint=EnvoyEndpoint(address=Address(socket_address=socket)))


def _ads() -> ConfigSource:
    """The ADS configuration source, without a time-out, so that a first configuration is complete."""
    return ConfigSource(
        ads=AggregatedConfigSource(), resource_api_version=ApiVersion.V3, initial_fetch_timeout=Duration()
    )


def _circuit_breakers() -> CircuitBreakers:
    return CircuitBreakers(
        thresholds=[
            CircuitBreakers.Thresholds(
                max_connections=UInt32Value(value=MOST_CONNECTIONS),
                max_pending_requests=UInt32Value(value=MOST_REQUESTS),
                max_requests=UInt32Value(value=MOST_REQUESTS),
                max_retries=UInt32Value(value=MOST_RETRIES),
            )
        ]
    )


def _keepalive() -> TcpKeepalive:
    return TcpKeepalive(
        keepalive_time=UInt32Value(value=30),
        keepalive_interval=UInt32Value(value=5),
        keepalive_probes=UInt32Value(value=3),
    )


_PROTOCOLS = {
    HTTP_PORT_NAME: packed(
        HttpProtocolOptions(
            common_http_protocol_options=CommonOptions(idle_timeout=HTTP_IDLE_TIMEOUT),
            explicit_http_config=HttpProtocolOptions.ExplicitHttpConfig(
                http_protocol_options=Http1ProtocolOptions()
            ),
        )
    ),
    GRPC_PORT_NAME: packed(
        HttpProtocolOptions(
            common_http_protocol_options=CommonOptions(idle_timeout=GRPC_IDLE_TIMEOUT),
            explicit_http_config=HttpProtocolOptions.ExplicitHttpConfig(
                http2_protocol_options=Http2ProtocolOptions(
                    # A pod whose node is lost never closes its connection.
                    connection_keepalive=KeepaliveSettings(
                        interval=Duration(seconds=15), timeout=Duration(seconds=5)
                    )
                )
            ),
        )
    ),
}
