"""The gRPC surface: the Open Inference Protocol's service, grpc.health.v1 and reflection.

Calls are answered in threads beside the event loop. HTTP with binary tensors costs a fraction of their CPU.

| answer over HTTP | status over gRPC |
|---|---|
| 400 | INVALID_ARGUMENT |
| 404 | NOT_FOUND |
| 413 | RESOURCE_EXHAUSTED |
| 503 | UNAVAILABLE |
| 504 | DEADLINE_EXCEEDED |
| else | INTERNAL |
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

import grpc
import structlog
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from tailbound_runtime import describe, grpc_tensors
from tailbound_runtime import inference_pb2 as pb
from tailbound_runtime.app import App, Phase
from tailbound_runtime.budget import Budget, Share
from tailbound_runtime.contract import LATENCY_BOUND_HEADER
from tailbound_runtime.errors import ApiError
from tailbound_runtime.inference import check_room, infer
from tailbound_runtime.model import Model
from tailbound_runtime.reception import Limits
from tailbound_runtime.shedding import Bound
from tailbound_runtime.signature import InferRequest
from tailbound_runtime.tensors import Array

SERVICE: Final = "inference.GRPCInferenceService"
THREADS: Final = 16
MOST_CALLS: Final = 64
"""Calls at once, each of which may have a message of the longest length in memory."""
GRACE_SECONDS: Final = 2.0

CODES: Final = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Service:
    """Answers the calls, each in a thread of gRPC's."""

    def __init__(
        self,
        app: App,
        limits: Limits,
        budget: Budget,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._app = app
        self._limits = limits
        self._budget = budget
        self._loop = loop

    def handlers(self) -> grpc.GenericRpcHandler:
        """The service's methods, for a server."""
        methods: dict[str, tuple[Callable[[Any, grpc.ServicerContext], Any], Any, Any]] = {
            "ServerLive": (self._live, pb.ServerLiveRequest, pb.ServerLiveResponse),
            "ServerReady": (self._ready, pb.ServerReadyRequest, pb.ServerReadyResponse),
            "ModelReady": (self._model_ready, pb.ModelReadyRequest, pb.ModelReadyResponse),
            "ServerMetadata": (self._server, pb.ServerMetadataRequest, pb.ServerMetadataResponse),
            "ModelMetadata": (self._model, pb.ModelMetadataRequest, pb.ModelMetadataResponse),
            "ModelInfer": (self._infer, pb.ModelInferRequest, pb.ModelInferResponse),
        }
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                name: grpc.unary_unary_rpc_method_handler(
                    partial(_answered, asked, answer), response_serializer=answered.SerializeToString
                )
                for name, (answer, asked, answered) in methods.items()
            },
        )

    def _live(self, asked: pb.ServerLiveRequest, _: grpc.ServicerContext) -> pb.ServerLiveResponse:
        return pb.ServerLiveResponse(live=True)

    def _ready(self, asked: pb.ServerReadyRequest, _: grpc.ServicerContext) -> pb.ServerReadyResponse:
        return pb.ServerReadyResponse(ready=self._app.phase is Phase.READY)

    def _model_ready(self, asked: pb.ModelReadyRequest, _: grpc.ServicerContext) -> pb.ModelReadyResponse:
        try:
            model = self._app.models.find(asked.name, asked.version)
        except ApiError:
            return pb.ModelReadyResponse(ready=False)
        return pb.ModelReadyResponse(ready=model.is_open and self._app.phase is Phase.READY)

    def _server(self, asked: pb.ServerMetadataRequest, _: grpc.ServicerContext) -> pb.ServerMetadataResponse:
        return pb.ServerMetadataResponse(**{**describe.server(), "extensions": []})

    def _model(self, asked: pb.ModelMetadataRequest, _: grpc.ServicerContext) -> pb.ModelMetadataResponse:
        model = self._app.models.find(asked.name, asked.version)
        return pb.ModelMetadataResponse(**describe.metadata(model.loaded()[0]))

    def _infer(self, asked: pb.ModelInferRequest, context: grpc.ServicerContext) -> pb.ModelInferResponse:
        started = time.perf_counter()
        model = self._app.models.take(asked.model_name, asked.model_version)
        code = 500
        model.metrics.begun()
        try:
            with Share(self._budget) as share:
                share.need(asked.ByteSize())
                answer = self._inferred(asked, context, started, share, model)
            code = 200
            return answer
        except ApiError as error:
            code = error.status
            raise
        finally:
            model.metrics.answered(code, time.perf_counter() - started, "grpc", asked.ByteSize())
            model.give()

    def _inferred(
        self,
        asked: pb.ModelInferRequest,
        context: grpc.ServicerContext,
        started: float,
        share: Share,
        model: Model,
    ) -> pb.ModelInferResponse:
        signature, thread = model.loaded()
        check_room(thread, model.metrics)
        bound = _bound(context, started)
        began = time.perf_counter()
        request = grpc_tensors.parse(asked, signature, share.need)
        model.metrics.decoded(time.perf_counter() - began)
        arrays: Sequence[Array] | None = thread.beside(request)
        if arrays is None:
            arrays = self._waited(request, model, context, bound)
        began = time.perf_counter()
        answer = grpc_tensors.response(request, signature, arrays)
        model.metrics.encoded(time.perf_counter() - began)
        return answer

    def _waited(
        self,
        request: InferRequest,
        model: Model,
        context: grpc.ServicerContext,
        bound: Bound | None,
    ) -> Sequence[Array]:
        """The outputs, from the inference thread by way of the loop."""
        left = context.time_remaining()
        seconds = self._limits.seconds if left is None else min(left, self._limits.seconds)

        async def run() -> Sequence[Array]:
            own = request.timeout_seconds
            deadline = self._loop.time() + (seconds if own is None else min(seconds, own))
            return await infer(request, model.loaded()[1], model.metrics, seconds, deadline, bound)

        running = asyncio.run_coroutine_threadsafe(run(), self._loop)
        context.add_callback(running.cancel)
        try:
            return running.result()
        except CancelledError:
            raise ApiError(499, "the client left before the answer was there") from None


class Server:
    """The running gRPC server."""

    def __init__(self, service: Service, port: int, limits: Limits) -> None:
        """Begin to listen. Raises RuntimeError if the port is taken."""
        self._server = grpc.server(
            ThreadPoolExecutor(THREADS, "grpc"),
            handlers=[service.handlers()],
            options=[
                ("grpc.max_receive_message_length", limits.max_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),
            ],
            maximum_concurrent_rpcs=MOST_CALLS,
        )
        self._health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
        )
        self.ready(False)
        self.port: int = self._server.add_insecure_port(f"[::]:{port}")
        self._server.start()

    def ready(self, ready: bool) -> None:
        """What grpc.health.v1 says of the server and of the service."""
        status = health_pb2.HealthCheckResponse
        for name in ("", SERVICE):
            self._health.set(name, status.SERVING if ready else status.NOT_SERVING)

    def stop(self) -> None:
        """Finish the calls that are here, within GRACE_SECONDS; blocks."""
        self._server.stop(GRACE_SECONDS).wait()


def _answered(
    kind: type[Message],
    answer: Callable[[Any, grpc.ServicerContext], T],
    content: bytes,
    context: grpc.ServicerContext,
) -> T:
    """One call. grpc would blame the server (INTERNAL) for a message that it cannot parse itself."""
    try:
        return answer(kind.FromString(content), context)
    except DecodeError:
        name = kind.DESCRIPTOR.name
        _refuse(context, grpc.StatusCode.INVALID_ARGUMENT, f"the message is no {name} of {SERVICE}")
    except ApiError as error:
        context.set_trailing_metadata([(name.decode(), value.decode()) for name, value in error.headers])
        _refuse(context, CODES.get(error.status, grpc.StatusCode.INTERNAL), error.message)
    except Exception:
        log.exception("inference failed unexpectedly")
        _refuse(context, grpc.StatusCode.INTERNAL, "internal error: the server's log has the details")


def _refuse(context: grpc.ServicerContext, code: grpc.StatusCode, message: str) -> NoReturn:
    context.abort(code, message)
    raise AssertionError("abort raises")


def _bound(context: grpc.ServicerContext, started: float) -> Bound | None:
    """What the gateway has written; None where late answers are wanted, too."""
    value = dict(context.invocation_metadata()).get(LATENCY_BOUND_HEADER)
    return Bound(started, int(value) / 1000) if value is not None and value.isdigit() else None
