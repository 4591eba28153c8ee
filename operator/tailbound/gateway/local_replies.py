"""What Envoy answers by itself, in words: JSON of the Open Inference Protocol, or a gRPC status message.

The first mapper that matches decides:

| what happened                                      | status          | Retry-After |
|----------------------------------------------------|-----------------|-------------|
| no service has this host                           | 421             | no          |
| the request names another model than the service's | 421             | no          |
| the host is that of a preview without a candidate  | 421             | no          |
| body too large, and its length was said            | 413             | no          |
| body too large for one without a length            | 411             | no          |
| headers too large                                  | 431             | no          |
| the request was not complete in time               | 408             | no          |
| the connection was to be upgraded                  | 403             | no          |
| a tunnel was to be opened (CONNECT)                | 405             | no          |
| no valid HTTP request                              | 400             | no          |
| the gateway's memory is nearly full                | 503             | yes         |
| too many requests are under way                    | 503             | yes         |
| no pod is ready, or none could be reached          | 503             | yes         |
| the service's timeout passed                       | 504             | no          |
| the pod broke off before it answered               | 502, 503        | with 503    |
| anything else                                      | as Envoy has it | with 503    |
"""

from typing import Any, Final

WHOLE_BYTES: Final = 131_072
"""The limit of a body that does not say its length, in bytes."""
# The value of Retry-After with a 503. Endpoints change within a second once a pod is ready.
RETRY_AFTER_SECONDS: Final = 2

_TRY_AGAIN: Final = f"try again in {RETRY_AFTER_SECONDS} s"
_SERVICE: Final = "InferenceService %ROUTE_NAME%"
_NO_POD: Final = f"{_SERVICE} has no pod that is ready: {_TRY_AGAIN}, and see its conditions"
_TOO_MANY: Final = (
    f"{_SERVICE} is overloaded, and would answer later than its P99 target (spec.overload): {_TRY_AGAIN}"
)
_UNREACHABLE: Final = f"no pod of {_SERVICE} could be reached: {_TRY_AGAIN}"
_BROKEN: Final = f"the pod of {_SERVICE} broke off before it answered (%RESPONSE_CODE_DETAILS%)"
_TOO_LATE: Final = (
    f"{_SERVICE} did not answer within %METADATA(ROUTE:tailbound:timeout)%, the timeout of one request "
    "(spec.timeout)"
)
_NO_MEMORY: Final = f"this gateway has too many bodies of requests in its memory: {_TRY_AGAIN}"
_INCOMPLETE: Final = (
    "the request was not complete in time (%RESPONSE_CODE_DETAILS%): send its body without a pause"
)
_UPGRADE: Final = (
    "this gateway upgrades no connection to '%REQ(UPGRADE)%': send plain HTTP/1.1, HTTP/2 or gRPC requests"
)
_TUNNEL: Final = "this gateway opens no tunnels (CONNECT): send requests to the names of InferenceServices"
_HEADERS: Final = "the request has more than 100 headers, or more than 32 KiB of them: send fewer"
_INVALID: Final = "this is no valid HTTP request (%RESPONSE_CODE_DETAILS%)"
_MISDIRECTED: Final = "%LOCAL_REPLY_BODY%"
_OTHER: Final = "%LOCAL_REPLY_BODY% (%RESPONSE_CODE_DETAILS%)"

_GRPC: Final = {
    "header_filter": {"header": {"name": "content-type", "string_match": {"prefix": "application/grpc"}}}
}
_SAYS_NO_LENGTH: Final = {"header_filter": {"header": {"name": "content-length", "present_match": False}}}
_OVERLOADED: Final = {
    "extension_filter": {
        "name": "envoy.access_loggers.extension_filters.cel",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter",
            "expression": "response.code_details == 'overload'",
        },
    }
}


def local_replies(max_request_bytes: int, cluster_domain: str) -> dict[str, Any]:
    """The mappers of one gateway. Of each pair the one for gRPC comes first."""
    return {
        "mappers": [
            *_of_this_gateway(max_request_bytes, cluster_domain),
            *_of_every_gateway(),
            {"filter": _GRPC, "body_format_override": _text(_OTHER)},
        ],
        "body_format": _json(_OTHER),
    }


def _of_this_gateway(max_request_bytes: int, cluster_domain: str) -> list[dict[str, Any]]:
    """The mappers whose texts name a setting."""
    unknown_host = (
        "no InferenceService answers to host '%REQ(:AUTHORITY)%': use NAME.NAMESPACE, NAME.NAMESPACE.svc or "
        f"NAME.NAMESPACE.svc.{cluster_domain} (a bare NAME carries no namespace), or one of its spec.hosts"
    )
    too_large = (
        f"the request body is larger than {max_request_bytes} bytes, the most that this gateway takes "
        "(TAILBOUND_MAX_REQUEST_BYTES): send fewer instances per request"
    )
    # Else a length would not help.
    longer = max_request_bytes > WHOLE_BYTES
    no_length = (
        f"the request body is larger than {WHOLE_BYTES} bytes, the most without a "
        f"Content-Length header: send one, and up to {max_request_bytes} bytes"
    )
    without_length = _mappers(_both(_status(413), _SAYS_NO_LENGTH), no_length, {"status_code": 411})
    return [
        *_mappers(_flags("NR"), unknown_host, {"status_code": 421}),
        *(without_length if longer else []),
        *_mappers(_status(413), too_large),
    ]


def _of_every_gateway() -> list[dict[str, Any]]:
    return [
        *_mappers(_status(421), _MISDIRECTED),
        *_mappers(_status(431), _HEADERS),
        *_mappers(_status(408), _INCOMPLETE),
        *_mappers(_status(403), _UPGRADE),
        *_mappers(_status(405), _TUNNEL),
        *_mappers(_status(400), _INVALID),
        *_mappers(_OVERLOADED, _NO_MEMORY, _RETRY_AFTER),
        *_mappers(_flags("UH", "NC"), _NO_POD, _RETRY_AFTER),
        *_mappers(_flags("UO"), _TOO_MANY, _RETRY_AFTER),
        *_mappers(_flags("UF"), _UNREACHABLE, _RETRY_AFTER),
        *_mappers(_flags("UT", "DT"), _TOO_LATE),
        *_mappers(_both(_flags("UC", "UR", "UPE"), _status(503)), _BROKEN, _RETRY_AFTER),
        *_mappers(_flags("UC", "UR", "UPE"), _BROKEN),
        *_mappers(_status(503), _OTHER, _RETRY_AFTER),
    ]


def _mappers(which: dict[str, Any], text: str, extra: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    more = extra or {}
    return [
        {"filter": _both(_GRPC, which), "body_format_override": _text(text), **more},
        {"filter": which, "body_format_override": _json(text), **more},
    ]


def _both(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {"and_filter": {"filters": [one, other]}}


def _flags(*flags: str) -> dict[str, Any]:
    return {"response_flag_filter": {"flags": list(flags)}}


def _status(code: int) -> dict[str, Any]:
    value = {"default_value": code, "runtime_key": "tailbound.local_reply_status"}
    return {"status_code_filter": {"comparison": {"op": "EQ", "value": value}}}


_RETRY_AFTER: Final = {
    "headers_to_add": [
        {
            "header": {"key": "retry-after", "value": str(RETRY_AFTER_SECONDS)},
            "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
        }
    ]
}


def _text(text: str) -> dict[str, Any]:
    return {"text_format_source": {"inline_string": text}}


def _json(text: str) -> dict[str, Any]:
    return {"json_format": {"error": text}, "content_type": "application/json"}
