"""The HTTP surface, as a raw ASGI application: routing, bodies, status codes.

| method | path | answer |
|---|---|---|
| GET | /v2, /v2/ | server metadata |
| GET | /v2/health/live | 200 while the process answers |
| GET | /v2/health/ready | 200 when the model is warm; 503 before, and from SIGTERM on |
| GET | /v2/models/NAME | model metadata |
| GET | /v2/models/NAME/ready | as /v2/health/ready |
| POST | /v2/models/NAME/infer | inference |
| GET | /metrics | Prometheus text |

Each model path exists with /versions/1 after NAME, too. HEAD goes where GET goes. Every error is
{"error": "…"}. The Content-Type of a request is not looked at: the protocol knows one, curl -d sends another.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, StrEnum
from typing import Any, Final, TypeVar

import orjson
import structlog

from tailbound_runtime import __version__
from tailbound_runtime.contract import LATENCY_BOUND_HEADER, SHED_HEADER
from tailbound_runtime.errors import ApiError, Header, ModelFailedError, ModelInputError
from tailbound_runtime.metrics import CONTENT_TYPE, Metrics, Stage
from tailbound_runtime.protocol import MODEL_VERSION, Signature, infer_response, parse_infer
from tailbound_runtime.shedding import Bound, WouldBeLateError
from tailbound_runtime.worker import InferenceThread, QueueFullError

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
T = TypeVar("T")

JSON: Final = b"application/json"
RETRY_AFTER: Final[Header] = (b"retry-after", b"1")  # seconds
SHED: Final[Header] = (SHED_HEADER.encode(), b"true")
CLOSE: Final[Header] = (b"connection", b"close")
_MOST_DIGITS: Final = 9
SERVER_METADATA: Final = orjson.dumps({"name": "tailbound-runtime", "version": __version__, "extensions": []})

log = structlog.get_logger(__name__)


class Phase(Enum):
    """Where the process is in its life; it only moves forward."""

    LOADING = 1
    READY = 2
    DRAINING = 3


class Route(StrEnum):
    SERVER = "GET server"
    LIVE = "GET live"
    READY = "GET ready"
    MODEL = "GET model"
    MODEL_READY = "GET model ready"
    METRICS = "GET metrics"
    INFER = "POST infer"


def routes(model_name: str) -> dict[str, Route]:
    """Every path of this server: it has one model with one version."""
    table = {
        "/v2": Route.SERVER,
        "/v2/": Route.SERVER,
        "/v2/health/live": Route.LIVE,
        "/v2/health/ready": Route.READY,
        "/metrics": Route.METRICS,
    }
    for base in (f"/v2/models/{model_name}", f"/v2/models/{model_name}/versions/{MODEL_VERSION}"):
        table[base] = Route.MODEL
        table[f"{base}/ready"] = Route.MODEL_READY
        table[f"{base}/infer"] = Route.INFER
    return table


class App:
    """The ASGI application. `phase` is moved by the server's life cycle."""

    def __init__(
        self, model_name: str, request_timeout_seconds: float, max_request_bytes: int, metrics: Metrics
    ) -> None:
        self.phase = Phase.LOADING
        self._model_name = model_name
        self._timeout_seconds = request_timeout_seconds
        self._max_request_bytes = max_request_bytes
        self._metrics = metrics
        self._routes = routes(model_name)
        self._model: tuple[Signature, InferenceThread] | None = None

    def open(self, signature: Signature, thread: InferenceThread) -> None:
        """Become ready with this model."""
        self._model = (signature, thread)
        self.phase = Phase.READY

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get(scope["path"])
        headers: tuple[Header, ...] = ()
        try:
            if route is Route.INFER and scope["method"] == "POST":
                status, body = 200, await self._measured_infer(scope, receive)
            else:
                status, body = self._answer(scope, route)
        except ApiError as error:
            status, body, headers = error.status, orjson.dumps({"error": error.message}), error.headers
        content_type = CONTENT_TYPE if route is Route.METRICS and status == 200 else JSON
        await self._send(send, status, body, content_type, headers)

    async def _send(
        self, send: Send, status: int, body: bytes, content_type: bytes, extra: tuple[Header, ...]
    ) -> None:
        headers = [(b"content-type", content_type), (b"content-length", str(len(body)).encode()), *extra]
        if self.phase is Phase.DRAINING and CLOSE not in headers:
            headers.append(CLOSE)  # the client's next connection goes to a pod that stays
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _answer(self, scope: Scope, route: Route | None) -> tuple[int, bytes]:
        if route is None:
            raise self._not_found(scope["path"])
        allowed = "POST" if route is Route.INFER else "GET"
        if scope["method"] != allowed and not (allowed == "GET" and scope["method"] == "HEAD"):
            raise ApiError(
                405, f"{scope['path']} takes {allowed}, not {scope['method']}", [(b"allow", allowed.encode())]
            )
        ready = self.phase is Phase.READY
        match route:
            case Route.SERVER:
                return 200, SERVER_METADATA
            case Route.LIVE:
                return 200, orjson.dumps({"live": True, "ready": ready})
            case Route.READY:
                return 200 if ready else 503, orjson.dumps({"live": True, "ready": ready})
            case Route.MODEL_READY:
                return 200 if ready else 503, orjson.dumps({"name": self._model_name, "ready": ready})
            case Route.MODEL:
                return 200, self._loaded()[0].metadata()
            case _:
                return 200, self._metrics.render()

    def _not_found(self, path: str) -> ApiError:
        if path.startswith("/v2/models/"):
            known = f"it has model {self._model_name!r}, version {MODEL_VERSION!r}"
            return ApiError(404, f"this server has no {path}: {known}")
        return ApiError(404, f"this server has no {path}: GET /v2 says what answers here")

    def _loaded(self) -> tuple[Signature, InferenceThread]:
        if self._model is None:
            raise ApiError(503, f"model {self._model_name!r} is still loading", [RETRY_AFTER])
        return self._model

    async def _measured_infer(self, scope: Scope, receive: Receive) -> bytes:
        deadline = asyncio.get_running_loop().time() + self._timeout_seconds
        started = time.perf_counter()  # uvloop's own clock counts milliseconds
        code = 500
        self._metrics.in_flight.inc()
        try:
            body = await self._infer(scope, receive, deadline, started)
            code = 200
            return body
        except ApiError as error:
            code = error.status
            raise
        except Exception as error:
            log.exception("inference failed unexpectedly")
            raise ApiError(500, "internal error: the server's log has the details") from error
        finally:
            self._metrics.in_flight.dec()
            self._metrics.answered(code, time.perf_counter() - started)

    async def _infer(self, scope: Scope, receive: Receive, deadline: float, started: float) -> bytes:
        signature, thread = self._loaded()
        headers = dict(scope["headers"])
        _check_encoding(headers)
        bound = _bound(headers, started)
        with _queue_full():
            thread.check_room()
        body = await self._read(headers, receive, deadline)
        with self._stage(Stage.PARSE):
            request = parse_infer(body, signature)
        try:
            with _queue_full():
                arrays = await _unless_gone(receive, thread.run(request, deadline, bound))
        except WouldBeLateError:
            self._metrics.shed.inc()
            raise ApiError(
                503,
                "this server is overloaded, and the answer would come later than is wanted of this service",
                [RETRY_AFTER, SHED],
            ) from None
        except TimeoutError:
            raise ApiError(
                504, f"no answer within {self._timeout_seconds:g} s, the time-out of this service"
            ) from None
        except ModelInputError as error:
            raise ApiError(400, f"the model refused the input: {error}") from None
        except ModelFailedError as error:
            log.warning("model failed", error=str(error))
            raise ApiError(500, f"the model failed: {error}") from None
        with self._stage(Stage.SERIALIZE):
            return infer_response(request, signature, arrays)

    @contextmanager
    def _stage(self, stage: Stage) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._metrics.stage_seconds[stage].observe(time.perf_counter() - started)

    async def _read(self, headers: Mapping[bytes, bytes], receive: Receive, deadline: float) -> bytes:
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self._max_request_bytes:
            raise self._too_large()
        chunks: list[bytes] = []
        length = 0
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ApiError(400, "the connection closed before the request was complete")
                    chunk = message.get("body", b"")
                    length += len(chunk)
                    if length > self._max_request_bytes:
                        raise self._too_large()
                    if not message.get("more_body", False):
                        return b"".join([*chunks, chunk]) if chunks else chunk
                    chunks.append(chunk)
        except TimeoutError:
            message_text = f"the request body did not arrive within {self._timeout_seconds:g} s"
            raise ApiError(408, message_text, [CLOSE]) from None

    def _too_large(self) -> ApiError:
        return ApiError(
            413, f"the request body is longer than {self._max_request_bytes} bytes, the limit of this server"
        )


async def _unless_gone(receive: Receive, running: Coroutine[Any, Any, T]) -> T:
    """The result, while the client is there to get it. Raises ApiError 499, read by nobody, if it left."""
    caller = asyncio.current_task()
    assert caller is not None

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        caller.cancel()

    watching = asyncio.create_task(watch())
    try:
        return await running
    except asyncio.CancelledError:
        if not watching.done():
            raise
        caller.uncancel()
        raise ApiError(499, "the client left before the answer was there") from None
    finally:
        watching.cancel()


def _check_encoding(headers: Mapping[bytes, bytes]) -> None:
    encoding = headers.get(b"content-encoding", b"identity").decode("latin-1")
    if encoding.lower() != "identity":
        raise ApiError(
            415,
            f"Content-Encoding {encoding!r} is not supported: send the body as it is",
            [(b"accept-encoding", b"identity")],
        )
    if b"inference-header-content-length" in headers:
        raise ApiError(
            400,
            "Inference-Header-Content-Length announces binary tensors, but this server takes JSON only",
        )


def _bound(headers: Mapping[bytes, bytes], started: float) -> Bound | None:
    """What the gateway has written; None where late answers are wanted, too."""
    value = headers.get(LATENCY_BOUND_HEADER.encode())
    if value is None:
        return None
    if not (value.isdigit() and len(value) <= _MOST_DIGITS):
        raise ApiError(
            400,
            f"{LATENCY_BOUND_HEADER} is {value.decode('latin-1')!r}: write whole milliseconds, or leave it",
        )
    return Bound(started, int(value) / 1000)


@contextmanager
def _queue_full() -> Iterator[None]:
    try:
        yield
    except QueueFullError as error:
        raise ApiError(503, f"{error.waiting} requests wait for the model already", [RETRY_AFTER]) from None
