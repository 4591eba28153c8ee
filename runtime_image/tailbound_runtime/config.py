"""Settings, from the environment only."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeVar

from tailbound_runtime.batch import Batching, Mode
from tailbound_runtime.contract import TERMINATION_LOG, Env

MODEL_FORMAT: Final = "onnx"

T = TypeVar("T")


class Option(StrEnum):
    """Environment with a default; a ServingRuntime may set it."""

    HTTP_PORT = "TAILBOUND_HTTP_PORT"
    MAX_REQUEST_BYTES = "TAILBOUND_MAX_REQUEST_BYTES"
    QUEUE_LIMIT = "TAILBOUND_QUEUE_LIMIT"
    TERMINATION_LOG = "TAILBOUND_TERMINATION_LOG"


DEFAULTS: Final[Mapping[str, str]] = {
    # A pod that an older operator made lacks these.
    Env.BATCHING_MODE: Mode.NONE,
    Env.BATCHING_MAX_SIZE: "1",
    Env.BATCHING_PREFERRED_SIZES: "",
    Env.BATCHING_MAX_DELAY_SECONDS: "0",
    Option.HTTP_PORT: "8080",
    Option.MAX_REQUEST_BYTES: str(64 * 2**20),
    Option.QUEUE_LIMIT: "128",
    Option.TERMINATION_LOG: str(TERMINATION_LOG),
}


class ConfigError(Exception):
    """A variable is missing or wrong; the text names it, its value and what it should be."""


@dataclass(frozen=True)
class Settings:
    """What this process was told.

    model_name: NAME in /v2/models/NAME
    model_path: the ONNX file
    revision: the revision's name, for logs and metrics
    request_timeout_seconds: from the request's head to its answer; 504 then
    drain_seconds: how long to serve on after SIGTERM while readiness answers 503
    cpu_limit: threads for one inference
    batching: how requests share runs of the model
    http_port: 0 takes a free one
    max_request_bytes: longest request body; 413 above
    queue_limit: inferences that may wait; 503 above
    """

    model_name: str
    model_path: Path
    revision: str
    request_timeout_seconds: float
    drain_seconds: float
    cpu_limit: int
    batching: Batching
    http_port: int
    max_request_bytes: int
    queue_limit: int


def from_env(env: Mapping[str, str]) -> Settings:
    """Read every variable. Raises ConfigError."""
    _format(env)
    return Settings(
        model_name=_read(env, Env.MODEL_NAME, _text, "the model's name"),
        model_path=_read(env, Env.MODEL_PATH, lambda value: Path(_text(value)), "the path of an ONNX file"),
        revision=_read(env, Env.REVISION, _text, "the revision's name"),
        request_timeout_seconds=_read(
            env, Env.REQUEST_TIMEOUT_SECONDS, _positive, "seconds above 0, such as 30"
        ),
        drain_seconds=_read(env, Env.DRAIN_SECONDS, _seconds, "seconds, 0 or more, such as 15"),
        cpu_limit=_read(env, Env.CPU_LIMIT, _whole(1), "a whole number of CPUs, at least 1"),
        batching=_batching(env),
        http_port=_read(env, Option.HTTP_PORT, _whole(0, 65535), "a port from 0 (any) to 65535"),
        max_request_bytes=_read(
            env, Option.MAX_REQUEST_BYTES, _whole(1), "a whole number of bytes, at least 1"
        ),
        queue_limit=_read(env, Option.QUEUE_LIMIT, _whole(1), "a whole number of requests, at least 1"),
    )


def termination_log(env: Mapping[str, str]) -> Path:
    """Where the termination message goes; read apart, because it is needed to report a wrong Settings."""
    return Path(env.get(Option.TERMINATION_LOG, DEFAULTS[Option.TERMINATION_LOG]))


def _format(env: Mapping[str, str]) -> None:
    value = _read(env, Env.MODEL_FORMAT, _text, f"{MODEL_FORMAT!r}, the one format that this runtime serves")
    if value != MODEL_FORMAT:
        raise ConfigError(
            f"{Env.MODEL_FORMAT} is {value!r}, but this runtime serves {MODEL_FORMAT!r} only: "
            "name a runtime that declares the model's format"
        )


def _batching(env: Mapping[str, str]) -> Batching:
    max_size = _read(env, Env.BATCHING_MAX_SIZE, _whole(1), "a whole number of rows, at least 1")
    return Batching(
        mode=_read(env, Env.BATCHING_MODE, Mode, f"one of {', '.join(Mode)}"),
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
    )


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


def _rising(highest: int) -> Callable[[str], tuple[int, ...]]:
    number = _whole(1, highest)

    def parse(value: str) -> tuple[int, ...]:
        numbers = tuple(number(part) for part in value.split(",")) if value else ()
        if any(later <= earlier for earlier, later in pairwise(numbers)):
            raise ValueError
        return numbers

    return parse
