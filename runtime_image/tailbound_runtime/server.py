"""The life of the process: listen, load, warm up, be ready, drain, end.

It listens before it loads, so that liveness is answered while a large model loads. On SIGTERM readiness turns
to 503 first and everything else goes on for the drain time: whoever still sends here, over old or new
connections, is served. Only then the listener closes, and what is in flight is finished.
"""

import asyncio
import concurrent.futures
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, TypeVar

import structlog
import uvicorn

from tailbound_runtime import __version__
from tailbound_runtime.app import App, Phase
from tailbound_runtime.batch import Batching
from tailbound_runtime.batchable import check_answers, check_shapes
from tailbound_runtime.config import ConfigError, Option, Settings
from tailbound_runtime.errors import ModelBrokenError, ModelFailedError, ModelInputError
from tailbound_runtime.metrics import Metrics
from tailbound_runtime.protocol import Signature
from tailbound_runtime.session import Session, available_providers, choose_providers, nvidia_device_visible
from tailbound_runtime.worker import InferenceThread

# Longer than a proxy keeps an idle connection (Envoy: one hour), so that it is the proxy that closes it. A
# server that closes first does so, now and then, just when a request arrives.
KEEP_ALIVE_SECONDS: Final = 2 * 3600
BACKLOG: Final = 2048

T = TypeVar("T")

log = structlog.get_logger(__name__)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """uvicorn would stop at once on SIGTERM; the drain above decides when."""
        yield


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


def load(settings: Settings, metrics: Metrics) -> Session:
    """Load and warm up the model; blocks. Raises ModelLoadError."""
    started = time.monotonic()
    providers = choose_providers(available_providers(), nvidia_device_visible())
    session = Session.load(settings.model_path, settings.cpu_limit, providers)
    check_shapes(session.inputs, session.outputs, settings.batching)
    _warm_up(session, settings.batching)
    seconds = time.monotonic() - started
    metrics.loaded(
        seconds,
        version=__version__,
        model=settings.model_name,
        revision=settings.revision,
        provider=session.provider,
    )
    log.info(
        "model loaded", path=str(settings.model_path), provider=session.provider, seconds=round(seconds, 3)
    )
    return session


def _warm_up(session: Session, batching: Batching) -> None:
    runs = {}
    for rows in batching.sizes():
        try:
            runs[rows] = session.warm_up(rows)
        except (ModelInputError, ModelFailedError) as error:
            # A model may well need more than one row or step; real requests will tell.
            log.warning("warm-up failed, first requests will be slower", rows=rows, error=str(error))
    if batching.shares and runs:
        check_answers(list(session.outputs.values()), runs)


async def serve(settings: Settings, listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT, and drain. Raises ModelLoadError and ModelBrokenError."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    broken: asyncio.Future[ModelBrokenError] = loop.create_future()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    metrics = Metrics()
    app = App(settings.model_name, settings.request_timeout_seconds, settings.max_request_bytes, metrics)
    server = _server(app, settings)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        log.info("listening", port=listener.getsockname()[1])
        session = await _unless(stop, _in_thread(lambda: load(settings, metrics)))
        if session is None:
            log.info("stopped while loading")
            return
        batching = settings.batching
        inputs = batching.accepts(session.inputs)
        signature = Signature(settings.model_name, inputs, session.outputs, batching)
        app.open(signature, _thread(session, settings, metrics, broken))
        log.info("ready")
        error = await _unless(stop, broken)
        app.phase = Phase.DRAINING
        if error is not None:
            raise error
        log.info("draining", seconds=settings.drain_seconds)
        await asyncio.sleep(settings.drain_seconds)
    finally:
        server.should_exit = True
        await serving
    log.info("stopped")


def _thread(
    session: Session, settings: Settings, metrics: Metrics, broken: asyncio.Future[ModelBrokenError]
) -> InferenceThread:
    def tell(error: ModelBrokenError) -> None:
        if not broken.done():
            broken.set_result(error)

    return InferenceThread(session, settings.batching, settings.queue_limit, metrics, tell)


def _server(app: App, settings: Settings) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=int(settings.request_timeout_seconds) + 2,
            backlog=BACKLOG,
        )
    )


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
