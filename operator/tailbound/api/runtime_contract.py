"""What a serving pod promises the rest of Tailbound, and what it is given. Frozen.

The pod has one container named `SERVER_CONTAINER`, from the ServingRuntime, and one init container named
`FETCH_CONTAINER`, from us. Both share the volume `MODELS_VOLUME`, mounted at `MODELS_MOUNT`; the server
mounts it read-only and finds its model at `model_path(format)`.

A container that ends because of something a person must know writes one JSON object to its termination
message (/dev/termination-log, at most 4096 bytes): `Termination`. The operator turns it into a condition.
"""

from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

SERVER_CONTAINER: Final = "server"
FETCH_CONTAINER: Final = "fetch"
MODELS_VOLUME: Final = "models"
MODELS_MOUNT: Final = "/mnt/models"
# Writable scratch space of the server: its root filesystem is read-only.
SCRATCH_VOLUME: Final = "scratch"
SCRATCH_MOUNT: Final = "/tmp"  # noqa: S108 - a mount point of its own in the pod, not a shared folder

HTTP_PORT_NAME: Final = "http"  # required: Open Inference Protocol v2 over HTTP/1.1
GRPC_PORT_NAME: Final = "grpc"  # optional: Open Inference Protocol v2 over h2c
METRICS_PORT_NAME: Final = (
    "metrics"  # optional: Prometheus text format at /metrics; else the http port has it
)


LATENCY_BOUND_HEADER: Final = "x-tailbound-latency-bound-ms"
"""Of a request: milliseconds after which its answer is late, so that it is better refused than late."""
SHED_HEADER: Final = "x-tailbound-shed"
"""Of a 503: the server refuses the request for no other reason than that it would be answered late."""


class Env(StrEnum):
    """Environment of the server container, set by the operator on every runtime."""

    MODEL_NAME = "TAILBOUND_MODEL_NAME"  # the InferenceService's name: the NAME in /v2/models/NAME
    MODEL_PATH = "TAILBOUND_MODEL_PATH"  # model_path(format)
    MODEL_FORMAT = "TAILBOUND_MODEL_FORMAT"
    REVISION = "TAILBOUND_REVISION"  # the revision's name, for logs and metrics
    REQUEST_TIMEOUT_SECONDS = "TAILBOUND_REQUEST_TIMEOUT_SECONDS"  # decimal seconds: spec.timeout
    DRAIN_SECONDS = (
        "TAILBOUND_DRAIN_SECONDS"  # serve on for this long after SIGTERM while readiness answers 503
    )
    CPU_LIMIT = "TAILBOUND_CPU_LIMIT"  # whole CPUs, at least 1, rounded up from resources.cpu
    BATCHING_MODE = "TAILBOUND_BATCHING_MODE"  # none, dynamic or static: spec.batching.mode
    BATCHING_MAX_SIZE = "TAILBOUND_BATCHING_MAX_SIZE"  # the most rows of one run; 1 with mode none
    BATCHING_PREFERRED_SIZES = (
        "TAILBOUND_BATCHING_PREFERRED_SIZES"  # rising, with commas between them; may be empty
    )
    BATCHING_MAX_DELAY_SECONDS = "TAILBOUND_BATCHING_MAX_DELAY_SECONDS"  # decimal seconds


class TerminationReason(StrEnum):
    """Why a container ended. Each equals the condition Reason of the same value."""

    DIGEST_MISMATCH = "DigestMismatch"
    SOURCE_NOT_FOUND = "SourceNotFound"
    SOURCE_FORBIDDEN = "SourceForbidden"
    SOURCE_UNREACHABLE = "SourceUnreachable"
    ADDRESS_DENIED = "AddressDenied"
    INSUFFICIENT_STORAGE = "InsufficientStorage"
    MODEL_LOAD_FAILED = "ModelLoadFailed"
    MODEL_BROKEN = "ModelBroken"
    FETCHED = "Fetched"  # success: the message says how many bytes


class Termination(BaseModel):
    """The JSON object in a termination message."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    reason: TerminationReason
    message: str = Field(
        description="One sentence for a person: what was wrong, with which value, and the remedy."
    )


def model_path(model_format: str) -> str:
    """Absolute path of the model file in both containers, e.g. /mnt/models/model.onnx."""
    return f"{MODELS_MOUNT}/model.{model_format}"
