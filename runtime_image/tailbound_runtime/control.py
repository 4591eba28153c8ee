"""Loading and unloading of models while the server runs, as Triton's repository extension has it.

| a call | when | then |
|---|---|---|
| any | the server is not ready yet, or it drains | 503 |
| load, unload | of a name that is not in the repository, or not loaded | 404 |
| load | its files and those of the models that are here exceed the limit | 400; what is served stays |
| load | the model cannot be loaded | 400; what is served stays |
| load | otherwise | its greatest version is served, instead of the one before |
| unload | otherwise | no new request gets it; those that it has are served first |

Calls are done one after the other, and go on if their clients leave. The limit counts what serves its last
requests, too: a model that is loaded again is there twice for a while.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final

import orjson
import structlog

from tailbound_runtime.budget import Share
from tailbound_runtime.errors import ApiError, ModelLoadError
from tailbound_runtime.metrics import Metrics
from tailbound_runtime.model import Model
from tailbound_runtime.models import Models
from tailbound_runtime.reception import Head, Intake, Limits, unpack
from tailbound_runtime.repository import ModelFile, Repository, RepositoryError
from tailbound_runtime.wire import REST

_OVERRIDES: Final = ("config", "file:")

log = structlog.get_logger(__name__)


class Call(Intake):
    """A call of the repository API whose body is coming in. It is counted nowhere."""

    __slots__ = ("work",)

    def __init__(
        self,
        head: Head,
        started: float,
        limits: Limits,
        share: Share,
        work: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(head, started, limits, share, Model("", "", Metrics()), REST)
        self.model.take()
        self.work = work

    def check(self) -> None:
        """Raises ApiError unless the body asks for what this server can do."""
        body = self.body
        if self.head.encoding is not None:
            body = unpack(self.head.encoding, body, self.limits, self.share)
        try:
            asked = orjson.loads(body or b"{}")
        except orjson.JSONDecodeError as error:
            raise ApiError(400, f"the request body is not JSON: {error}") from None
        parameters = asked.get("parameters") if isinstance(asked, dict) else None
        check_parameters(parameters if isinstance(parameters, dict) else ())


def check_parameters(names: Iterable[str]) -> None:
    """Raises ApiError if a call with these parameters asks for what this server cannot do."""
    for name in names:
        if name.startswith(_OVERRIDES):
            raise ApiError(
                400, f"parameter {name!r} is not supported: this server loads what its repository holds"
            )


class Control:
    """The repository API's calls, for callers on the loop."""

    def __init__(
        self,
        repository: Repository,
        models: Models,
        load: Callable[[ModelFile, Metrics], Awaitable[Model]],
        new_metrics: Callable[[ModelFile], Metrics],
        limit_bytes: int,
    ) -> None:
        """`load` raises ModelLoadError; `limit_bytes` is for the files of all models together.

        new_metrics: makes those of a version that has not served yet
        """
        self._repository = repository
        self._models = models
        self._load = load
        self._new_metrics = new_metrics
        self._limit_bytes = limit_bytes
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def load(self, name: str) -> None:
        """Serve the model's greatest version. Raises ApiError."""
        await self._in_turn(self._loaded(name))

    async def unload(self, name: str) -> None:
        """Serve the model no longer. Raises ApiError."""
        await self._in_turn(self._unloaded(name))

    async def _in_turn(self, work: Coroutine[Any, Any, None]) -> None:
        async def alone() -> None:
            async with self._lock:
                await work

        task = asyncio.create_task(alone())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_ends_unheard)
            raise

    async def _loaded(self, name: str) -> None:
        try:
            file = await asyncio.to_thread(self._repository.find, name)
        except (RepositoryError, OSError) as error:
            raise ApiError(400, f"model {name!r} is not loaded: {error}") from None
        if file is None:
            raise ApiError(404, f"the repository has no model {name!r}")
        self._check_size(file)
        known = self._models.get(name)
        same = known is not None and known.version == file.version
        metrics = known.metrics if known is not None and same else self._new_metrics(file)
        try:
            model = await self._load(file, metrics)
        except ModelLoadError as error:
            log.warning("a model cannot be loaded", name=name, version=file.version, error=str(error))
            serving = f"; version {known.version} is served on" if known is not None else ""
            raise ApiError(400, f"model {name!r} is not loaded: {error}{serving}") from None
        self._models.put(model)
        log.info("model served", name=name, version=file.version)

    async def _unloaded(self, name: str) -> None:
        if name not in self._models:
            raise ApiError(404, f"this server has no model {name!r}: {self._models.known()}")
        self._models.remove(name)
        log.info("model unloaded", name=name)

    def _check_size(self, file: ModelFile) -> None:
        here = self._models.size_bytes
        if here + file.size_bytes > self._limit_bytes:
            raise ApiError(
                400,
                f"model {file.name!r} is not loaded: its files have {file.size_bytes} bytes and those of the "
                f"models here {here}, and the limit for all is {self._limit_bytes}: unload others, or start "
                "the server with a greater --model-memory",
            )


def _ends_unheard(task: asyncio.Task[None]) -> None:
    """Log a fault of the server in a call whose client has left, since no answer reports it."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, ApiError):
        log.error("a call of the repository API failed unexpectedly", exc_info=error)
