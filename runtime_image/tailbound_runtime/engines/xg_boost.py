"""XGBoost models in JSON or UBJSON.

All trees of the file answer: a model that stopped early is to be sliced before it is saved.
"""

import json
from typing import Any, Final

import numpy as np
import xgboost

from tailbound_runtime.engine import Engine, Order
from tailbound_runtime.engines.table import TableModel
from tailbound_runtime.errors import ModelFailedError, ModelLoadError
from tailbound_runtime.mistaken import check_head
from tailbound_runtime.tensors import BY_NAME, Array

_IN_PLACE: Final = "gbtree"  # the booster that predicts without a copy of the rows


class XgBoost(TableModel):
    """A booster. NaN is a missing value."""

    def __init__(self, booster: Any, threads: int) -> None:
        self._booster = booster
        self._threads = threads
        kind = json.loads(booster.save_config())["learner"]["gradient_booster"]["name"]
        self._in_place = kind == _IN_PLACE
        super().__init__(booster.num_features(), BY_NAME["FP32"], "xgboost_xgboost")

    def _predict(self, output: str, rows: Array) -> Array:
        try:
            if self._in_place:
                return np.asarray(self._booster.inplace_predict(rows, validate_features=False))
            matrix = xgboost.DMatrix(rows, nthread=self._threads)
            return np.asarray(self._booster.predict(matrix, validate_features=False))
        except (xgboost.core.XGBoostError, ValueError) as error:
            raise ModelFailedError(_reason(error)) from error


def load(order: Order) -> Engine:
    """Load a .json or .ubj file, for a moment twice in memory. Raises ModelLoadError."""
    order.check_cpu_only("XGBoost")
    check_head(order.path, "XGBoost model", b"{")
    booster = xgboost.Booster()
    try:
        booster.load_model(bytearray(order.path.read_bytes()))
        booster.set_param({"nthread": order.threads, "device": "cpu"})
        return XgBoost(booster, order.threads)
    except (
        xgboost.core.XGBoostError,
        ModelFailedError,
        ValueError,
    ) as error:  # the last one: its text is none
        version = xgboost.__version__
        raise ModelLoadError(f"XGBoost {version} cannot load {order.path}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The error without XGBoost's stack trace, which follows it."""
    return " ".join(str(error).partition("Stack trace:")[0].split())
