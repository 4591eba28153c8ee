"""`tailbound-runtime serve MODEL …`: the environment that serves models on this machine."""

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path

from tailbound_runtime.batch import Mode
from tailbound_runtime.config import ModelControl, Option
from tailbound_runtime.contract import Env
from tailbound_runtime.engines import format_of


def environment(arguments: Sequence[str]) -> dict[str, str]:
    """What the operator would set, from these arguments. Ends the process if they are wrong.

    Raises ModelLoadError if the model's name does not say what it is.
    """
    parser = _parser()
    given = parser.parse_args(arguments)
    return {
        **_models(parser, given.models, given.name),
        Option.MODEL_CONTROL: given.model_control,
        Option.MODEL_MEMORY_BYTES: given.model_memory,
        Env.MODEL_FORMAT: given.format or format_of(given.models[0]),
        Env.REVISION: "local",
        Env.REQUEST_TIMEOUT_SECONDS: given.timeout,
        Env.DRAIN_SECONDS: "0",
        Env.CPU_LIMIT: given.threads or str(len(os.sched_getaffinity(0))),
        Env.BATCHING_MODE: given.batching,
        Env.BATCHING_MAX_SIZE: given.max_batch_size,
        Env.BATCHING_MAX_DELAY_SECONDS: given.max_delay,
        Option.ENGINE: given.engine,
        Option.PRIORITY_LEVELS: given.priority_levels,
        Option.CACHE_BYTES: given.cache,
        Option.TRACING: given.tracing,
        Option.HTTP_PORT: given.port,
        Option.GRPC_PORT: given.grpc_port,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tailbound-runtime", description="Serves models.")
    commands = parser.add_subparsers(required=True)
    commands.add_parser("audit", help="say whether one model can be served here, and what it needs")
    commands.add_parser("bench", help="measure how fast one model runs here")
    commands.add_parser("optimize", help="make one model smaller, if it stays as good")
    serve = commands.add_parser("serve", help="serve models over the Open Inference Protocol v2")
    _add_models(serve)
    _add_serving(serve)
    return parser


def _add_models(serve: argparse.ArgumentParser) -> None:
    """What is served."""
    serve.add_argument(
        "models",
        type=Path,
        nargs="+",
        metavar="MODEL",
        help="model files of one format, or a folder of NAME/VERSION/model.onnx",
    )
    serve.add_argument("--format", help="of the models; by default what the first one's name says")
    serve.add_argument("--engine", default="", help="what runs the models; by default the format's first")
    serve.add_argument("--name", help="NAME in /v2/models/NAME; by default the file's, without its ending")
    serve.add_argument(
        "--model-control",
        default=ModelControl.NONE,
        help="explicit: clients may load and unload models (%(default)s)",
    )
    serve.add_argument(
        "--model-memory",
        default="",
        metavar="BYTES",
        help="of the files of all models together, which no load exceeds; by default half of the memory",
    )


def _add_serving(serve: argparse.ArgumentParser) -> None:
    """How it is served."""
    serve.add_argument("--port", default="8080", help="of HTTP; 0 takes a free one (%(default)s)")
    serve.add_argument("--grpc-port", default="8081", help='of gRPC; "" for none (%(default)s)')
    serve.add_argument("--threads", help="for one inference; by default as many as there are CPUs")
    serve.add_argument("--timeout", default="60", help="seconds from a request to its answer (%(default)s)")
    serve.add_argument("--batching", default=Mode.NONE, help=f"{', '.join(Mode)} (%(default)s)")
    serve.add_argument("--max-batch-size", default="32", help="rows of one run (%(default)s)")
    serve.add_argument("--max-delay", default="0", help="seconds a request waits for others (%(default)s)")
    serve.add_argument(
        "--priority-levels", default="0", help="that requests may ask for; 0 for none (%(default)s)"
    )
    serve.add_argument(
        "--cache", default="0", metavar="BYTES", help="of answers to give again; 0 keeps none (%(default)s)"
    )
    serve.add_argument(
        "--tracing",
        default="off",
        help="on: spans by OpenTelemetry, as variables with OTEL_ say (%(default)s)",
    )


def _models(parser: argparse.ArgumentParser, paths: Sequence[Path], name: str | None) -> dict[str, str]:
    """What names the models; what else the environment may say of them is overridden."""
    if name is not None and (len(paths) > 1 or paths[0].is_dir()):
        parser.error(f"argument --name: {name!r} is the name of one file: leave it out")
    nothing: dict[str, str] = dict.fromkeys((Env.MODEL_PATH, Option.MODELS, Option.MODEL_REPOSITORY), "")
    folders = [path for path in paths if path.is_dir()]
    if folders and len(paths) > 1:
        parser.error(f"argument MODEL: {folders[0]} is a folder: give it alone, or files only")
    if folders:
        return {**nothing, Option.MODEL_REPOSITORY: str(folders[0])}
    names = [path.stem if name is None else name for path in paths]
    twice = [each for each in names if names.count(each) > 1]
    if twice:
        parser.error(f"argument MODEL: two files have the name {twice[0]!r}: rename one")
    return {**nothing, Option.MODELS: json.dumps(dict(zip(names, map(str, paths), strict=True)))}
