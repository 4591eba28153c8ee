"""How a model file becomes a model that serves: loaded, warmed up, and found to be batchable or not."""

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

import structlog

from tailbound_runtime import __version__, engines, warming
from tailbound_runtime.batch import UNBATCHED, Batching, Mode
from tailbound_runtime.batchable import check_rows, check_shapes
from tailbound_runtime.cache import Cache, CachingThread
from tailbound_runtime.config import Settings
from tailbound_runtime.engine import WARM_UP_RUNS, Engine, Order, Run
from tailbound_runtime.errors import (
    MemoryShortError,
    ModelBrokenError,
    ModelFailedError,
    ModelInputError,
    ModelLoadError,
)
from tailbound_runtime.metrics import Metrics
from tailbound_runtime.model import Model
from tailbound_runtime.repository import ModelFile
from tailbound_runtime.signature import Signature
from tailbound_runtime.worker import InferenceThread

SLOW_CHANGE: Final = 2.0  # times the run itself
SLOW_SECONDS: Final = 0.005  # beside that: any run may be held up for a moment

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Loader:
    """Loads models for callers on the loop."""

    def __init__(self, settings: Settings, broken: asyncio.Future[ModelBrokenError]) -> None:
        """`broken` gets the error of the first model that fails on everything after it has worked."""
        self._settings = settings
        self._broken = broken
        self._cache = Cache(settings.cache_bytes) if settings.cache_bytes else None

    async def load(self, file: ModelFile, metrics: Metrics, model: Model | None = None) -> Model:
        """The model, open and warm: the given one, or a new one. Raises ModelLoadError."""
        settings = self._settings
        session, batching = await in_thread(lambda: load(settings, file, metrics))
        parts = session, batching, settings.queue_limit, metrics, self._tell
        thread = InferenceThread(*parts) if self._cache is None else CachingThread(*parts, self._cache)
        await thread.warm()
        inputs = batching.accepts(session.inputs)
        if model is None:
            model = Model(file.name, file.version, metrics, file.size_bytes)
        signature = Signature(file.name, inputs, session.outputs, batching, session.platform, file.version)
        model.open(signature, thread)
        return model

    def _tell(self, error: ModelBrokenError) -> None:
        if not self._broken.done():
            self._broken.set_result(error)


def load(settings: Settings, file: ModelFile, metrics: Metrics) -> tuple[Engine, Batching]:
    """Load and warm up the model, and find out how it may be batched; blocks. Raises ModelLoadError."""
    started = time.monotonic()
    session = engines.load(
        settings.engine,
        Order(
            file.path,
            settings.model_format,
            settings.cpu_limit,
            settings.providers,
            settings.device_options,
            settings.device_memory_limit,
            settings.batching.shares,
        ),
    )
    check_shapes(session.inputs, session.outputs, settings.batching)
    batching = _checked(session, _warmed(session, settings.batching))
    if session.on_device and batching.fills:  # the check has run others
        _warm_up(session, batching)
    metrics.run_seconds = warming.warm_up(session, file.path, batching)
    seconds = time.monotonic() - started
    metrics.loaded(
        seconds,
        version=__version__,
        model=file.name,
        revision=settings.revision,
        provider=session.provider,
    )
    log.info(
        "model loaded",
        model=file.name,
        path=str(file.path),
        engine=settings.engine.name,
        provider=session.provider,
        seconds=round(seconds, 3),
    )
    return session, batching


def _warmed(session: Engine, asked: Batching) -> Batching:
    """How to batch on what the model runs on, once it is warm for that."""
    if not session.prepares_sizes or asked.mode is not Mode.DYNAMIC:
        _warm_up(session, asked)
        return asked
    batching = asked.on_device()
    _warm_up(session, batching)
    if not _changes_slowly(session, batching):
        return batching
    log.info(
        "all runs are filled up to maxBatchSize: each change of their size takes long on this device",
        rows=asked.max_size,
    )
    return batching.of_one_size()


def _changes_slowly(session: Engine, batching: Batching) -> bool:
    """Whether runs of two sizes in turn, or at once, take much longer than each of them alone.

    Convolutions on a GPU are prepared for the shape that came last, whichever lane it came from.
    """
    sizes = batching.fills[-2:]
    seconds = 0.0
    try:
        for rows in sizes:
            session.warm_up(rows)
            if session.first_seconds > SLOW_CHANGE * session.warm_seconds + SLOW_SECONDS:
                return True
            seconds += WARM_UP_RUNS * session.warm_seconds
        started = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(len(sizes)) as pool:
            list(pool.map(session.warm_up, sizes))
        return time.perf_counter() - started > SLOW_CHANGE * seconds + SLOW_SECONDS
    except (ModelInputError, ModelFailedError):  # it may need more than one row or step
        return False


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
    return replace(UNBATCHED, levels=batching.levels)


def in_thread(function: Callable[[], T]) -> asyncio.Future[T]:
    """Run in a daemon thread: a model that is still loading must not hold up the end of the process."""
    future: concurrent.futures.Future[T] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()  # else its caller, who leaves at the end of the process, cancels it

    def work() -> None:
        try:
            future.set_result(function())
        except Exception as error:  # raised where the future is awaited
            future.set_exception(error)

    threading.Thread(target=work, name="load", daemon=True).start()
    return asyncio.wrap_future(future)
