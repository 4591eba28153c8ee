"""Which requests to a serving pod are inference calls, by the protocols of its server.

A path is written from its first slash on; `*` stands for one or more characters without a slash, and `**` at
the end for any rest. Requests to every other path (health, metadata, metrics) are no inference. Over HTTP, an
inference call is a POST: a GET of the same path asks about the model.
"""

import json
import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Final

from pydantic import StringConstraints

from tailbound.api.schema import matches


class ServerProtocol(StrEnum):
    """A protocol of a server, whose inference paths are known."""

    OIP_REST = "oip-rest"
    OIP_GRPC = "oip-grpc"
    OPENAI = "openai"
    TENSORFLOW_REST = "tensorflow-rest"
    TENSORFLOW_GRPC = "tensorflow-grpc"


# One star in each part: what matches a path must not go back and forth in it.
_PLAIN: Final = "[-A-Za-z0-9._~!$&'()+,;=:@%]*"
_PART: Final = rf"{_PLAIN}(?:\*{_PLAIN})?"
_IS_PATH: Final = re.compile(rf"/(?:{_PART}/)*(?:{_PART}|{_PLAIN}\*\*)")

InferencePath = Annotated[
    str,
    StringConstraints(max_length=256),
    matches(
        f"/(?:{_PART}/)*(?:{_PART}|{_PLAIN}\\*\\*)",
        "'{value}' is not a path: write it from its first slash on and without query, with one * in a part "
        "that varies, for example /v1/models/*/predict, or /predict/** for all paths below /predict/",
    ),
]

_PATHS: Final[dict[ServerProtocol, tuple[str, ...]]] = {
    ServerProtocol.OIP_REST: ("/v2/models/*/infer", "/v2/models/*/versions/*/infer"),
    ServerProtocol.OIP_GRPC: (
        "/inference.GRPCInferenceService/ModelInfer",
        "/inference.GRPCInferenceService/ModelStreamInfer",
    ),
    ServerProtocol.OPENAI: (
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/responses",
        "/v1/audio/transcriptions",
        "/v1/audio/translations",
    ),
    ServerProtocol.TENSORFLOW_REST: (
        "/v1/models/*:predict",
        "/v1/models/*:classify",
        "/v1/models/*:regress",
        "/v1/models/*/versions/*:predict",
        "/v1/models/*/versions/*:classify",
        "/v1/models/*/versions/*:regress",
        "/v1/models/*/labels/*:predict",
        "/v1/models/*/labels/*:classify",
        "/v1/models/*/labels/*:regress",
    ),
    ServerProtocol.TENSORFLOW_GRPC: (
        "/tensorflow.serving.PredictionService/Classify",
        "/tensorflow.serving.PredictionService/MultiInference",
        "/tensorflow.serving.PredictionService/Predict",
        "/tensorflow.serving.PredictionService/Regress",
    ),
}

DEFAULT_PROTOCOLS: Final = (ServerProtocol.OIP_REST, ServerProtocol.OIP_GRPC)


def inference_paths(protocols: Iterable[ServerProtocol], further: Iterable[str] = ()) -> tuple[str, ...]:
    """The inference paths of these protocols and further ones, sorted and each once."""
    return tuple(sorted({*(path for each in protocols for path in _PATHS[each]), *further}))


DEFAULT_INFERENCE_PATHS: Final = inference_paths(DEFAULT_PROTOCOLS)
"""The inference paths of a server that speaks the Open Inference Protocol."""


MOST_PATHS: Final = 64
"""Paths that gateways compare a request with."""


def usable_paths(stored: object) -> tuple[str, ...]:
    """The paths in a status that anybody may have written; the default ones if there is none among them."""
    listed = stored if isinstance(stored, list) else []
    paths = [path for path in listed if isinstance(path, str) and _IS_PATH.fullmatch(path)]
    return tuple(paths[:MOST_PATHS]) or DEFAULT_INFERENCE_PATHS


def written(paths: Iterable[str]) -> str:
    """The paths as they are stored in an annotation of the pod template."""
    return json.dumps(sorted(paths))


def read(text: str | None) -> tuple[str, ...]:
    """The paths in that annotation; the default where it is absent or not what Tailbound writes."""
    try:
        stored = json.loads(text or "")
    except ValueError:
        return DEFAULT_INFERENCE_PATHS
    if not isinstance(stored, list) or not stored or not all(isinstance(path, str) for path in stored):
        return DEFAULT_INFERENCE_PATHS
    return tuple(stored)
