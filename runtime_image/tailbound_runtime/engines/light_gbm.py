"""LightGBM models in its text format.

LightGBM checks little of a file: one that is cut off would end the process, and is looked for first.
"""

from typing import Any, Final

import lightgbm
import numpy as np

from tailbound_runtime.engine import Engine, Order, one_line
from tailbound_runtime.engines.table import TableModel
from tailbound_runtime.errors import ModelFailedError, ModelLoadError
from tailbound_runtime.mistaken import check_head
from tailbound_runtime.tensors import BY_NAME, Array

_HEAD: Final = b"tree\n"
_TAIL: Final = b"\nend of trees\n"


class _Silent:
    """A logger for LightGBM, which else prints lines that are no JSON; its errors are raised too."""

    def info(self, message: str) -> None:
        """Say nothing."""

    def warning(self, message: str) -> None:
        """Say nothing."""


class LightGbm(TableModel):
    """A booster. NaN is a missing value."""

    def __init__(self, booster: Any, threads: int) -> None:
        self._booster = booster
        self._threads = threads
        super().__init__(booster.num_feature(), BY_NAME["FP64"], "lightgbm_lightgbm")

    def _predict(self, output: str, rows: Array) -> Array:
        try:
            return np.asarray(self._booster.predict(rows, num_threads=self._threads))
        except (lightgbm.basic.LightGBMError, ValueError) as error:
            raise ModelFailedError(one_line(error)) from error


def load(order: Order) -> Engine:
    """Load a text file. Raises ModelLoadError."""
    order.check_cpu_only("LightGBM")
    check_head(order.path, "LightGBM model", _HEAD)
    lightgbm.register_logger(_Silent())
    text = order.path.read_bytes()
    if _TAIL not in text:
        raise ModelLoadError(
            f"{order.path} is cut off: it has no line {_TAIL.decode().strip()!r}; upload it again"
        )
    try:
        return LightGbm(lightgbm.Booster(model_str=text.decode()), order.threads)
    except (lightgbm.basic.LightGBMError, ModelFailedError, ValueError) as error:
        version = lightgbm.__version__
        raise ModelLoadError(f"LightGBM {version} cannot load {order.path}: {one_line(error)}") from error
