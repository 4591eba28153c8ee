"""The methods of this server over gRPC: the Open Inference Protocol's, grpc.health.v1's and reflection."""

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final

from google.protobuf.message import Message

from tailbound_runtime import describe, grpc_health, grpc_reflection
from tailbound_runtime import inference_pb2 as pb
from tailbound_runtime.app import Phase
from tailbound_runtime.errors import ApiError
from tailbound_runtime.grpc_call import SERVICE, Arrival, Surface, parsed
from tailbound_runtime.grpc_head import RpcHead
from tailbound_runtime.grpc_health import Health
from tailbound_runtime.grpc_infer import InferCall
from tailbound_runtime.grpc_message_call import MessageCall
from tailbound_runtime.grpc_reflection import Reflection
from tailbound_runtime.health_pb2 import HealthCheckRequest
from tailbound_runtime.http2 import Http2Connection
from tailbound_runtime.http2_outflow import Stream
from tailbound_runtime.http2_streams import Call
from tailbound_runtime.protocol import Body

_OF_HTTP: Final = "binary_tensor_data"  # the extension that gRPC has no need of
SERVICES: Final = (SERVICE, grpc_health.SERVICE, grpc_reflection.V1, grpc_reflection.V1ALPHA)

Method = Callable[[Http2Connection, Stream, RpcHead], Call]
Answer = Callable[[Any], Message | Coroutine[Any, Any, Message]]


class AskCall(MessageCall):
    """A call whose answer is a function of its message."""

    __slots__ = ("_answer", "_kind")

    def __init__(self, kind: type[Message], answer: Answer, *arrival: *Arrival) -> None:
        super().__init__(*arrival)
        self.limits = self.limits.of_calls()
        self._kind = kind
        self._answer = answer

    def take(self, message: Body) -> None:
        """Answer it, now or later."""
        outcome = self._answer(parsed(self._kind, message))
        if isinstance(outcome, Message):
            self.answer([outcome.SerializeToString()])
        else:
            self.later(self._later(outcome))

    async def _later(self, outcome: Coroutine[Any, Any, Message]) -> None:
        answer = await outcome
        self.answer([answer.SerializeToString()])


class Service:
    """The methods of GRPCInferenceService but ModelInfer."""

    def __init__(self, surface: Surface) -> None:
        self._app = surface.app

    def live(self, asked: pb.ServerLiveRequest) -> pb.ServerLiveResponse:
        """Always."""
        return pb.ServerLiveResponse(live=True)

    def ready(self, asked: pb.ServerReadyRequest) -> pb.ServerReadyResponse:
        """Answer as /v2/health/ready does."""
        return pb.ServerReadyResponse(ready=self._app.phase is Phase.READY)

    def model_ready(self, asked: pb.ModelReadyRequest) -> pb.ModelReadyResponse:
        """Answer as /v2/models/NAME/ready does; False for a model that does not exist."""
        try:
            model = self._app.models.find(asked.name, asked.version)
        except ApiError:
            return pb.ModelReadyResponse(ready=False)
        return pb.ModelReadyResponse(ready=model.is_open and self._app.phase is Phase.READY)

    def server(self, asked: pb.ServerMetadataRequest) -> pb.ServerMetadataResponse:
        """Answer as /v2 does."""
        extensions = [each for each in describe.EXTENSIONS if each != _OF_HTTP]
        return pb.ServerMetadataResponse(**{**describe.server(), "extensions": extensions})

    def model(self, asked: pb.ModelMetadataRequest) -> pb.ModelMetadataResponse:
        """Answer as /v2/models/NAME does. Raises ApiError."""
        model = self._app.models.find(asked.name, asked.version)
        return pb.ModelMetadataResponse(**describe.metadata(model.loaded()[0]))

    def config(self, asked: pb.ModelConfigRequest) -> pb.ModelConfigResponse:
        """Answer as /v2/models/NAME/config does. Raises ApiError."""
        model = self._app.models.find(asked.name, asked.version)
        return pb.ModelConfigResponse(config=pb.ModelConfig(**describe.config(model.loaded()[0])))

    def statistics(self, asked: pb.ModelStatisticsRequest) -> pb.ModelStatisticsResponse:
        """Answer as /v2/models/NAME/stats does; without a name as /v2/models/stats. Raises ApiError."""
        models = self._app.models
        wanted = [models.find(asked.name, asked.version)] if asked.name else models
        return pb.ModelStatisticsResponse(**describe.statistics(wanted))

    def index(self, asked: pb.RepositoryIndexRequest) -> pb.RepositoryIndexResponse:
        """Answer as /v2/repository/index does; with the ready ones only, if the request says so."""
        models = describe.index(self._app.models, self._app.phase is Phase.READY)
        wanted = [each for each in models if each["state"] == "READY" or not asked.ready]
        return pb.RepositoryIndexResponse(
            models=[pb.RepositoryIndexResponse.ModelIndex(**each) for each in wanted]
        )

    async def load(self, asked: pb.RepositoryModelLoadRequest) -> pb.RepositoryModelLoadResponse:
        """Do what /v2/repository/models/NAME/load does. Raises ApiError."""
        await self._app.controlled(asked.parameters).load(asked.model_name)
        return pb.RepositoryModelLoadResponse()

    async def unload(self, asked: pb.RepositoryModelUnloadRequest) -> pb.RepositoryModelUnloadResponse:
        """Do what /v2/repository/models/NAME/unload does. Raises ApiError."""
        await self._app.controlled(asked.parameters).unload(asked.model_name)
        return pb.RepositoryModelUnloadResponse()


def methods_of(surface: Surface, health: Health) -> Mapping[bytes, Method]:
    """What begins a call, by its path."""
    service, reflection = Service(surface), Reflection(surface, SERVICES)
    asked: dict[str, tuple[type[Message], Answer]] = {
        "ServerLive": (pb.ServerLiveRequest, service.live),
        "ServerReady": (pb.ServerReadyRequest, service.ready),
        "ModelReady": (pb.ModelReadyRequest, service.model_ready),
        "ServerMetadata": (pb.ServerMetadataRequest, service.server),
        "ModelMetadata": (pb.ModelMetadataRequest, service.model),
        "ModelConfig": (pb.ModelConfigRequest, service.config),
        "ModelStatistics": (pb.ModelStatisticsRequest, service.statistics),
        "RepositoryIndex": (pb.RepositoryIndexRequest, service.index),
        "RepositoryModelLoad": (pb.RepositoryModelLoadRequest, service.load),
        "RepositoryModelUnload": (pb.RepositoryModelUnloadRequest, service.unload),
    }
    methods: dict[str, Method] = {
        f"/{SERVICE}/{name}": partial(AskCall, kind, answer, surface)
        for name, (kind, answer) in asked.items()
    }
    methods |= {
        f"/{SERVICE}/ModelInfer": partial(InferCall, surface),
        f"/{grpc_health.SERVICE}/Check": partial(AskCall, HealthCheckRequest, health.check, surface),
        f"/{grpc_health.SERVICE}/Watch": health.watch,
        f"/{grpc_reflection.V1}/ServerReflectionInfo": reflection.call,
        f"/{grpc_reflection.V1ALPHA}/ServerReflectionInfo": reflection.call,
    }
    return {path.encode(): method for path, method in methods.items()}
