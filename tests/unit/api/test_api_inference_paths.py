"""Inference calls are recognised by the paths of the server's protocols."""

import re
from collections.abc import Iterable

import pytest
from tailbound.api.inference_paths import (
    DEFAULT_INFERENCE_PATHS,
    MOST_FURTHER,
    ServerProtocol,
    inference_paths,
    read,
    usable_metadata_path,
    usable_paths,
    written,
)
from tailbound.api.servingruntime import ServingRuntimeSpec
from tailbound.gateway.script import lua_patterns

CALLS = {
    "oip-rest": ["/v2/models/churn/infer", "/v2/models/churn/versions/1/infer"],
    "oip-grpc": ["/inference.GRPCInferenceService/ModelInfer"],
    "openai": ["/v1/chat/completions", "/v1/embeddings"],
    "tensorflow-grpc": ["/tensorflow.serving.PredictionService/Predict"],
    "tensorflow-rest": ["/v1/models/churn:predict", "/v1/models/churn/versions/3:classify"],
    "custom": [],
}
NO_CALLS = [
    "/",
    "/metrics",
    "/health",
    "/v1/models",
    "/v1/models/churn",
    "/v1/models/churn/metadata",
    "/v2/health/ready",
    "/v2/models/churn",
    "/v2/models/churn/ready",
    "/v2/models/a/b/c/infer",
    "/v2/models//infer",
    "/v2/models/churn/infer/",
    "/x/v2/models/churn/infer",
    "/inference.GRPCInferenceService/ModelReady",
    "/tensorflow.serving.PredictionService/GetModelMetadata",
    "/tensorflow.serving.ModelService/GetModelStatus",
    "/inferenceXGRPCInferenceService/ModelInfer",
]


def path_pattern(paths: Iterable[str]) -> str:
    """The Lua patterns of the gateways as one regular expression. Lua escapes with %."""
    return "|".join(pattern.replace("%", "\\") for pattern in lua_patterns(paths))


@pytest.mark.parametrize("protocol", ServerProtocol)
def test_the_paths_of_a_protocol_are_its_calls_and_nothing_else(protocol: ServerProtocol) -> None:
    pattern = re.compile(path_pattern(inference_paths([protocol])) or "(?!)")
    others = [path for name, paths in CALLS.items() if name != protocol for path in paths]
    assert [path for path in CALLS[protocol] if not pattern.fullmatch(path)] == []
    assert [path for path in (*NO_CALLS, *others) if pattern.fullmatch(path)] == []


def test_wildcards_stand_for_one_part_or_any_rest() -> None:
    pattern = re.compile(path_pattern(["/predict/*", "/all/**", "/models/*:run"]))
    calls = ("/predict/a", "/all/", "/all/a/b", "/models/x:run")
    others = ("/predict/", "/predict/a/b", "/all", "/models/:run", "/models/x/y:run")
    assert [path for path in (*calls, *others) if pattern.fullmatch(path)] == list(calls)


def test_a_runtime_says_its_protocols_and_paths_of_its_own() -> None:
    server = {"image": "s:1", "ports": [{"name": "http", "containerPort": 80}]}
    common = {"formats": [{"name": "onnx"}], "server": server}
    assert ServingRuntimeSpec.model_validate(common).inference_calls == DEFAULT_INFERENCE_PATHS
    own = {**common, "protocols": ["custom"], "inferencePaths": ["/predict"]}
    assert ServingRuntimeSpec.model_validate(own).inference_calls == ("/predict",)


@pytest.mark.parametrize("text", [None, "", "x", "{}", "[]", "[1]"], ids=lambda text: str(text) or "empty")
def test_paths_that_are_not_known_are_those_of_the_open_inference_protocol(text: str | None) -> None:
    assert read(text) == DEFAULT_INFERENCE_PATHS


@pytest.mark.parametrize(
    ("stored", "used"),
    [
        (None, DEFAULT_INFERENCE_PATHS),
        ("/a", DEFAULT_INFERENCE_PATHS),
        (["/a*b*c", "a", 1, "/a**/b"], DEFAULT_INFERENCE_PATHS),
        (["/b/*:run/**", "/a*b*c", "/{model}/{model}"], ("/b/*:run/**",)),
    ],
    ids=["absent", "no-list", "costly-or-no-path", "one-of-two"],
)
def test_gateways_use_what_is_a_path_and_cheap_to_compare(stored: object, used: tuple[str, ...]) -> None:
    assert usable_paths(stored) == used


def test_a_rollout_between_two_runtimes_keeps_every_path_of_both() -> None:
    """What was left out would not be counted, so that a canary would get no verdict."""
    both = {
        path
        for runtime in ("old", "new")
        for path in inference_paths(ServerProtocol, [f"/{runtime}/{n}" for n in range(MOST_FURTHER)])
    }
    assert usable_paths(sorted(both)) == tuple(sorted(both))


def test_written_paths_are_read_again() -> None:
    assert read(written(["/b", "/a/**"])) == ("/a/**", "/b")


@pytest.mark.parametrize("stored", [None, "/models", "about", "/*", "/{model}/{model}", "//a?x=1", "/a b"])
def test_a_path_of_metadata_that_anybody_may_have_written_is_checked(stored: str | None) -> None:
    said = "/models" if stored == "/models" else None
    assert usable_metadata_path(stored, DEFAULT_INFERENCE_PATHS) == (said or "/v2/models/{model}")
    assert usable_metadata_path(stored, ["/answer"]) == said
