"""What runs a model, whichever library does it, and what is the same for all of them.

An engine is a class below `Loaded`, in a module that alone knows its library; `engines` lists them.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from tailbound_runtime.devices import Memory, choose_device, device_visible
from tailbound_runtime.errors import (
    ApiError,
    MemoryShortError,
    ModelBrokenError,
    ModelFailedError,
    ModelInputError,
    ModelLoadError,
)
from tailbound_runtime.tensors import Array, Datatype

CPU: Final = "CPU"  # the name of it on every engine but ONNX Runtime
MOST_PROOF_BYTES: Final = 2**20  # of tensors that are kept to show that the model still works
UNKNOWN_SECONDS: Final = 0.1
WARM_UP_RUNS: Final = 3  # the first run allocates, the second plans memory, the third is as later ones are


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of the model.

    shape: -1 where the size is free
    symbols: the model's names of the free sizes, None where it has none; sizes of one name are equal
    most_rows: the largest first size, if that is free; None: any
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    symbols: tuple[str | None, ...] = ()
    most_rows: int | None = None

    def admits(self, shape: tuple[int, ...]) -> bool:
        """Whether a tensor of `shape` may go in.

        Engines report a scalar and an unknown rank alike, as (): then the model itself must judge.
        """
        if not self.shape:
            return True
        return len(shape) == len(self.shape) and all(
            wanted in (-1, size) for wanted, size in zip(self.shape, shape, strict=True)
        )

    def check(self, where: str, shape: tuple[int, ...]) -> None:
        """Raises ApiError 400 unless a tensor of `shape` may go in."""
        if not self.admits(shape):
            raise ApiError(
                400,
                f"{where}: shape {list(shape)} does not fit the model's {list(self.shape)}, "
                "-1 being any size",
            )
        if self.most_rows is not None and shape[0] > self.most_rows:
            raise ApiError(
                400,
                f"{where}: shape {list(shape)} has {shape[0]} rows, and the model takes {self.most_rows} at "
                "most",
            )


class Run:
    """One inference, or several in turn, that another thread may stop if the engine can stop one.

    stopped: whether it was asked to stop; then none of the later ones begins
    kept: what the engine made for the first of them, for it alone
    """

    __slots__ = ("_stop", "kept", "stopped")

    def __init__(self) -> None:
        self.stopped = False
        self.kept: Any = None
        self._stop: Callable[[], None] | None = None

    def begins(self, stop: Callable[[], None]) -> None:
        """The engine's way to stop it, from any thread and more than once; used at once if it is too late."""
        self._stop = stop
        if self.stopped:
            stop()

    def ends(self) -> None:
        """`stop` does nothing more, unless `stopped` is set by now: then it may go on for a moment."""
        self._stop = None

    def stop(self) -> None:
        """Make the running inference return soon, with an error. It stops between two nodes of the graph."""
        self.stopped = True
        stop = self._stop
        if stop is not None:
            stop()


@dataclass(frozen=True)
class Order:
    """A model to load.

    path: its file, or its folder
    format: what it is written in
    threads: for one run
    providers: what it is to run on, by the engine's names, in order; empty: the engine's own choice
    device_options, memory_limit: options of a device, and bytes of it that the model may use; None: all
    few_sizes: whether runs have few numbers of rows, as batches on a device have
    """

    path: Path
    format: str
    threads: int
    providers: Sequence[str] = ()
    device_options: Mapping[str, str] = field(default_factory=dict)
    memory_limit: int | None = None
    few_sizes: bool = False

    def check_cpu_only(self, engine: str) -> None:
        """Raises ModelLoadError if it asks for a device, or there is one, that this engine would not use."""
        choose_device(engine, [CPU], device_visible(), self.providers)


class Engine(Protocol):
    """A loaded model.

    inputs, outputs: what it takes and gives, by name
    platform: the library and the model's format, for metadata
    provider: what it runs on
    on_device: whether that has memory and a queue of its own, unlike the CPU
    prepares_sizes: whether each number of rows that it has not met takes long, as on devices
    inlines: whether a run computes in the calling thread and can be stopped, so that a short one may be made
        on the event loop
    lanes: runs that are worth having at once: on a device, one copies tensors while another computes
    first_seconds, warm_seconds: of the first and the last run of the last `warm_up`
    """

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    platform: str
    provider: str
    on_device: bool
    prepares_sizes: bool
    inlines: bool
    lanes: int
    first_seconds: float
    warm_seconds: float

    def run(self, outputs: Sequence[str], inputs: Mapping[str, Array], run: Run) -> list[Array]:
        """Infer; any thread may. Raises ModelInputError, MemoryShortError and other ModelFailedErrors."""

    def warm_up(self, rows: int) -> list[Array]:
        """Run on zeros; what the model answered. Raises what `run` raises."""

    def check(self) -> bool:
        """Whether it runs on what it ran on before; False if it never ran. Raises ModelBrokenError."""

    def memory(self) -> Memory | None:
        """The device's memory; None if it has none of its own, or does not answer."""

    def buffer(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array | None:
        """An array that inputs reach the device from fastest; None if any array is as good."""


class Loaded(ABC):
    """An engine but for its library: what it was proven to run on, and how long that took."""

    def __init__(
        self,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        platform: str,
        provider: str,
        *,
        on_device: bool = False,
        prepares_sizes: bool = False,
        inlines: bool = False,
        lanes: int = 1,
    ) -> None:
        """Raises ModelLoadError for a model without outputs, and for two tensors of one name."""
        self.inputs = _by_name("input", inputs)
        self.outputs = _by_name("output", outputs)
        if not outputs:
            raise ModelLoadError(
                "the model has no outputs, so that there is nothing to answer: export it with one"
            )
        self.platform = platform
        self.provider = provider
        self.on_device = on_device
        self.prepares_sizes = on_device or prepares_sizes
        self.inlines = inlines
        self.lanes = lanes
        self.first_seconds = self.warm_seconds = UNKNOWN_SECONDS
        self._proven: Mapping[str, Array] | None = None

    @abstractmethod
    def _infer(self, outputs: Sequence[str], inputs: Mapping[str, Array], run: Run) -> list[Array]:
        """These outputs, in this order. Raises as `run` does."""

    def run(self, outputs: Sequence[str], inputs: Mapping[str, Array], run: Run) -> list[Array]:
        """Infer. Raises ModelInputError or ModelFailedError."""
        answer = self._infer(outputs, inputs, run)
        if self._proven is None and sum(array.nbytes for array in inputs.values()) <= MOST_PROOF_BYTES:
            self._proven = {name: array.copy() for name, array in inputs.items()}
        return answer

    def warm_up(self, rows: int) -> list[Array]:
        """Run on zeros, with a number of rows and 1 for every other free size; what the model answered.

        Raises ModelInputError or ModelFailedError.
        """
        inputs = {spec.name: _zeros(spec, rows) for spec in self.inputs.values()}
        taken = []
        for _ in range(WARM_UP_RUNS):
            started = time.perf_counter()
            answer = self.run(list(self.outputs), inputs, Run())
            taken.append(time.perf_counter() - started)
        self.first_seconds, self.warm_seconds = taken[0], taken[-1]
        self._proven = inputs
        return answer

    def check(self) -> bool:
        """Whether it runs on what it ran on before; False if it never ran on anything.

        Raises ModelBrokenError if it fails on that: then it will on everything. CUDA, for one, answers
        nothing more after an error of a kernel, whichever request caused it. Raises MemoryShortError if it
        could not be tried.
        """
        if self._proven is None:
            return False
        try:
            self.run(list(self.outputs), self._proven, Run())
        except MemoryShortError:
            raise
        except (ModelInputError, ModelFailedError) as error:
            raise ModelBrokenError(
                f"the model ran on {self.provider}, and fails even on zeros now, so that this container ends "
                f"to be restarted; if that comes again, look at the device and its driver: {error}"
            ) from error
        return True

    def memory(self) -> Memory | None:
        """The memory of the device; None on the CPU."""
        return None

    def buffer(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array | None:
        """Memory for inputs; None on the CPU, where any array is as good."""
        return None


def one_line(error: Exception) -> str:
    """The error's text, in one line."""
    return " ".join(str(error).split())


def _by_name(kind: str, specs: Sequence[TensorSpec]) -> Mapping[str, TensorSpec]:
    named = {spec.name: spec for spec in specs}
    if len(named) < len(specs):
        names = ", ".join(spec.name for spec in specs)
        raise ModelLoadError(f"two {kind}s of the model have one name, of {names}: rename one")
    return named


def _zeros(spec: TensorSpec, rows: int) -> Array:
    free = (rows, *(1 for _ in spec.shape[1:]))
    shape = tuple(one if size == -1 else size for one, size in zip(free, spec.shape, strict=False))
    if spec.datatype.numpy is np.object_:
        return np.full(shape, "", dtype=np.object_)
    return np.zeros(shape, dtype=spec.datatype.numpy)
