"""Envoy's one listener, which never changes: limits, the host as scope key, local replies, access log.

Configuration as data, in the JSON form of Envoy's own messages. What follows a service is in `routes`.
"""

from typing import Any, Final

from tailbound.api.names import GATEWAY_HTTP_PORT
from tailbound.gateway.counting import counting_log

# Carries the host from the edge of Envoy to the choice of the scope; never from a client, never to a pod.
HOST_HEADER: Final = "x-tailbound-host"
BUFFER_FILTER: Final = "envoy.filters.http.buffer"
STAT_PREFIX: Final = "ingress"
# What a client is told to wait after a 503. Endpoints change within a second once a pod is ready.
RETRY_AFTER_SECONDS: Final = 2

_TYPES: Final = "type.googleapis.com/envoy.extensions"
_MANAGER: Final = f"{_TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager"
_MUTATION: Final = f"{_TYPES}.http.early_header_mutation.header_mutation.v3.HeaderMutation"
ADS: Final = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"}

# Scope keys are compared byte by byte. Only hosts written with capitals pay for a second look-up.
_FOLD_CASE: Final = f"""
function envoy_on_request(handle)
  local headers = handle:headers()
  local host = headers:get("{HOST_HEADER}")
  if host == nil then return end
  local folded = string.lower(host)
  if folded ~= host then
    headers:replace("{HOST_HEADER}", folded)
    handle:clearRouteCache()
  end
end
"""


def listener(address: str, max_request_bytes: int, cluster_domain: str) -> dict[str, Any]:
    """The listener on `address`; a request body over `max_request_bytes` gets a 413."""
    socket: dict[str, Any] = {"address": address, "port_value": GATEWAY_HTTP_PORT}
    if ":" in address:
        socket["ipv4_compat"] = True
    manager = _connection_manager(max_request_bytes, cluster_domain)
    return {
        "name": STAT_PREFIX,
        "address": {"socket_address": socket},
        "per_connection_buffer_limit_bytes": 1_048_576,
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
            "max_concurrent_streams": 1024,
            "initial_stream_window_size": 1_048_576,
            "initial_connection_window_size": 8_388_608,
            "connection_keepalive": {"interval": "60s", "timeout": "10s"},
        },
    }


def _scopes() -> dict[str, Any]:
    """The host as the client wrote it goes on to the pod; a copy of it, without port, is the scope key."""
    copied = {
        "header": {"key": HOST_HEADER, "value": "%REQ(:AUTHORITY)%"},
        "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
    }
    return {
        "strip_trailing_host_dot": True,
        "early_header_mutation_extensions": [
            {"name": "host", "typed_config": {"@type": _MUTATION, "mutations": [{"append": copied}]}}
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
    lua = {"@type": f"{_TYPES}.filters.http.lua.v3.Lua", "default_source_code": {"inline_string": _FOLD_CASE}}
    buffer = {"@type": f"{_TYPES}.filters.http.buffer.v3.Buffer", "max_request_bytes": max_request_bytes}
    router = {"@type": f"{_TYPES}.filters.http.router.v3.Router", "suppress_envoy_headers": True}
    return [
        {"name": "envoy.filters.http.lua", "typed_config": lua},
        {"name": BUFFER_FILTER, "typed_config": buffer},
        {"name": "envoy.filters.http.router", "typed_config": router},
    ]


def local_replies(max_request_bytes: int, cluster_domain: str) -> dict[str, Any]:
    """Envoy's own answers, in words: JSON as the Open Inference Protocol has it, or a gRPC status message.

    The first mapper that matches decides, and of each pair the one for gRPC comes first.
    """
    unknown_host = (
        "no InferenceService answers to host '%REQ(:AUTHORITY)%': use NAME.NAMESPACE, NAME.NAMESPACE.svc or "
        f"NAME.NAMESPACE.svc.{cluster_domain} (a bare NAME carries no namespace), or one of its spec.hosts"
    )
    too_large = (
        f"the request body is larger than {max_request_bytes} bytes, the most that this gateway takes "
        "(TAILBOUND_MAX_REQUEST_BYTES): send fewer instances per request"
    )
    no_pod = (
        "InferenceService %ROUTE_NAME% has no pod that is ready: "
        f"try again in {RETRY_AFTER_SECONDS} s, and see its conditions"
    )
    unreachable = (
        f"no pod of InferenceService %ROUTE_NAME% could be reached: try again in {RETRY_AFTER_SECONDS} s"
    )
    too_late = (
        "InferenceService %ROUTE_NAME% did not answer within %METADATA(ROUTE:tailbound:timeout)%, "
        "the timeout of one request (spec.timeout)"
    )
    return {
        "mappers": [
            *_mappers(_flags("NR"), unknown_host, {"status_code": 421}),
            *_mappers(_status(413), too_large, {}),
            *_mappers(_flags("UH", "NC"), no_pod, _retry_after()),
            *_mappers(_flags("UF", "UO"), unreachable, _retry_after()),
            *_mappers(_flags("UT", "DT"), too_late, {}),
            {"filter": _GRPC, "body_format_override": _text("%LOCAL_REPLY_BODY%")},
        ],
        "body_format": _json("%LOCAL_REPLY_BODY%"),
    }


_GRPC: Final = {
    "header_filter": {"header": {"name": "content-type", "string_match": {"prefix": "application/grpc"}}}
}


def _mappers(which: dict[str, Any], text: str, extra: dict[str, Any]) -> list[dict[str, Any]]:
    both = {"and_filter": {"filters": [_GRPC, which]}}
    return [
        {"filter": both, "body_format_override": _text(text), **extra},
        {"filter": which, "body_format_override": _json(text), **extra},
    ]


def _flags(*flags: str) -> dict[str, Any]:
    return {"response_flag_filter": {"flags": list(flags)}}


def _status(code: int) -> dict[str, Any]:
    value = {"default_value": code, "runtime_key": "tailbound.local_reply_status"}
    return {"status_code_filter": {"comparison": {"op": "EQ", "value": value}}}


def _retry_after() -> dict[str, Any]:
    header = {"key": "retry-after", "value": str(RETRY_AFTER_SECONDS)}
    return {"headers_to_add": [{"header": header, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}]}


def _text(text: str) -> dict[str, Any]:
    return {"text_format_source": {"inline_string": text}}


def _json(text: str) -> dict[str, Any]:
    return {"json_format": {"error": text}, "content_type": "application/json"}


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
