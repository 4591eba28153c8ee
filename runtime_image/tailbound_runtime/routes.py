"""The paths of this server.

| method | path | answer |
|---|---|---|
| GET | /v2, /v2/ | server metadata |
| GET | /v2/health/live | 200 while the process answers |
| GET | /v2/health/ready | 200 when the models of the start are warm; 503 before, and from SIGTERM on |
| GET | /v2/models/NAME | model metadata |
| GET | /v2/models/NAME/ready | 200 when this model is warm; 503 before, and from SIGTERM on |
| GET | /v2/models/NAME/config | the model's configuration, as Triton says it |
| GET | /v2/models/NAME/stats, /v2/models/stats | counts and times, as Triton says them |
| POST | /v2/models/NAME/infer | inference |
| POST | /v2/repository/index | the models that there are |
| POST | /v2/repository/models/NAME/load, …/unload | 400, unless the server was started with model control |
| GET | /metrics | Prometheus text |

Each path below /v2/models/NAME exists with /versions/VERSION after NAME, too.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final
from urllib.parse import unquote

import httptools

from tailbound_runtime.errors import ApiError


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
    UNLOAD = "POST unload"
    INFER = "POST infer"


SERVER_ROUTES: Final[Mapping[str, Route]] = {
    "/v2": Route.SERVER,
    "/v2/": Route.SERVER,
    "/v2/health/live": Route.LIVE,
    "/v2/health/ready": Route.READY,
    "/v2/models/stats": Route.STATISTICS,
    "/v2/repository/index": Route.INDEX,
    "/metrics": Route.METRICS,
}
MODEL_ROUTES: Final[Mapping[str, Route]] = {
    "": Route.MODEL,
    "/ready": Route.MODEL_READY,
    "/config": Route.CONFIG,
    "/stats": Route.STATISTICS,
    "/infer": Route.INFER,
}
"""After /v2/models/NAME."""
_REPOSITORY: Final = "/v2/repository/models/"
_CALLS: Final[Mapping[str, Route]] = {"/load": Route.LOAD, "/unload": Route.UNLOAD}


def path_of(url: bytes) -> str:
    """The path that a request's target names. Raises ApiError 400."""
    try:
        return unquote((httptools.parse_url(url).path or b"").decode("ascii"))
    except (httptools.HttpParserInvalidURLError, UnicodeDecodeError):
        raise ApiError(400, f"the request asks for {url[:100]!r}, which is no path") from None


def repository_call(path: str) -> tuple[Route, str] | None:
    """The route and the model's name of a call to load or unload a model; None for other paths."""
    for end, route in _CALLS.items():
        if path.startswith(_REPOSITORY) and path.endswith(end):
            return route, path[len(_REPOSITORY) : -len(end)]
    return None
