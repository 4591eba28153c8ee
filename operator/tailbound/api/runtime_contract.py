"""What a serving pod promises the rest of Tailbound, and what it is given. Frozen.

The pod has one container named `SERVER_CONTAINER`, from the ServingRuntime, and one init container named
`FETCH_CONTAINER`, from us. Both share the volume `MODELS_VOLUME`, mounted at `MODELS_MOUNT`; the server
mounts it read-only and finds its model at `model_path(format, path)`.

A container that ends because of something a person must know writes one JSON object to its termination
message (/dev/termination-log, at most 4096 bytes): `Termination`. The operator turns it into a condition.
"""

import json
import re
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final, TypeGuard

SERVER_CONTAINER: Final = "server"
FETCH_CONTAINER: Final = "fetch"
# With drain.mode hold: a sidecar whose answer to GET HOLD_PATH lets SIGTERM through to the server.
HOLD_CONTAINER: Final = "hold"
HOLD_PATH: Final = "/release"
MODELS_VOLUME: Final = "models"
MODELS_MOUNT: Final = "/mnt/models"
# Volumes of the fetch container: a model that is mounted (which the server mounts, too, read-only), the
# Secret and the certificates of spec.model.
SOURCE_VOLUME: Final = "model-source"
SOURCE_MOUNT: Final = "/mnt/source"
# The volume of spec.model.cache, which only the fetch container mounts writable.
CACHE_VOLUME: Final = "model-cache"
CACHE_MOUNT: Final = "/mnt/cache"
CREDENTIALS_VOLUME: Final = "model-credentials"
CREDENTIALS_MOUNT: Final = "/var/run/tailbound/model-credentials"
CA_VOLUME: Final = "model-ca"
CA_MOUNT: Final = "/var/run/tailbound/model-ca"
CA_KEY: Final = "ca.crt"
# Writable scratch space of the server: its root filesystem is read-only.
SCRATCH_VOLUME: Final = "scratch"
SCRATCH_MOUNT: Final = "/tmp"  # noqa: S108 - a mount point of its own in the pod, not a shared folder

# Where the fetch container answers GET with its progress while it downloads.
PROGRESS_PORT: Final = 8079

HTTP_PORT_NAME: Final = "http"  # required: Open Inference Protocol v2 over HTTP/1.1
GRPC_PORT_NAME: Final = "grpc"  # optional: Open Inference Protocol v2 over h2c
METRICS_PORT_NAME: Final = (
    "metrics"  # optional: Prometheus text format at /metrics; else the http port has it
)


LATENCY_BOUND_HEADER: Final = "x-tailbound-latency-bound-ms"
"""Header of a request: milliseconds after which its answer is late, so that it is better refused."""
SHED_HEADER: Final = "x-tailbound-shed"
"""Header of a 503: the server refuses the request only because it would be answered late."""


class Env(StrEnum):
    """Environment of the server container, set by the operator on every runtime."""

    MODEL_NAME = "TAILBOUND_MODEL_NAME"  # the InferenceService's name: the NAME in /v2/models/NAME
    MODEL_PATH = "TAILBOUND_MODEL_PATH"  # model_path(format, path)
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


class ServerOption(StrEnum):
    """Environment of the included model server that a runtime or a service may set."""

    HTTP_PORT = "TAILBOUND_HTTP_PORT"
    GRPC_PORT = "TAILBOUND_GRPC_PORT"
    MAX_REQUEST_BYTES = "TAILBOUND_MAX_REQUEST_BYTES"
    MAX_BUFFERED_BYTES = "TAILBOUND_MAX_BUFFERED_BYTES"
    MAX_CONNECTIONS = "TAILBOUND_MAX_CONNECTIONS"
    QUEUE_LIMIT = "TAILBOUND_QUEUE_LIMIT"
    REQUEST_LOG_EVERY = "TAILBOUND_REQUEST_LOG_EVERY"
    TRACING = "TAILBOUND_TRACING"
    ENGINE = "TAILBOUND_ENGINE"
    CACHE_BYTES = "TAILBOUND_CACHE_BYTES"
    PRIORITY_LEVELS = "TAILBOUND_PRIORITY_LEVELS"
    PROVIDERS = "TAILBOUND_PROVIDERS"
    DEVICE_OPTIONS = "TAILBOUND_DEVICE_OPTIONS"
    DEVICE_MEMORY_LIMIT = "TAILBOUND_DEVICE_MEMORY_LIMIT"


class FetchEnv(StrEnum):
    """Environment of the fetch container, set by the operator. Lists have commas between their entries."""

    ALLOWED_HOSTS = "TAILBOUND_FETCH_ALLOWED_HOSTS"
    DENIED_CIDRS = "TAILBOUND_FETCH_DENIED_CIDRS"
    ALLOWED_CIDRS = "TAILBOUND_FETCH_ALLOWED_CIDRS"
    TIMEOUT_SECONDS = "TAILBOUND_FETCH_TIMEOUT_SECONDS"  # of the whole fetch
    LIMIT_BYTES = "TAILBOUND_FETCH_LIMIT_BYTES"  # of everything that is stored
    PROXY = "TAILBOUND_FETCH_PROXY"  # http://HOST:PORT, if there is one
    CA_CERTIFICATES = "TAILBOUND_FETCH_CA_CERTIFICATES"  # further ones, PEM
    DEVICE_MEMORY = "TAILBOUND_FETCH_DEVICE_MEMORY"  # what the weights must fit, as device_memory writes it


_SHA256: Final = re.compile("[0-9a-f]{64}")


class TerminationReason(StrEnum):
    """Why a container ended. Each equals the condition Reason of the same value."""

    DIGEST_MISMATCH = "DigestMismatch"
    SOURCE_CHANGED = "SourceChanged"
    SOURCE_NOT_FOUND = "SourceNotFound"
    SOURCE_FORBIDDEN = "SourceForbidden"
    SOURCE_UNREACHABLE = "SourceUnreachable"
    ADDRESS_DENIED = "AddressDenied"
    CREDENTIALS_REFUSED = "CredentialsRefused"
    NOT_A_MODEL = "NotAModel"
    INSUFFICIENT_STORAGE = "InsufficientStorage"
    DISK_FAILED = "DiskFailed"
    CACHE_UNUSABLE = "CacheUnusable"
    MODEL_TOO_LARGE = "ModelTooLarge"
    MODEL_LOAD_FAILED = "ModelLoadFailed"
    MODEL_BROKEN = "ModelBroken"
    FETCHED = "Fetched"  # success: the message says how many bytes


@dataclass(frozen=True)
class Termination:
    """The JSON object in a termination message.

    Written and read without a parser of models: a container that only fetches has none to load.
    """

    reason: TerminationReason
    message: str
    """One sentence for a person: what was wrong, with which value, and the remedy."""

    def written(self) -> str:
        """The JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def read(cls, text: str | bytes) -> "Termination":
        """The reason and message in a JSON object; other members are ignored. Raises ValueError."""
        match _json(text):
            case {"reason": str(reason), "message": str(message)}:
                message.encode()  # half of a surrogate pair can be stored nowhere
                return cls(TerminationReason(reason), message)
        raise ValueError("no object with reason and message")


@dataclass(frozen=True)
class Resolution(Termination):
    """What the Job writes that resolves a source without a digest."""

    sha256: str
    size_bytes: int
    weight_bytes: int | None = None

    @classmethod
    def read(cls, text: str | bytes) -> "Resolution":
        """The termination that such a JSON object states. Raises ValueError."""
        said = Termination.read(text)
        match _json(text):
            case {"sha256": str(sha256), "size_bytes": int(size), **others} if _SHA256.fullmatch(sha256):
                weights = others.get("weight_bytes")
                if _is_count(size) and (weights is None or _is_count(weights)):
                    return cls(said.reason, said.message, sha256, size, weights)
        raise ValueError("no object with sha256 and size_bytes")


def _json(text: str | bytes) -> Any:
    """The value of a text that any container may have written. Raises ValueError."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("lists within lists") from error


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def model_path(model_format: str, path: str | None = None) -> str:
    """Absolute path of the model's file in both containers, e.g. /mnt/models/model.onnx.

    `path` is spec.model.path: where the file lies in a folder.
    """
    return f"{MODELS_MOUNT}/{path or f'model.{model_format}'}"
