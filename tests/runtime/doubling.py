"""An engine of our own whose runs a test holds, lets go and makes fail."""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np
import numpy.typing as npt
from tailbound_runtime.engine import UNKNOWN_SECONDS, Run
from tailbound_runtime.errors import MemoryShortError, ModelBrokenError, ModelFailedError, ModelInputError
from tailbound_runtime.tensors import Array

REFUSED, BROKEN = -1.0, -2.0


@dataclass
class Doubling:
    """A model that doubles every row, refuses REFUSED ones and fails at BROKEN ones.

    sizes: rows of each run
    begun: set when a run begins
    free: while cleared, runs hang until they are stopped
    dead: whether it fails on everything
    proven: whether it has run on anything
    checks: how often it was asked whether it still does
    most_rows: that its memory suffices for
    most_at_once: runs that there were at one time
    """

    pause_seconds: float = 0.0
    sizes: list[int] = field(default_factory=list)
    on_device = False
    inlines = True
    warm_seconds = UNKNOWN_SECONDS
    begun: threading.Event = field(default_factory=threading.Event)
    free: threading.Event = field(default_factory=threading.Event)
    dead: bool = False
    proven: bool = True
    checks: int = 0
    lanes: int = 1
    most_rows: float = inf
    most_at_once: int = 0
    now: int = 0

    def __post_init__(self) -> None:
        self.free.set()

    def run(self, outputs: Sequence[str], inputs: Mapping[str, Array], run: Run) -> list[Array]:
        x = inputs["x"]
        if len(x) > self.most_rows:
            raise MemoryShortError("no memory")
        self.sizes.append(len(x))
        self.now += 1
        self.most_at_once = max(self.most_at_once, self.now)
        try:
            return self._run(outputs, x, run)
        finally:
            self.now -= 1

    def _run(self, outputs: Sequence[str], x: Array, run: Run) -> list[Array]:
        self.begun.set()
        while not self.free.wait(0.001):
            if run.stopped:
                raise ModelFailedError("stopped")
        time.sleep(self.pause_seconds)
        if (x == REFUSED).any():
            raise ModelInputError("refused")
        if self.dead or (x == BROKEN).any():
            raise ModelFailedError("broken")
        return [2 * x if name == "y" else x for name in outputs]

    def warm_up(self, rows: int) -> list[Array]:
        return []

    def buffer(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array | None:
        return np.empty(shape, dtype) if self.lanes > 1 else None

    def memory(self) -> None:
        return None

    def check(self) -> bool:
        self.checks += 1
        if self.most_rows < 1:
            raise MemoryShortError("no memory")
        if self.dead:
            raise ModelBrokenError("dead")
        return self.proven
