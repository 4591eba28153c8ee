"""Envoy's one listener, which never changes: limits, the host as scope key, filters, access log.

Configuration as data, in the JSON form of Envoy's own messages. What follows a service is in `routes`, what
Envoy answers by itself in `local_replies`.

What the gateway keeps of a request's body:

| body                                     | a pod gets it            | kept here              |
|------------------------------------------|--------------------------|------------------------|
| longer than the limit, and says so       | never: 413 at once       | nothing                |
| longer than WHOLE_BYTES, and says so     | as it comes              | BUFFER_BYTES           |
| longer than WHOLE_BYTES, without a length | never: 411              | WHOLE_BYTES            |
| any other                                | once it is complete      | all of it              |
| of a gRPC call                           | as it comes              | BUFFER_BYTES           |

So slow clients with small bodies occupy no pod, and one connection can make the gateway, which all services
share, keep little more than BYTES_PER_CONNECTION (see `overload`).
"""

from typing import Any, Final

from tailbound.api.names import GATEWAY_HTTP_PORT
from tailbound.gateway.counting import counting_log
from tailbound.gateway.local_replies import WHOLE_BYTES, local_replies
from tailbound.gateway.script import HOST_HEADER, LUA_FILTER, STREAM_HEADER, script

BUFFER_FILTER: Final = "envoy.filters.http.buffer"
STAT_PREFIX: Final = "ingress"
BUFFER_BYTES: Final = 65_536
"""Bytes that each connection and HTTP/2 stream may buffer in each direction before its sender has to wait."""
# Where load balancers ask whether a gateway may get requests, under its address for a host.
_HEALTH_PATHS: Final = ("/", "/healthz")

_TYPES: Final = "type.googleapis.com/envoy.extensions"
_MANAGER: Final = f"{_TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager"
_MUTATION: Final = f"{_TYPES}.http.early_header_mutation.header_mutation.v3.HeaderMutation"
ADS: Final = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"}


def listener(address: str, max_request_bytes: int, cluster_domain: str) -> dict[str, Any]:
    """The listener on `address`; a request body over `max_request_bytes` gets a 413."""
    socket: dict[str, Any] = {"address": address, "port_value": GATEWAY_HTTP_PORT}
    if ":" in address:
        socket["ipv4_compat"] = True
    manager = _connection_manager(max_request_bytes, cluster_domain)
    return {
        "name": STAT_PREFIX,
        "address": {"socket_address": socket},
        "per_connection_buffer_limit_bytes": BUFFER_BYTES,
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }


def _connection_manager(max_request_bytes: int, cluster_domain: str) -> dict[str, Any]:
    return {
        "@type": _MANAGER,
        "stat_prefix": STAT_PREFIX,
        "codec_type": "AUTO",
        **_identity(),
        **_limits(),
        **_scopes(),
        "local_reply_config": local_replies(max_request_bytes, cluster_domain),
        "access_log": [_access_log(), counting_log()],
        "http_filters": _filters(max_request_bytes),
    }


def _identity() -> dict[str, Any]:
    """Who the client is, and what it may not claim: no client is trusted with x-envoy-* headers.

    Without ranges Envoy trusts private and loopback addresses, which is to say every pod; so there is one, of
    an address that no client has.
    """
    no_client = {"address_prefix": "255.255.255.255", "prefix_len": 32}
    return {
        "use_remote_address": True,
        "internal_address_config": {"cidr_ranges": [no_client]},
        "generate_request_id": True,
        # A caller's own id is worth keeping: it is how its logs and ours meet.
        "preserve_external_request_id": True,
        "always_set_request_id_in_response": True,
        "server_header_transformation": "PASS_THROUGH",
        "normalize_path": True,
    }


def _limits() -> dict[str, Any]:
    return {
        "max_request_headers_kb": 32,
        "request_headers_timeout": "10s",
        # From the first byte of a request to its last; how long it may be answered is the route's own.
        "request_timeout": "300s",
        "stream_idle_timeout": "60s",
        "common_http_protocol_options": {"idle_timeout": "600s", "max_headers_count": 100},
        "http2_protocol_options": {
            "max_concurrent_streams": 100,
            "initial_stream_window_size": 131_072,
            "initial_connection_window_size": 1_048_576,
            "connection_keepalive": {"interval": "60s", "timeout": "10s"},
        },
    }


def _scopes() -> dict[str, Any]:
    """The host as the client wrote it goes on to the pod; a copy of it, without port, is the scope key.

    A client's own copy is removed first: an empty host would leave it in place.
    """
    copied = {
        "header": {"key": HOST_HEADER, "value": "%REQ(:AUTHORITY)%"},
        "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
    }
    mutations = [{"remove": HOST_HEADER}, {"remove": STREAM_HEADER}, {"append": copied}]
    return {
        "strip_trailing_host_dot": True,
        "early_header_mutation_extensions": [
            {"name": "host", "typed_config": {"@type": _MUTATION, "mutations": mutations}}
        ],
        "scoped_routes": {
            "name": "services",
            "scope_key_builder": {
                "fragments": [
                    {"header_value_extractor": {"name": HOST_HEADER, "element_separator": ":", "index": 0}}
                ]
            },
            "rds_config_source": ADS,
            "scoped_rds": {"scoped_rds_config_source": ADS},
        },
    }


def _filters(max_request_bytes: int) -> list[dict[str, Any]]:
    code = {"inline_string": script(max_request_bytes)}
    lua = {"@type": f"{_TYPES}.filters.http.lua.v3.Lua", "default_source_code": code}
    router = {"@type": f"{_TYPES}.filters.http.router.v3.Router", "suppress_envoy_headers": True}
    return [
        {"name": "envoy.filters.http.health_check", "typed_config": _health_check()},
        {"name": LUA_FILTER, "typed_config": lua},
        {"name": BUFFER_FILTER, "typed_config": _buffer(min(max_request_bytes, WHOLE_BYTES))},
        {"name": "envoy.filters.http.router", "typed_config": router},
    ]


def _health_check() -> dict[str, Any]:
    """200 to load balancers, which ask an address and no name; 503 from the beginning of a drain on."""
    address = r"^(\d+\.\d+\.\d+\.\d+|\[[0-9a-fA-F:.]+\])(:\d+)?$"
    path = "|".join(_HEALTH_PATHS)
    return {
        "@type": f"{_TYPES}.filters.http.health_check.v3.HealthCheck",
        "pass_through_mode": False,
        "headers": [_matches(":authority", address), _matches(":path", f"^({path})$")],
    }


def _matches(header: str, pattern: str) -> dict[str, Any]:
    return {"name": header, "string_match": {"safe_regex": {"regex": pattern}}}


def _buffer(most_bytes: int) -> dict[str, Any]:
    """The buffer filter, except for requests that are marked to be let through."""
    skip = "type.googleapis.com/envoy.extensions.filters.common.matcher.action.v3.SkipFilter"
    marked = {
        "@type": "type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput",
        "header_name": STREAM_HEADER,
    }
    buffer = {"@type": f"{_TYPES}.filters.http.buffer.v3.Buffer", "max_request_bytes": most_bytes}
    return {
        "@type": f"{_TYPES}.common.matching.v3.ExtensionWithMatcher",
        "extension_config": {"name": BUFFER_FILTER, "typed_config": buffer},
        "xds_matcher": {
            "matcher_tree": {
                "input": {"name": "marked", "typed_config": marked},
                "exact_match_map": {
                    "map": {"yes": {"action": {"name": "skip", "typed_config": {"@type": skip}}}}
                },
            }
        },
    }


def _access_log() -> dict[str, Any]:
    """One line of JSON per request. Bodies, queries and credentials are not in it."""
    return {
        "name": "envoy.access_loggers.stdout",
        "typed_config": {
            "@type": f"{_TYPES}.access_loggers.stream.v3.StdoutAccessLog",
            "log_format": {
                "json_format": {
                    "time": "%START_TIME%",
                    "service": "%ROUTE_NAME%",
                    "revision": "%METADATA(CLUSTER:tailbound:revision)%",
                    "host": "%REQ(:AUTHORITY)%",
                    "method": "%REQ(:METHOD)%",
                    "path": "%PATH(NQ)%",
                    "protocol": "%PROTOCOL%",
                    "status": "%RESPONSE_CODE%",
                    "grpc_status": "%GRPC_STATUS_NUMBER%",
                    "flags": "%RESPONSE_FLAGS%",
                    "details": "%RESPONSE_CODE_DETAILS%",
                    "duration_ms": "%DURATION%",
                    "upstream_ms": "%RESPONSE_DURATION%",
                    "bytes_received": "%BYTES_RECEIVED%",
                    "bytes_sent": "%BYTES_SENT%",
                    "pod": "%UPSTREAM_HOST%",
                    "client": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
                    "request_id": "%REQ(X-REQUEST-ID)%",
                }
            },
        },
    }
