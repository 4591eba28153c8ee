"""Whose fault it is when a run of one request fails.

| the model, on what it ran on before | then |
|---|---|
| runs, or did within the last second | the request's: ModelInputError |
| fails, or did within the last second | the model's: ModelFailedError, and `broken` is called |
| never ran on anything | the model's, as nothing else is known: ModelFailedError |
| runs, but this run was short of memory | the request's: TooLargeError, which is not remembered |
| is short of memory too, or others run now | no request's: MemoryShortError, and the server goes on |
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from tailbound_runtime.engine import Engine
from tailbound_runtime.errors import (
    MemoryShortError,
    ModelBrokenError,
    ModelFailedError,
    ModelInputError,
    TooLargeError,
)
from tailbound_runtime.lane import settle

CHECK_SECONDS: Final = 1.0


class Faults:
    """Tells by asking the engine whether it still runs. The threads that run it use it."""

    def __init__(
        self, engine: Engine, loop: asyncio.AbstractEventLoop, broken: Callable[[ModelBrokenError], None]
    ) -> None:
        """`broken` is called on the loop, each time that the model was found to fail on everything."""
        self._engine = engine
        self._loop = loop
        self._broken = broken
        self._checked = -CHECK_SECONDS
        self._works = False

    def cause(self, error: Exception, alone: bool) -> Exception:
        """The error as its caller gets it. `alone`: no other run goes on beside the one that failed."""
        if isinstance(error, MemoryShortError):
            return TooLargeError(str(error)) if alone and self._still_works() else error
        if isinstance(error, ModelFailedError) and self._still_works():
            return ModelInputError(str(error))
        return error

    def _still_works(self) -> bool:
        """Asked now and then: a model that fails on some tensors only must not have twice the work of it."""
        now = time.monotonic()
        if now - self._checked >= CHECK_SECONDS:
            self._checked = now
            try:
                self._works = self._engine.check()
            except MemoryShortError:
                self._works = False
            except ModelBrokenError as error:
                self._works = False
                settle(self._loop, [partial(self._broken, error)])
        return self._works
