"""Which requests to a serving pod are inference calls, by the protocols of its server.

A path is written from its first slash on; `*` stands for one or more characters without a slash, and `**` at
the end for any rest. `{model}` is a `*` that names the model: a call that names another one than that of the
service is refused. Requests to every other path (health, metadata, metrics) are no inference. Over HTTP, an
inference call is a POST: a GET of the same path asks about the model.
"""

import json
import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Final

from pydantic import StringConstraints

from tailbound.api.schema import InOrder, Rule, matches


class ServerProtocol(StrEnum):
    """A protocol of a server, whose inference paths are known but for those of `custom`."""

    OIP_REST = "oip-rest"
    OIP_GRPC = "oip-grpc"
    OPENAI = "openai"
    TENSORFLOW_REST = "tensorflow-rest"
    TENSORFLOW_GRPC = "tensorflow-grpc"
    CUSTOM = "custom"


# One star in each part: what matches a path must not go back and forth in it.
_PLAIN: Final = "[-A-Za-z0-9._~!$&'()+,;=:@%]*"
_PART: Final = rf"{_PLAIN}(?:(?:\*|\{{model\}}){_PLAIN})?"
_IS_PATH: Final = re.compile(rf"/(?:{_PART}/)*(?:{_PART}|{_PLAIN}\*\*)")

MODEL: Final = "{model}"

InferencePath = Annotated[
    str,
    StringConstraints(max_length=256),
    InOrder(
        matches(
            f"/(?:{_PART}/)*(?:{_PART}|{_PLAIN}\\*\\*)",
            "'{value}' is not a path: write it from its first slash on and without query, with one * in a "
            "part that varies, for example /v1/tasks/*/predict, {model} in the part that names the model, or "
            "/predict/** for all paths below /predict/",
        ),
        Rule(
            cel=f"self.indexOf('{MODEL}') == self.lastIndexOf('{MODEL}')",
            holds=lambda path: path.count(MODEL) <= 1,
            message="'{value}' has {model} in several parts, and a request names one model: write * in the "
            "other parts",
        ),
    ),
]

_METADATA_PATH: Final = rf"/(?:{_PLAIN}/)*(?:{_PLAIN}(?:\{{model\}}{_PLAIN})?(?:/{_PLAIN})*)"

MetadataPath = Annotated[
    str,
    StringConstraints(max_length=256),
    matches(
        _METADATA_PATH,
        "'{value}' is not the path of metadata: write it from its first slash on and without query, with "
        "{model} for the name of the model, for example /models/{model}/schema",
    ),
]
OIP_METADATA_PATH: Final = f"/v2/models/{MODEL}"

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
    ServerProtocol.CUSTOM: (),
}

_NAME_IN_FIRST_STAR: Final = frozenset(
    path for each in (ServerProtocol.OIP_REST, ServerProtocol.TENSORFLOW_REST) for path in _PATHS[each]
)
NAME_IN_BODY: Final = _PATHS[ServerProtocol.OPENAI]
"""Paths of calls that name the model in the field `model` of their body."""


def naming(path: str) -> str:
    """The path with {model} where a call to it names the model, which those of a protocol do not write."""
    return path.replace("*", MODEL, 1) if path in _NAME_IN_FIRST_STAR else path


DEFAULT_PROTOCOLS: Final = (ServerProtocol.OIP_REST, ServerProtocol.OIP_GRPC)


def inference_paths(protocols: Iterable[ServerProtocol], further: Iterable[str] = ()) -> tuple[str, ...]:
    """The inference paths of these protocols and further ones, sorted and each once."""
    return tuple(sorted({*(path for each in protocols for path in _PATHS[each]), *further}))


DEFAULT_INFERENCE_PATHS: Final = inference_paths(DEFAULT_PROTOCOLS)
"""The inference paths of a server that speaks the Open Inference Protocol."""


MOST_FURTHER: Final = 32
"""Paths that a runtime may name besides those of its protocols."""
MOST_PATHS: Final = 128
"""Paths that gateways compare a request with: those of two runtimes fit, as a rollout leads to another."""


def usable_paths(stored: object) -> tuple[str, ...]:
    """The paths in a status that anybody may have written; the default ones if there is none among them."""
    listed = stored if isinstance(stored, list) else []
    paths = [path for path in listed if isinstance(path, str) and _is_path(path)]
    return tuple(paths[:MOST_PATHS]) or DEFAULT_INFERENCE_PATHS


def _is_path(text: str) -> bool:
    return _IS_PATH.fullmatch(text) is not None and text.count(MODEL) <= 1


def usable_metadata_path(stored: str | None, paths: Iterable[str]) -> str | None:
    """The path in an annotation that anybody may have written, or that of the Open Inference Protocol.

    None: the server of these inference paths states nothing about its model.
    """
    if stored is not None and re.fullmatch(_METADATA_PATH, stored) is not None:
        return stored
    return OIP_METADATA_PATH if set(_PATHS[ServerProtocol.OIP_REST]) & set(paths) else None


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
