"""Models of tables: one input, with a number for each feature, and one output, with an answer for each row.

Their formats say neither names nor the shape of the answers: the names are ours, the shape is that of a first
answer.
"""

import threading
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from tailbound_runtime.engine import CPU, Loaded, Run, TensorSpec
from tailbound_runtime.errors import ModelLoadError
from tailbound_runtime.mistaken import what_it_is
from tailbound_runtime.tensors import BY_DTYPE, Array, Datatype

INPUT: Final = "input"
OUTPUT: Final = "predict"


class TableModel(Loaded):
    """A model of rows, which one thread uses at a time. A run cannot be stopped."""

    def __init__(self, features: int, datatype: Datatype, platform: str) -> None:
        """Raises ModelLoadError and ModelFailedError; what `_predict` needs must be there by now."""
        self._lock = threading.Lock()
        first = self._predict(np.zeros((1, features), datatype.numpy))
        self._nothing = first[:0]
        answers = TensorSpec(OUTPUT, BY_DTYPE[first.dtype], (-1, *first.shape[1:]), (None,) * first.ndim)
        rows = TensorSpec(INPUT, datatype, (-1, features), (None, None))
        super().__init__([rows], [answers], platform, CPU, inlines=False)

    @abstractmethod
    def _predict(self, rows: Array) -> Array:
        """The answers to at least one row. Raises ModelFailedError."""

    def _infer(self, outputs: Sequence[str], inputs: Mapping[str, Array], run: Run) -> list[Array]:
        rows = np.ascontiguousarray(inputs[INPUT])
        with self._lock:
            answer = self._predict(rows) if len(rows) else self._nothing
        return [answer for _ in outputs]


def check_head(path: Path, title: str, head: bytes) -> None:
    """Raises ModelLoadError unless the file begins like a model of this kind."""
    found = what_it_is(path, besides=head)
    if found is not None:
        raise ModelLoadError(f"{path} is no {title} model: {found}")
    try:
        with path.open("rb") as file:
            start = file.read(len(head))
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read: {error.strerror}") from error
    if start != head:
        raise ModelLoadError(f"{path} is no {title} model, which begins with {head.decode().strip()!r}")
