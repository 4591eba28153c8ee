"""The life of the process: listen, load, warm up, be ready, drain, end.

It listens before it loads, so that liveness is answered while a large model loads. On SIGTERM readiness turns
to 503 first and everything else goes on for the drain time: whoever still sends here, over old or new
connections, is served. Only then the listener closes, and what is in flight is finished.
"""

import asyncio
import concurrent.futures
import gc
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from tailbound_runtime import __version__
from tailbound_runtime.app import App, Phase
from tailbound_runtime.batch import UNBATCHED, Batching, Mode
from tailbound_runtime.batchable import check_rows, check_shapes
from tailbound_runtime.budget import Budget
from tailbound_runtime.config import ConfigError, Option, Settings
from tailbound_runtime.devices import choose_providers, nvidia_device_visible
from tailbound_runtime.engine import Engine, Run
from tailbound_runtime.errors import (
    MemoryShortError,
    ModelBrokenError,
    ModelFailedError,
    ModelInputError,
    ModelLoadError,
)
from tailbound_runtime.front import Front
from tailbound_runtime.metrics import Metrics
from tailbound_runtime.reception import Limits
from tailbound_runtime.request_log import RequestLog
from tailbound_runtime.session import Session, available_providers
from tailbound_runtime.signature import Signature
from tailbound_runtime.worker import InferenceThread

if TYPE_CHECKING:
    from tailbound_runtime import grpc_service

BACKLOG: Final = 2048
SWITCH_SECONDS: Final = 0.001  # how long a thread that parses keeps the interpreter while liveness is asked

SLOW_CHANGE: Final = 2.0  # times the run itself
GARBAGE: Final = 20_000
"""New objects that may be cycles, until the interpreter looks for some: requests make none but in errors."""

T = TypeVar("T")

log = structlog.get_logger(__name__)


def listen(port: int) -> socket.socket:
    """A socket on every address, IPv6 too where the machine has it. Raises ConfigError naming the port."""
    try:
        if socket.has_dualstack_ipv6():
            return socket.create_server(
                ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG
            )
        return socket.create_server(("", port), backlog=BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"{Option.HTTP_PORT} is {port}, where this process cannot listen: {error.strerror}"
        ) from error


def load(settings: Settings, metrics: Metrics) -> tuple[Engine, Batching]:
    """Load and warm up the model, and find out how it may be batched; blocks. Raises ModelLoadError."""
    started = time.monotonic()
    providers = choose_providers(available_providers(), nvidia_device_visible(), settings.providers)
    session = Session.load(
        settings.model_path,
        settings.cpu_limit,
        providers,
        settings.device_options,
        settings.device_memory_limit,
    )
    check_shapes(session.inputs, session.outputs, settings.batching)
    batching = _checked(session, _warmed(session, settings.batching))
    if len(batching.fills) == 1:  # the check has run others
        _warm_up(session, batching)
    seconds = time.monotonic() - started
    metrics.loaded(
        seconds,
        version=__version__,
        model=settings.model_name,
        revision=settings.revision,
        provider=session.provider,
    )
    metrics.device_memory = session.memory
    log.info(
        "model loaded", path=str(settings.model_path), provider=session.provider, seconds=round(seconds, 3)
    )
    return session, batching


def _warmed(session: Engine, asked: Batching) -> Batching:
    """How to batch on what the model runs on, once it is warm for that."""
    if not session.on_device or asked.mode is not Mode.DYNAMIC:
        _warm_up(session, asked)
        return asked
    batching = asked.on_device()
    _warm_up(session, batching)
    for rows in (batching.fills[0], asked.max_size):  # from one size that it has met to another
        _warm_up(session, replace(batching, fills=(rows,)))
    if session.first_seconds < SLOW_CHANGE * session.warm_seconds:
        return batching
    log.info(
        "all runs are filled up to maxBatchSize: each change of their size takes long on this device",
        rows=asked.max_size,
        change_seconds=round(session.first_seconds, 3),
        run_seconds=round(session.warm_seconds, 4),
    )
    return batching.of_one_size()


def _warm_up(session: Engine, batching: Batching) -> None:
    for rows in batching.sizes():
        try:
            session.warm_up(rows)
        except MemoryShortError as error:
            raise ModelLoadError(
                f"the model does not fit into the memory of its device with {rows} rows at once, which "
                f"spec.batching asks for: set a smaller maxBatchSize, or give it more memory: {error}"
            ) from error
        except (ModelInputError, ModelFailedError) as error:
            # A model may well need more than one row or step; real requests will tell.
            log.warning("warm-up failed, first requests will be slower", rows=rows, error=str(error))


def _checked(session: Engine, batching: Batching) -> Batching:
    """How requests are batched: as asked, or not at all if it cannot be found out whether they may be."""
    if not batching.shares:
        return batching
    outputs = list(session.outputs)
    reason = check_rows(
        lambda inputs: session.run(outputs, inputs, Run()),
        session.inputs,
        list(session.outputs.values()),
        batching,
    )
    if reason is None:
        return batching
    log.warning(
        "requests are not batched: the model ran on no random rows, so that it is unknown whether they would "
        "mix; set spec.batching.mode to none",
        error=reason,
    )
    return UNBATCHED


async def serve(settings: Settings, listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT, and drain. Raises ModelLoadError and ModelBrokenError."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    metrics = Metrics()
    limits = Limits(settings.max_request_bytes, settings.request_timeout_seconds)
    budget = Budget(settings.max_buffered_bytes)
    metrics.request_log = RequestLog(settings.request_log_every)
    app = App(settings.model_name, limits, budget, metrics)
    sys.setswitchinterval(SWITCH_SECONDS)
    front = Front(app)
    server = await loop.create_server(front.connection, sock=listener, backlog=BACKLOG)
    log.info("listening", port=listener.getsockname()[1])
    rpc = None
    try:
        if settings.grpc_port is not None:
            rpc = _grpc(settings.grpc_port, settings.model_name, app, limits, budget, metrics)
        await _serve_model(settings, app, metrics, rpc, stop)
    finally:
        server.close()
        if rpc is not None:
            await asyncio.to_thread(rpc.stop)
        await front.close(settings.request_timeout_seconds + 2)
    log.info("stopped")


async def _serve_model(
    settings: Settings, app: App, metrics: Metrics, rpc: "grpc_service.Server | None", stop: asyncio.Event
) -> None:
    """Load the model, be ready, and drain when `stop` is set."""
    loaded = await _unless(stop, _in_thread(lambda: load(settings, metrics)))
    if loaded is None:
        log.info("stopped while loading")
        return
    session, batching = loaded
    broken: asyncio.Future[ModelBrokenError] = asyncio.get_running_loop().create_future()
    inputs = batching.accepts(session.inputs)
    signature = Signature(settings.model_name, inputs, session.outputs, batching, session.platform)
    # What is there by now stays: to look through it for garbage again and again would cost requests time.
    gc.freeze()
    gc.set_threshold(GARBAGE)
    thread = _thread(session, batching, settings, metrics, broken)
    if await _unless(stop, asyncio.ensure_future(thread.warm())) is None:
        log.info("stopped while loading")
        return
    app.open(signature, thread)
    if rpc is not None:
        rpc.ready(True)
    log.info("ready")
    error = await _unless(stop, broken)
    app.phase = Phase.DRAINING
    if rpc is not None:
        rpc.ready(False)
    if error is not None:
        raise error
    log.info("draining", seconds=settings.drain_seconds)
    await asyncio.sleep(settings.drain_seconds)


def _grpc(
    port: int, name: str, app: App, limits: Limits, budget: Budget, metrics: Metrics
) -> "grpc_service.Server":
    # Not at the top: without gRPC, a start is a third of a second shorter and the process 20 MB smaller.
    from tailbound_runtime import grpc_service

    service = grpc_service.Service(name, app, limits, budget, metrics, asyncio.get_running_loop())
    try:
        rpc = grpc_service.Server(service, port, limits)
    except RuntimeError as error:
        raise ConfigError(
            f"{Option.GRPC_PORT} is {port}, where this process cannot listen: {error}"
        ) from error
    log.info("listening for gRPC", port=rpc.port)
    return rpc


def _thread(
    session: Engine,
    batching: Batching,
    settings: Settings,
    metrics: Metrics,
    broken: asyncio.Future[ModelBrokenError],
) -> InferenceThread:
    def tell(error: ModelBrokenError) -> None:
        if not broken.done():
            broken.set_result(error)

    return InferenceThread(session, batching, settings.queue_limit, metrics, tell)


def _in_thread(function: Callable[[], T]) -> asyncio.Future[T]:
    """Run in a daemon thread: a model that is still loading must not hold up the end of the process."""
    future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def work() -> None:
        try:
            future.set_result(function())
        except Exception as error:  # handed to whoever awaits the future
            future.set_exception(error)

    threading.Thread(target=work, name="load", daemon=True).start()
    return asyncio.wrap_future(future)


async def _unless(stop: asyncio.Event, future: asyncio.Future[T]) -> T | None:
    """The future's result, or None if `stop` is set before it is there."""
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((stopping, future), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    return await future if future.done() else None
