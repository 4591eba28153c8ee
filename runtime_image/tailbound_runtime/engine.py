"""What runs a model, whichever library does it. `session.Session` is the engine on ONNX Runtime."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy.typing as npt

from tailbound_runtime.devices import Memory
from tailbound_runtime.session import Run, TensorSpec
from tailbound_runtime.tensors import Array


class Engine(Protocol):
    """A loaded model.

    inputs, outputs: what it takes and gives, by name
    provider: what it runs on
    lanes: runs that are worth having at once: on a device, one copies tensors while another computes
    first_seconds, warm_seconds: of the first and the last run of the last `warm_up`
    """

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    provider: str
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
