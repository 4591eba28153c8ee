"""Calls of the Open Inference Protocol over gRPC, by a service's own name."""

from collections.abc import Sequence
from typing import Final

from grpc_health.v1 import health_pb2
from tritonclient.grpc import service_pb2

from e2e.scenarios.library.api import Object
from e2e.scenarios.library.models import INPUT

PORT: Final = 8081
MODEL_INFER: Final = "inference.GRPCInferenceService/ModelInfer"
WATCH: Final = "grpc.health.v1.Health/Watch"


def url(namespace: str, service: str, method: str) -> str:
    """The URL at which the client calls a method."""
    return f"grpc://{service}.{namespace}.svc.cluster.local:80/{method}"


def offering(server: Object, variable: str) -> Object:
    """spec.server of a runtime whose server opens its port for gRPC by this variable."""
    port = {"name": "grpc", "containerPort": PORT}
    env = [*server.get("env", []), {"name": variable, "value": str(PORT)}]
    return {**server, "ports": [*server["ports"], port], "env": env}


def infer_message(service: str, values: Sequence[float]) -> bytes:
    """A ModelInferRequest of one row."""
    request = service_pb2.ModelInferRequest(model_name=service)
    tensor = request.inputs.add(name=INPUT, datatype="FP32", shape=[1, len(values)])
    tensor.contents.fp32_contents.extend(values)
    return bytes(request.SerializeToString())


def prediction(answer: bytes) -> list[float]:
    """The row of a ModelInferResponse, whose tensors are written as those of the request were."""
    (output,) = service_pb2.ModelInferResponse.FromString(answer).outputs
    return [float(value) for value in output.contents.fp32_contents]


def serving(answer: bytes) -> bool:
    """Whether a HealthCheckResponse says that the server serves."""
    found = health_pb2.HealthCheckResponse.FromString(answer)
    return bool(found.status == health_pb2.HealthCheckResponse.SERVING)
