"""The life of the process: listen, load, warm up, be ready, drain, end.

It listens before it loads, so that liveness is answered while a large model loads. On SIGTERM readiness turns
to 503 first and everything else goes on for the drain time: a client that still sends here, over old or new
connections, is served. Only then the listener closes, and what is in flight is finished.
"""

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from tailbound_runtime.app import App, Phase
from tailbound_runtime.budget import Budget
from tailbound_runtime.config import ConfigError, Option, Settings
from tailbound_runtime.connections import Connections, allow_files
from tailbound_runtime.control import Control
from tailbound_runtime.errors import ModelBrokenError
from tailbound_runtime.front import Front
from tailbound_runtime.loading import Loader
from tailbound_runtime.metrics import Metrics
from tailbound_runtime.model import Model
from tailbound_runtime.models import Models
from tailbound_runtime.reception import Limits
from tailbound_runtime.repository import ModelFile, Repository, RepositoryError
from tailbound_runtime.request_log import RequestLog

if TYPE_CHECKING:
    from tailbound_runtime import grpc_front, tracing

BACKLOG: Final = 2048
SWITCH_SECONDS: Final = 0.001  # how long a thread that parses keeps the interpreter while liveness is asked

GARBAGE: Final = 20_000
"""New objects that may be cycles, until the interpreter looks for some: requests make none but in errors."""

T = TypeVar("T")

log = structlog.get_logger(__name__)


def listen(port: int, option: Option = Option.HTTP_PORT) -> socket.socket:
    """A socket on every address, IPv6 too where the machine has it. Raises ConfigError naming the option."""
    try:
        if socket.has_dualstack_ipv6():
            return socket.create_server(
                ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG
            )
        return socket.create_server(("", port), backlog=BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"{option} is {port}, where this process cannot listen: {error.strerror}"
        ) from error


async def serve(settings: Settings, listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT, and drain. Raises ModelLoadError and ModelBrokenError."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    limits = Limits(settings.max_request_bytes, settings.request_timeout_seconds)
    budget = Budget(settings.max_buffered_bytes)
    models = Models()
    tracer = _tracer() if settings.tracing else None
    app = App(models, limits, budget) if tracer is None else _traced(models, limits, budget, tracer)
    files = _files(settings.repository)
    for file in files:
        models.put(Model(file.name, file.version, _new_metrics(settings, file), file.size_bytes))
    sys.setswitchinterval(SWITCH_SECONDS)
    connections = Connections(settings.max_connections)
    allow_files(settings.max_connections)
    front = Front(app, connections)
    server = await loop.create_server(front.connection, sock=listener, backlog=BACKLOG)
    log.info("listening", port=listener.getsockname()[1])
    rpc = rpc_server = None
    try:
        if settings.grpc_port is not None:
            rpc = _rpc_front(app, limits, budget, connections)
            rpc_listener = listen(settings.grpc_port, Option.GRPC_PORT)
            rpc_server = await loop.create_server(rpc.connection, sock=rpc_listener, backlog=BACKLOG)
            log.info("listening for gRPC", port=rpc_listener.getsockname()[1])
        await _serve_models(settings, app, files, rpc, stop)
    finally:
        server.close()
        closing = [front.close(settings.request_timeout_seconds + 2)]
        if rpc is not None and rpc_server is not None:
            rpc_server.close()
            closing.append(rpc.close(settings.request_timeout_seconds + 2))
        await asyncio.gather(*closing)
        if tracer is not None:
            await asyncio.to_thread(tracer.close)
    log.info("stopped")


def _tracer() -> "tracing.Tracer":
    # Not at the top: these packages are optional.
    try:
        from tailbound_runtime import tracing
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{Option.TRACING} is on, but {error}: pip install 'tailbound-runtime[tracing]' installs it"
        ) from error
    return tracing.tracer_of(os.environ)


def _traced(models: Models, limits: Limits, budget: Budget, tracer: "tracing.Tracer") -> App:
    from tailbound_runtime import traced_app

    return traced_app.TracedApp(models, limits, budget, tracer)


def _files(repository: Repository) -> list[ModelFile]:
    """What is to be served from the start on. Raises ConfigError."""
    try:
        found = [repository.find(name) for name in repository.names()]
    except RepositoryError as error:
        raise ConfigError(str(error)) from error
    return [file for file in found if file is not None]


def _new_metrics(settings: Settings, file: ModelFile) -> Metrics:
    """The figures of a version that has not served yet."""
    metrics = Metrics({"model": file.name, "model_version": file.version} if settings.several else None)
    metrics.request_log = RequestLog(settings.request_log_every)
    return metrics


async def _serve_models(
    settings: Settings,
    app: App,
    files: Sequence[ModelFile],
    rpc: "grpc_front.RpcFront | None",
    stop: asyncio.Event,
) -> None:
    """Load the models, be ready, and drain when `stop` is set."""
    broken: asyncio.Future[ModelBrokenError] = asyncio.get_running_loop().create_future()
    loader = Loader(settings, broken)
    for file in files:
        model = app.models.find(file.name, file.version)
        if await _unless(stop, asyncio.ensure_future(loader.load(file, model.metrics, model))) is None:
            log.info("stopped while loading")
            return
    # What is there by now stays: to look through it for garbage again and again would cost requests time.
    gc.freeze()
    gc.set_threshold(GARBAGE)
    if settings.model_control:
        app.control = Control(
            settings.repository,
            app.models,
            loader.load,
            partial(_new_metrics, settings),
            settings.model_memory_bytes,
        )
    app.phase = Phase.READY
    if rpc is not None:
        rpc.ready(True)
    log.info("ready")
    error = await _unless(stop, broken)
    app.phase = Phase.DRAINING
    if rpc is not None:
        rpc.ready(False)
        rpc.drain()
    if error is not None:
        raise error
    log.info("draining", seconds=settings.drain_seconds)
    await asyncio.sleep(settings.drain_seconds)


def _rpc_front(app: App, limits: Limits, budget: Budget, connections: Connections) -> "grpc_front.RpcFront":
    # Not at the top: without gRPC, the process needs no protobuf, and is smaller.
    from tailbound_runtime import grpc_front

    return grpc_front.RpcFront(app, limits, budget, connections)


async def _unless(stop: asyncio.Event, future: asyncio.Future[T]) -> T | None:
    """The future's result, or None if `stop` is set before it is there."""
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((stopping, future), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    return await future if future.done() else None
