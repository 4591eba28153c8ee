"""What a runtime is given and what it promises: the environment and the termination message.

A copy in miniature of `tailbound.api.runtime_contract`: this image does not contain that package. A unit test
holds the two together.
"""

import json
from enum import StrEnum
from pathlib import Path
from typing import Final

TERMINATION_LOG: Final = Path("/dev/termination-log")
TERMINATION_LIMIT_BYTES: Final = 4096


LATENCY_BOUND_HEADER: Final = "x-tailbound-latency-bound-ms"
"""Header of a request: milliseconds after which its answer is late, so that it is better refused."""
SHED_HEADER: Final = "x-tailbound-shed"
"""Header of a 503: the server refuses the request only because it would be answered late."""


class Env(StrEnum):
    """Environment that the operator sets on every runtime."""

    MODEL_NAME = "TAILBOUND_MODEL_NAME"
    MODEL_PATH = "TAILBOUND_MODEL_PATH"
    MODEL_FORMAT = "TAILBOUND_MODEL_FORMAT"
    REVISION = "TAILBOUND_REVISION"
    REQUEST_TIMEOUT_SECONDS = "TAILBOUND_REQUEST_TIMEOUT_SECONDS"
    DRAIN_SECONDS = "TAILBOUND_DRAIN_SECONDS"
    CPU_LIMIT = "TAILBOUND_CPU_LIMIT"
    BATCHING_MODE = "TAILBOUND_BATCHING_MODE"
    BATCHING_MAX_SIZE = "TAILBOUND_BATCHING_MAX_SIZE"
    BATCHING_PREFERRED_SIZES = "TAILBOUND_BATCHING_PREFERRED_SIZES"
    BATCHING_MAX_DELAY_SECONDS = "TAILBOUND_BATCHING_MAX_DELAY_SECONDS"


class TerminationReason(StrEnum):
    """Why this container ended, where a person must know."""

    MODEL_LOAD_FAILED = "ModelLoadFailed"
    MODEL_BROKEN = "ModelBroken"


def termination(reason: TerminationReason, message: str) -> bytes:
    """One JSON object of at most `TERMINATION_LIMIT_BYTES`; a longer message is cut, and ends in "…"."""
    body = _json(reason, message)
    while len(body) > TERMINATION_LIMIT_BYTES:
        message = message[: len(message) * 3 // 4]
        body = _json(reason, message + "…")
    return body


def _json(reason: TerminationReason, message: str) -> bytes:
    return json.dumps({"reason": reason, "message": message}).encode()


def write_termination(path: Path, reason: TerminationReason, message: str) -> None:
    """Write the termination message. Outside a pod the file does not exist, and nothing is written."""
    if path.exists():
        path.write_bytes(termination(reason, message))
