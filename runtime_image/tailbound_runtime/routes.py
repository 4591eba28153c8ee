"""The paths of this server.

| method | path | answer |
|---|---|---|
| GET | /v2, /v2/ | server metadata |
| GET | /v2/health/live | 200 while the process answers |
| GET | /v2/health/ready | 200 when the model is warm; 503 before, and from SIGTERM on |
| GET | /v2/models/NAME | model metadata |
| GET | /v2/models/NAME/ready | as /v2/health/ready |
| GET | /v2/models/NAME/config | the model's configuration, as Triton says it |
| GET | /v2/models/NAME/stats, /v2/models/stats | counts and times, as Triton says them |
| POST | /v2/models/NAME/infer | inference |
| POST | /v2/repository/index | the one model |
| POST | /v2/repository/models/NAME/load, …/unload | 400: the model is what the process was started with |
| GET | /metrics | Prometheus text |

Each path below /v2/models/NAME exists with /versions/1 after NAME, too.
"""

from enum import StrEnum
from urllib.parse import unquote

import httptools

from tailbound_runtime.errors import ApiError
from tailbound_runtime.signature import MODEL_VERSION


class Route(StrEnum):
    SERVER = "GET server"
    LIVE = "GET live"
    READY = "GET ready"
    MODEL = "GET model"
    MODEL_READY = "GET model ready"
    CONFIG = "GET model config"
    STATISTICS = "GET statistics"
    METRICS = "GET metrics"
    INDEX = "POST index"
    LOAD = "POST load"
    INFER = "POST infer"


def routes(model_name: str) -> dict[bytes, Route]:
    """Every path of this server: it has one model with one version."""
    table = {
        "/v2": Route.SERVER,
        "/v2/": Route.SERVER,
        "/v2/health/live": Route.LIVE,
        "/v2/health/ready": Route.READY,
        "/v2/models/stats": Route.STATISTICS,
        "/v2/repository/index": Route.INDEX,
        f"/v2/repository/models/{model_name}/load": Route.LOAD,
        f"/v2/repository/models/{model_name}/unload": Route.LOAD,
        "/metrics": Route.METRICS,
    }
    for base in (f"/v2/models/{model_name}", f"/v2/models/{model_name}/versions/{MODEL_VERSION}"):
        table[base] = Route.MODEL
        table[f"{base}/ready"] = Route.MODEL_READY
        table[f"{base}/config"] = Route.CONFIG
        table[f"{base}/stats"] = Route.STATISTICS
        table[f"{base}/infer"] = Route.INFER
    return {path.encode(): route for path, route in table.items()}


def path_of(url: bytes) -> str:
    """The path that a request's target names. Raises ApiError 400."""
    try:
        return unquote((httptools.parse_url(url).path or b"").decode("ascii"))
    except (httptools.HttpParserInvalidURLError, UnicodeDecodeError):
        raise ApiError(400, f"the request asks for {url[:100]!r}, which is no path") from None
