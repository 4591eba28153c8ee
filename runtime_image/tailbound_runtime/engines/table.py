"""Models of tables: one input, with a number for each feature, and outputs with an answer for each row.

Their formats say neither names nor the shape of the answers: the names are ours, the shapes are those of
first answers.
"""

import threading
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from tailbound_runtime.engine import CPU, Loaded, Run, TensorSpec
from tailbound_runtime.tensors import BY_DTYPE, BY_NAME, Array, Datatype

INPUT: Final = "input"
OUTPUT: Final = "predict"


class TableModel(Loaded):
    """A model of rows, which one thread uses at a time. A run cannot be stopped."""

    def __init__(
        self, features: int, datatype: Datatype, platform: str, outputs: Sequence[str] = (OUTPUT,)
    ) -> None:
        """Raises ModelLoadError and ModelFailedError; what `_predict` needs must be there by now."""
        self._lock = threading.Lock()
        zeros = np.zeros((1, features), datatype.numpy)
        firsts = {name: self._predict(name, zeros) for name in outputs}
        self._nothing = {name: first[:0] for name, first in firsts.items()}
        rows = TensorSpec(INPUT, datatype, (-1, features), (None, None))
        answers = [_answers(name, first) for name, first in firsts.items()]
        super().__init__([rows], answers, platform, CPU, inlines=False)

    @abstractmethod
    def _predict(self, output: str, rows: Array) -> Array:
        """Compute an output for at least one row. Raises ModelFailedError."""

    def _infer(self, outputs: Sequence[str], inputs: Mapping[str, Array], run: Run) -> list[Array]:
        rows = np.ascontiguousarray(inputs[INPUT])
        with self._lock:
            return [self._predict(name, rows) if len(rows) else self._nothing[name] for name in outputs]


def _answers(name: str, first: Array) -> TensorSpec:
    datatype = BY_NAME["BYTES"] if first.dtype == np.object_ else BY_DTYPE[first.dtype]
    return TensorSpec(name, datatype, (-1, *first.shape[1:]), (None,) * first.ndim)
