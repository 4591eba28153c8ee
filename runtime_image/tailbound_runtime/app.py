"""What a request over HTTP is answered with: bodies and status codes. `routes.py` has the paths.

HEAD goes where GET goes. Every error is {"error": "…"}. The Content-Type of a request is not looked at: the
protocol knows one, curl -d sends another.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Any, Final, TypeVar

import orjson
import structlog

from tailbound_runtime import describe, reception
from tailbound_runtime.budget import RETRY_AFTER, Budget, Share
from tailbound_runtime.errors import ApiError
from tailbound_runtime.heads import Heads
from tailbound_runtime.inference import FAILURES, check_room, in_words, infer
from tailbound_runtime.metrics import CONTENT_TYPE, Metrics
from tailbound_runtime.protocol import is_long, parse_infer
from tailbound_runtime.queue import Job
from tailbound_runtime.reception import Head, Intake, Limits
from tailbound_runtime.responses import JSON, Response, packing, refusal, success
from tailbound_runtime.routes import Route, path_of, routes
from tailbound_runtime.shedding import Bound
from tailbound_runtime.signature import MODEL_VERSION, InferRequest, Signature
from tailbound_runtime.tensors import Array
from tailbound_runtime.worker import InferenceThread

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Pending:
    """An inference whose run is over when the job's future is done; to be cancelled if its client leaves."""

    __slots__ = ("intake", "job", "request")

    def __init__(self, intake: Intake, request: InferRequest, job: Job) -> None:
        self.intake = intake
        self.request = request
        self.job = job


class Phase(Enum):
    """Where the process is in its life; it only moves forward."""

    LOADING = 1
    READY = 2
    DRAINING = 3


class App:
    """The answers. `phase` is moved by the server's life cycle.

    An inference is begun when its head is there, receives its body, and is inferred; or it has left.
    """

    def __init__(self, model_name: str, limits: Limits, budget: Budget, metrics: Metrics) -> None:
        self.phase = Phase.LOADING
        self._model_name = model_name
        self._limits = limits
        self._budget = budget
        self._metrics = metrics
        self._routes = routes(model_name)
        self._heads: Heads
        self._loop = asyncio.get_running_loop()
        self._model: tuple[Signature, InferenceThread] | None = None
        # One thread: what takes long is done one after the other, and liveness is answered in between.
        self._long = ThreadPoolExecutor(1, "long")

    def open(self, signature: Signature, thread: InferenceThread) -> None:
        """Become ready with this model."""
        self._model = (signature, thread)
        self._heads = Heads(signature)
        self.phase = Phase.READY

    def head(self, method: bytes, url: bytes, headers: Mapping[bytes, bytes]) -> Head | Response:
        """What a head says, if it is that of an inference, and otherwise what it is answered with."""
        route = self._routes.get(url)
        try:
            path = ""
            if route is None:
                path = path_of(url)
                route = self._routes.get(path.encode())
            if route is Route.INFER and method == b"POST":
                return Head(headers, self._limits)
            return self._answer(method.decode(), path or path_of(url), route)
        except ApiError as error:
            return refusal(error)
        except Exception:
            log.exception("a request failed unexpectedly")
            return refusal(_UNEXPECTED)

    def begin(self, head: Head) -> Intake | Response:
        """Begin an inference, whose body decides the rest."""
        self._metrics.begun()
        intake = Intake(head, time.perf_counter(), self._limits, Share(self._budget))
        if self._model is not None and head.refusal is not None:
            return self._refused(intake, head.refusal)
        try:
            _, thread = self.loaded()
            check_room(thread, self._metrics)
        except ApiError as error:
            return self._refused(intake, error)
        return intake

    def receive(self, intake: Intake, part: bytes) -> Response | None:
        """Take in a part of the body; an answer if that refuses it."""
        try:
            intake.add(part)
        except ApiError as error:
            return self._refused(intake, error)
        return None

    def received(self, intake: Intake, size: int) -> Response | None:
        """So many bytes came into the room that the intake has made; an answer if that refuses it."""
        try:
            intake.share.need(size)
        except ApiError as error:
            return self._refused(intake, error)
        return None

    def late(self, intake: Intake) -> Response:
        """The answer to a body that has not arrived in time."""
        return self._refused(intake, self._limits.too_slow())

    def left(self, intake: Intake, complete: bool) -> None:
        """The client has gone before its turn came, with all of its body sent or not."""
        self._end(intake, 499 if complete else 400)

    def sent(self, seconds: float) -> None:
        """Writing the answer to an inference took so long."""
        self._metrics.sent(seconds)

    def _refused(self, intake: Intake, error: ApiError) -> Response:
        self._end(intake, error.status)
        return refusal(error)

    def _end(self, intake: Intake, code: int) -> None:
        if not intake.ended:
            body_bytes = len(intake.body)
            intake.end()
            self._metrics.answered(code, time.perf_counter() - intake.started, "http", body_bytes)

    def _answer(self, method: str, path: str, route: Route | None) -> Response:
        if route is None:
            raise self._not_found(path)
        allowed = route.partition(" ")[0]
        if method != allowed and not (allowed == "GET" and method == "HEAD"):
            raise ApiError(405, f"{path} takes {allowed}, not {method}", [(b"allow", allowed.encode())])
        if route is Route.METRICS:
            return Response(200, [(b"content-type", CONTENT_TYPE)], [self._metrics.render()])
        if route is Route.LOAD:
            raise ApiError(
                400, f"this server has model {self._model_name!r} from its start to its end, and no other"
            )
        ready = self.phase is Phase.READY
        status = 503 if route in (Route.READY, Route.MODEL_READY) and not ready else 200
        return Response(status, [JSON], [orjson.dumps(self._described(route, ready))])

    def _described(self, route: Route, ready: bool) -> Any:
        described: Mapping[Route, Callable[[], Any]] = {
            Route.SERVER: describe.server,
            Route.LIVE: lambda: {"live": True, "ready": ready},
            Route.READY: lambda: {"live": True, "ready": ready},
            Route.MODEL: lambda: describe.metadata(self.loaded()[0]),
            Route.MODEL_READY: lambda: {"name": self._model_name, "ready": ready},
            Route.CONFIG: lambda: describe.config(self.loaded()[0]),
            Route.STATISTICS: lambda: describe.statistics(self._model_name, self._metrics),
            Route.INDEX: lambda: describe.index(self._model_name, ready),
        }
        return described[route]()

    def _not_found(self, path: str) -> ApiError:
        if path.startswith("/v2/models/"):
            known = f"it has model {self._model_name!r}, version {MODEL_VERSION!r}"
            return ApiError(404, f"this server has no {path}: {known}")
        return ApiError(404, f"this server has no {path}: GET /v2 says what answers here")

    def loaded(self) -> tuple[Signature, InferenceThread]:
        """The model. Raises ApiError 503 before it is there."""
        if self._model is None:
            raise ApiError(503, f"model {self._model_name!r} is still loading", [RETRY_AFTER])
        return self._model

    def infer(self, intake: Intake, now: float) -> Response | Pending | Coroutine[Any, Any, Response]:
        """The answer to a request whose last byte has come now: at once, or what becomes of it."""
        intake.received = now
        if intake.head.encoding is not None or self._heads.takes_long(
            len(intake.body), intake.head.json_length
        ):
            return self._later(intake)
        try:
            signature, thread = self.loaded()
            request = self._heads.parse(intake.body, intake.head.json_length, intake.share.need)
            self._decoded(intake)
            arrays = thread.here(request)
            if arrays is None:
                return Pending(intake, request, thread.ask(request, self._deadline(intake), _bound(intake)))
            return self._inferred_here(intake, request, signature, arrays)
        except Exception as error:
            return self._failed(intake, error)

    def run_is_over(self, pending: Pending) -> Response | Coroutine[Any, Any, Response] | None:
        """The answer to an inference whose run is over; None if its caller has gone."""
        intake, job = pending.intake, pending.job
        signature, thread = self.loaded()
        if job.future.cancelled():
            thread.leave(job)
            self._end(intake, 499)
            return None
        try:
            return self._inferred_here(intake, pending.request, signature, job.future.result())
        except Exception as error:
            thread.leave(job)
            return self._failed(intake, error)

    def _failed(self, intake: Intake, error: Exception) -> Response:
        if isinstance(error, FAILURES):
            error = in_words(error, self._metrics, self._limits.seconds)
        if not isinstance(error, ApiError):
            log.error("inference failed unexpectedly", exc_info=error)
            error = _UNEXPECTED
        return self._refused(intake, error)

    def _deadline(self, intake: Intake) -> float:
        return self._loop.time() + intake.left(time.perf_counter())

    def _inferred_here(
        self, intake: Intake, request: InferRequest, signature: Signature, arrays: Sequence[Array]
    ) -> Response | Coroutine[Any, Any, Response]:
        if is_long(request, signature, arrays):
            return self._later(intake, request, arrays)
        response = self._written(intake, request, arrays)
        packed_with = packing(intake, response)
        if packed_with is not None:
            return self._later(intake, response=response)
        self._end(intake, 200)
        return response

    async def _later(
        self,
        intake: Intake,
        request: InferRequest | None = None,
        arrays: Sequence[Array] | None = None,
        response: Response | None = None,
    ) -> Response:
        """The answer, from what is there of it."""
        code = 499  # the client left before the answer was there
        try:
            if response is None:
                response = await self._inferred(intake, request, arrays)
            packed_with = packing(intake, response)
            if packed_with is not None:
                response = await self._packed(packed_with, response)
            code = 200
            return response
        except ApiError as error:
            code = error.status
            return refusal(error)
        except Exception:
            log.exception("inference failed unexpectedly")
            code = 500
            return refusal(_UNEXPECTED)
        finally:
            self._end(intake, code)

    async def _inferred(
        self, intake: Intake, request: InferRequest | None, arrays: Sequence[Array] | None
    ) -> Response:
        signature, thread = self.loaded()
        if request is None:
            request = await self._aside(lambda: self._unpacked(intake, signature))
        if arrays is None:
            deadline = self._deadline(intake)
            arrays = await infer(
                request, thread, self._metrics, self._limits.seconds, deadline, _bound(intake)
            )
        if not is_long(request, signature, arrays):
            return self._written(intake, request, arrays)
        known, there = request, arrays
        return await self._aside(lambda: self._written(intake, known, there))

    def _unpacked(self, intake: Intake, signature: Signature) -> InferRequest:
        body = intake.body
        if intake.head.encoding is not None:
            body = reception.unpack(intake.head.encoding, body, self._limits, intake.share)
        request = parse_infer(body, intake.head.json_length, signature, intake.share.need)
        self._decoded(intake)
        return request

    def _decoded(self, intake: Intake) -> None:
        self._metrics.received(intake.received - intake.started)
        self._metrics.decoded(time.perf_counter() - intake.received)

    def _written(self, intake: Intake, request: InferRequest, arrays: Sequence[Array]) -> Response:
        began = time.perf_counter()
        response = success(self._heads.answer(request, arrays))
        self._metrics.encoded(time.perf_counter() - began)
        return response

    async def _packed(self, packing: bytes, response: Response) -> Response:
        packed = await self._aside(lambda: reception.pack(packing, b"".join(response.parts)))
        return Response(response.status, [*response.headers, (b"content-encoding", packing)], [packed])

    async def _aside(self, work: Callable[[], T]) -> T:
        """The result of this work, which takes long, done in a thread of its own."""
        return await self._loop.run_in_executor(self._long, work)


_UNEXPECTED: Final = ApiError(500, "internal error: the server's log has the details")


def _bound(intake: Intake) -> Bound | None:
    """When an answer is late, as the gateways measure it: from the last byte of the request on."""
    return None if intake.head.bound_seconds is None else Bound(intake.received, intake.head.bound_seconds)
