"""Settings, from the environment only."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeVar

from tailbound_runtime.batch import Batching, Mode
from tailbound_runtime.contract import TERMINATION_LOG, Env
from tailbound_runtime.engines import DEFAULT_ENGINE, FORMATS, REFUSED_FORMATS, Kind, kinds_of
from tailbound_runtime.repository import Files, Folder, Repository, half_of_memory

FOLDER_FORMAT: Final = "onnx"
"""The format of models in a repository folder."""

HIGHEST_PORT: Final = 65535
PORT: Final = f"a port from 0 (any) to {HIGHEST_PORT}"
BYTES: Final = "a whole number of bytes, at least 1"

T = TypeVar("T")
Member = TypeVar("Member", bound=StrEnum)


class ModelControl(StrEnum):
    """Whether clients may load and unload models."""

    NONE = "none"
    EXPLICIT = "explicit"


class Tracing(StrEnum):
    """Whether spans are made of requests."""

    OFF = "off"
    ON = "on"


class Option(StrEnum):
    """Environment with a default; a ServingRuntime may set it."""

    HTTP_PORT = "TAILBOUND_HTTP_PORT"
    GRPC_PORT = "TAILBOUND_GRPC_PORT"
    MODELS = "TAILBOUND_MODELS"
    MODEL_REPOSITORY = "TAILBOUND_MODEL_REPOSITORY"
    MODEL_CONTROL = "TAILBOUND_MODEL_CONTROL"
    MODEL_MEMORY_BYTES = "TAILBOUND_MODEL_MEMORY_BYTES"
    MAX_REQUEST_BYTES = "TAILBOUND_MAX_REQUEST_BYTES"
    MAX_BUFFERED_BYTES = "TAILBOUND_MAX_BUFFERED_BYTES"
    MAX_CONNECTIONS = "TAILBOUND_MAX_CONNECTIONS"
    CACHE_BYTES = "TAILBOUND_CACHE_BYTES"
    QUEUE_LIMIT = "TAILBOUND_QUEUE_LIMIT"
    TRACING = "TAILBOUND_TRACING"
    REQUEST_LOG_EVERY = "TAILBOUND_REQUEST_LOG_EVERY"
    ENGINE = "TAILBOUND_ENGINE"
    PRIORITY_LEVELS = "TAILBOUND_PRIORITY_LEVELS"
    PROVIDERS = "TAILBOUND_PROVIDERS"
    DEVICE_OPTIONS = "TAILBOUND_DEVICE_OPTIONS"
    DEVICE_MEMORY_LIMIT = "TAILBOUND_DEVICE_MEMORY_LIMIT"
    TERMINATION_LOG = "TAILBOUND_TERMINATION_LOG"


DEFAULTS: Final[Mapping[str, str]] = {
    # A pod that an older operator made lacks these.
    Env.BATCHING_MODE: Mode.NONE,
    Env.BATCHING_MAX_SIZE: "1",
    Env.BATCHING_PREFERRED_SIZES: "",
    Env.BATCHING_MAX_DELAY_SECONDS: "0",
    Option.HTTP_PORT: "8080",
    Option.GRPC_PORT: "",
    Option.MODELS: "",
    Option.MODEL_REPOSITORY: "",
    Option.MODEL_CONTROL: ModelControl.NONE,
    Option.MODEL_MEMORY_BYTES: "",
    Option.MAX_REQUEST_BYTES: str(64 * 2**20),
    Option.MAX_BUFFERED_BYTES: str(256 * 2**20),
    Option.MAX_CONNECTIONS: "1024",
    Option.CACHE_BYTES: "0",
    Option.QUEUE_LIMIT: "128",
    Option.TRACING: Tracing.OFF,
    Option.REQUEST_LOG_EVERY: "0",
    Option.ENGINE: "",
    Option.PRIORITY_LEVELS: "0",
    Option.PROVIDERS: "",
    Option.DEVICE_OPTIONS: "{}",
    Option.DEVICE_MEMORY_LIMIT: "",
    Option.TERMINATION_LOG: str(TERMINATION_LOG),
}


class ConfigError(Exception):
    """A variable is missing or wrong; the text names it, its value and what it should be."""


@dataclass(frozen=True)
class Settings:
    """The settings of this process.

    repository: the models, by NAME in /v2/models/NAME
    model_format: what they are written in
    engine: what runs them
    model_control: whether clients may load and unload models
    model_memory_bytes: that the files of all loaded models may have together; matters with model_control
    revision: the revision's name, for logs and metrics
    request_timeout_seconds: from the request's head to its answer; 504 then
    drain_seconds: how long to serve on after SIGTERM while readiness answers 503
    cpu_limit: threads for one inference
    batching: how requests share runs of the model
    http_port: 0 takes a free one
    grpc_port: 0 takes a free one; None: no gRPC
    max_request_bytes: longest request body; 413 above
    max_buffered_bytes: bodies, tensors and unsent answers of all requests, which budget.py counts; 503 above
    max_connections: over HTTP and gRPC together, beyond which connections.py turns them away
    cache_bytes: of answers that are kept to be given again; 0 keeps none
    queue_limit: inferences that may wait; 503 above
    tracing: whether spans are made of requests over HTTP
    request_log_every: one of this many inference requests is logged; 0 logs none
    providers: what to run on, by the engine's names, in order; empty: the engine's choice, never the CPU in a
        container with a device
    device_options: the engine's options of the device, such as ONNX Runtime's device_id
    device_memory_limit: bytes of the device that the model may use; None: all
    """

    repository: Repository
    model_format: str
    engine: Kind
    model_control: bool
    model_memory_bytes: int
    revision: str
    request_timeout_seconds: float
    drain_seconds: float
    cpu_limit: int
    batching: Batching
    http_port: int
    grpc_port: int | None
    max_request_bytes: int
    max_buffered_bytes: int
    max_connections: int
    cache_bytes: int
    queue_limit: int
    tracing: bool
    request_log_every: int
    providers: tuple[str, ...]
    device_options: Mapping[str, str]
    device_memory_limit: int | None

    @property
    def model_name(self) -> str | None:
        """The name of the only model; None if there may be several."""
        return None if self.several else next(iter(self.repository.names()))

    @property
    def several(self) -> bool:
        """Whether this server may have more than one model, so that figures and logs name it."""
        one = isinstance(self.repository, Files) and len(self.repository.paths) == 1
        return self.model_control or not one


def from_env(env: Mapping[str, str]) -> Settings:
    """Read every variable. Raises ConfigError."""
    model_format = _format(env)
    engine = _engine(env, model_format)
    return Settings(
        repository=_repository(env, model_format),
        model_format=model_format,
        engine=engine,
        model_control=_member(env, Option.MODEL_CONTROL, ModelControl) is ModelControl.EXPLICIT,
        model_memory_bytes=_bytes_or(env, Option.MODEL_MEMORY_BYTES, half_of_memory, "half of the memory"),
        revision=_read(env, Env.REVISION, _text, "the revision's name"),
        request_timeout_seconds=_read(
            env, Env.REQUEST_TIMEOUT_SECONDS, _positive, "seconds above 0, such as 30"
        ),
        drain_seconds=_read(env, Env.DRAIN_SECONDS, _seconds, "seconds, 0 or more, such as 15"),
        cpu_limit=_read(env, Env.CPU_LIMIT, _whole(1), "a whole number of CPUs, at least 1"),
        batching=_batching(env),
        http_port=_read(env, Option.HTTP_PORT, _whole(0, HIGHEST_PORT), PORT),
        grpc_port=_read(env, Option.GRPC_PORT, _port, f"{PORT}, or to nothing for no gRPC"),
        max_request_bytes=_read(env, Option.MAX_REQUEST_BYTES, _whole(1), BYTES),
        max_buffered_bytes=_read(env, Option.MAX_BUFFERED_BYTES, _whole(1), BYTES),
        max_connections=_read(
            env, Option.MAX_CONNECTIONS, _whole(1), "a whole number of connections, at least 1"
        ),
        tracing=_member(env, Option.TRACING, Tracing) is Tracing.ON,
        request_log_every=_read(
            env, Option.REQUEST_LOG_EVERY, _whole(0), "a whole number of requests, or to 0 for no log of them"
        ),
        cache_bytes=_read(
            env, Option.CACHE_BYTES, _whole(0), "a whole number of bytes, or to 0 for no cache"
        ),
        queue_limit=_read(env, Option.QUEUE_LIMIT, _whole(1), "a whole number of requests, at least 1"),
        providers=_providers_of(env, engine),
        device_options=_read(
            env, Option.DEVICE_OPTIONS, _options, 'a JSON object of strings, such as {"device_id": "0"}'
        ),
        device_memory_limit=_bytes_or(env, Option.DEVICE_MEMORY_LIMIT, lambda: None, "no limit"),
    )


def _repository(env: Mapping[str, str], model_format: str) -> Repository:
    """The first of these that is set; two of them contradict each other.

    | variable | models |
    |---|---|
    | TAILBOUND_MODEL_REPOSITORY | those of a folder |
    | TAILBOUND_MODELS | several files by name |
    | TAILBOUND_MODEL_NAME and TAILBOUND_MODEL_PATH | one file |
    """
    given = [
        name for name in (Option.MODEL_REPOSITORY, Option.MODELS, Env.MODEL_PATH) if env.get(name, "") != ""
    ]
    if len(given) > 1:
        raise ConfigError(f"{given[0]} and {given[1]} are both set: set the one that names the models")
    if given == [Option.MODEL_REPOSITORY] and model_format != FOLDER_FORMAT:
        raise ConfigError(
            f"{Option.MODEL_REPOSITORY} is set, and {Env.MODEL_FORMAT} is {model_format!r}: a folder holds "
            f"models of format {FOLDER_FORMAT}; list files of others in {Option.MODELS}"
        )
    if given == [Option.MODEL_REPOSITORY]:
        return Folder(Path(env[Option.MODEL_REPOSITORY]))
    if given == [Option.MODELS]:
        expected = 'a JSON object of model files by name, such as {"a": "/models/a.onnx"}'
        paths = _read(env, Option.MODELS, _filled_options, expected)
        return Files({name: Path(path) for name, path in paths.items()})
    name = _read(env, Env.MODEL_NAME, _text, "the model's name")
    path = _read(env, Env.MODEL_PATH, lambda value: Path(_text(value)), "the path of the model")
    return Files({name: path})


def termination_log(env: Mapping[str, str]) -> Path:
    """Where the termination message goes; read apart, because it is needed to report a wrong Settings."""
    return Path(env.get(Option.TERMINATION_LOG, DEFAULTS[Option.TERMINATION_LOG]))


def _format(env: Mapping[str, str]) -> str:
    known = ", ".join(FORMATS)
    value = _read(env, Env.MODEL_FORMAT, _text, f"a format that this runtime serves: {known}")
    if value in REFUSED_FORMATS:
        raise ConfigError(f"{Env.MODEL_FORMAT} is {value!r}: {REFUSED_FORMATS[value]}")
    if value not in FORMATS:
        raise ConfigError(
            f"{Env.MODEL_FORMAT} is {value!r}, but this runtime serves: {known}; "
            "name a runtime that declares the model's format"
        )
    return value


def _engine(env: Mapping[str, str], model_format: str) -> Kind:
    """The engine that is asked for, or else the first that runs the format."""
    fitting = kinds_of(model_format)
    asked = env.get(Option.ENGINE, DEFAULTS[Option.ENGINE])
    found = next((kind for kind in fitting if asked in ("", kind.name)), None)
    if found is None:
        names = ", ".join(kind.name for kind in fitting)
        raise ConfigError(
            f"{Option.ENGINE} is {asked!r}: set it to an engine that runs format {model_format}, one of "
            f"{names}, or to nothing"
        )
    return found


def _batching(env: Mapping[str, str]) -> Batching:
    max_size = _read(env, Env.BATCHING_MAX_SIZE, _whole(1), "a whole number of rows, at least 1")
    return Batching(
        mode=_member(env, Env.BATCHING_MODE, Mode),
        max_size=max_size,
        preferred=_read(
            env,
            Env.BATCHING_PREFERRED_SIZES,
            _rising(max_size),
            f"rising whole numbers from 1 to {max_size} with commas between them, such as 4,8, or to nothing",
        ),
        delay_seconds=_read(
            env, Env.BATCHING_MAX_DELAY_SECONDS, _seconds, "seconds, 0 or more, such as 0.005"
        ),
        levels=_read(env, Option.PRIORITY_LEVELS, _whole(0, 100), "a whole number from 0 (none) to 100"),
    )


def _providers_of(env: Mapping[str, str], engine: Kind) -> tuple[str, ...]:
    if engine.name != DEFAULT_ENGINE:
        return _read(env, Option.PROVIDERS, _names, f"a device of {engine.title}, such as CPU, or to nothing")
    expected = (
        "names of ONNX Runtime's providers with commas between them, such as "
        "CUDAExecutionProvider,CPUExecutionProvider, or to nothing"
    )
    return _read(env, Option.PROVIDERS, _providers, expected)


def _member(env: Mapping[str, str], name: str, kind: type[Member]) -> Member:
    return _read(env, name, kind, f"one of {', '.join(kind)}")


def _bytes_or(env: Mapping[str, str], name: str, default: Callable[[], T], meaning: str) -> int | T:
    """A number of bytes, or this default if the variable is empty, which means that."""

    def parse(value: str) -> int | T:
        return _whole(1)(value) if value else default()

    return _read(env, name, parse, f"{BYTES}, or to nothing for {meaning}")


def _read(env: Mapping[str, str], name: str, parse: Callable[[str], T], expected: str) -> T:
    value = env.get(name, DEFAULTS.get(name))
    if value is None:
        raise ConfigError(f"{name} is not set: set it to {expected}")
    try:
        return parse(value)
    except ValueError:
        raise ConfigError(f"{name} is {value!r}: set it to {expected}") from None


def _text(value: str) -> str:
    if not value:
        raise ValueError
    return value


def _seconds(value: str) -> float:
    number = float(value)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError
    return number


def _positive(value: str) -> float:
    number = _seconds(value)
    if number == 0:
        raise ValueError
    return number


def _whole(low: int, high: int | None = None) -> Callable[[str], int]:
    def parse(value: str) -> int:
        number = int(value)
        if number < low or (high is not None and number > high):
            raise ValueError
        return number

    return parse


def _port(value: str) -> int | None:
    return _whole(0, HIGHEST_PORT)(value) if value else None


def _providers(value: str) -> tuple[str, ...]:
    names = tuple(value.split(",")) if value else ()
    if len(set(names)) < len(names) or not all(name.endswith("ExecutionProvider") for name in names):
        raise ValueError
    return names


def _names(value: str) -> tuple[str, ...]:
    names = tuple(value.split(",")) if value else ()
    if not all(names):
        raise ValueError
    return names


def _options(value: str) -> Mapping[str, str]:
    options = json.loads(value)
    if not isinstance(options, dict) or not all(isinstance(one, str) for one in options.values()):
        raise ValueError
    return options


def _filled_options(value: str) -> Mapping[str, str]:
    options = _options(value)
    if not options or not all(name and name.isprintable() and path for name, path in options.items()):
        raise ValueError
    return options


def _rising(highest: int) -> Callable[[str], tuple[int, ...]]:
    number = _whole(1, highest)

    def parse(value: str) -> tuple[int, ...]:
        numbers = tuple(number(part) for part in value.split(",")) if value else ()
        if any(later <= earlier for earlier, later in pairwise(numbers)):
            raise ValueError
        return numbers

    return parse
