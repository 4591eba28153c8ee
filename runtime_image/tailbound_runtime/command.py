"""`tailbound-runtime serve MODEL`: the environment that serves a model file on this machine."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from tailbound_runtime.batch import Mode
from tailbound_runtime.config import MODEL_FORMAT, Option
from tailbound_runtime.contract import Env


def environment(arguments: Sequence[str]) -> dict[str, str]:
    """What the operator would set, from these arguments. Ends the process if they are wrong."""
    parser = argparse.ArgumentParser(prog="tailbound-runtime", description="Serves ONNX models.")
    commands = parser.add_subparsers(required=True)
    commands.add_parser("audit", help="say whether one model can be served here, and what it needs")
    commands.add_parser("bench", help="measure how fast one model runs here")
    commands.add_parser("optimize", help="make one model smaller, if it stays as good")
    serve = commands.add_parser("serve", help="serve one model over the Open Inference Protocol v2")
    serve.add_argument("model", type=Path, help="the ONNX file")
    serve.add_argument("--name", help="NAME in /v2/models/NAME; by default the file's, without its ending")
    serve.add_argument("--port", default="8080", help="of HTTP; 0 takes a free one (%(default)s)")
    serve.add_argument("--grpc-port", default="8081", help='of gRPC; "" for none (%(default)s)')
    serve.add_argument("--threads", help="for one inference; by default as many as there are CPUs")
    serve.add_argument("--timeout", default="60", help="seconds from a request to its answer (%(default)s)")
    serve.add_argument("--batching", default=Mode.NONE, help=f"{', '.join(Mode)} (%(default)s)")
    serve.add_argument("--max-batch-size", default="32", help="rows of one run (%(default)s)")
    serve.add_argument("--max-delay", default="0", help="seconds a request waits for others (%(default)s)")
    given = parser.parse_args(arguments)
    return {
        Env.MODEL_NAME: given.name or given.model.stem,
        Env.MODEL_PATH: str(given.model),
        Env.MODEL_FORMAT: MODEL_FORMAT,
        Env.REVISION: "local",
        Env.REQUEST_TIMEOUT_SECONDS: given.timeout,
        Env.DRAIN_SECONDS: "0",
        Env.CPU_LIMIT: given.threads or str(len(os.sched_getaffinity(0))),
        Env.BATCHING_MODE: given.batching,
        Env.BATCHING_MAX_SIZE: given.max_batch_size,
        Env.BATCHING_MAX_DELAY_SECONDS: given.max_delay,
        Option.HTTP_PORT: given.port,
        Option.GRPC_PORT: given.grpc_port,
    }
