"""Whether rows of different callers may share a run, found out on models that are plain functions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from tailbound_runtime.batch import Batching, Mode
from tailbound_runtime.batchable import alike, check_rows
from tailbound_runtime.engine import TensorSpec
from tailbound_runtime.errors import ModelFailedError, ModelInputError, ModelLoadError
from tailbound_runtime.tensors import BY_ONNX_TYPE, Array

FP32, INT64 = BY_ONNX_TYPE["tensor(float)"], BY_ONNX_TYPE["tensor(int64)"]
BOOL, TEXT = BY_ONNX_TYPE["tensor(bool)"], BY_ONNX_TYPE["tensor(string)"]
DYNAMIC = Batching(Mode.DYNAMIC, 16, (), 0)
STATIC = Batching(Mode.STATIC, 4, (), 0)
PAIRS = Batching(Mode.DYNAMIC, 2, (), 0)

Function = Callable[[Any], Any]


def softmax(x: Any, axis: int) -> Any:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def checked(function: Function, batching: Batching, datatype: Any = FP32, width: int = -1) -> str | None:
    def run(inputs: Mapping[str, Array]) -> Sequence[Array]:
        return [inputs["x"], np.asarray(function(inputs["x"]))]

    specs = [TensorSpec(name, datatype, (-1, width)) for name in ("x", "y")]
    return check_rows(run, {"x": specs[0]}, specs, batching)


MIXING: dict[str, tuple[Any, Function]] = {
    "mean": (FP32, lambda x: x - x.mean(0)),
    "max": (FP32, lambda x: x - x.max(0)),
    "batch-norm-in-training": (FP32, lambda x: (x - x.mean(0)) / (x.std(0) + 1e-5)),
    "softmax-over-the-batch": (FP32, lambda x: softmax(x, 0)),
    "top-of-the-batch": (FP32, lambda x: np.sort(x, 0)[::-1]),
    "rank-in-the-batch": (FP32, lambda x: x.argsort(0).argsort(0)),
    "the-first-of-the-batch": (FP32, lambda x: x + x[:1]),
    "previous-row": (FP32, lambda x: x + np.roll(x, 1, 0)),
    "integers-less-the-largest": (INT64, lambda x: x - x.max()),
    "labels-less-the-largest": (FP32, lambda x: (x - x.max()).argmax(1) + 10 * (x == x.max()).any(1)),
    "any-true": (BOOL, lambda x: np.logical_xor(x, x.sum(0) % 2)),
    "texts-of-neighbours": (TEXT, lambda x: np.flip(x, 0)),
    "as-many-rows-as-rows": (FP32, lambda x: x + len(x)),
}


@pytest.mark.parametrize("batching", [DYNAMIC, PAIRS], ids=["many", "two"])
@pytest.mark.parametrize(("datatype", "function"), MIXING.values(), ids=list(MIXING))
def test_a_model_that_mixes_rows_is_not_batched(
    batching: Batching, datatype: Any, function: Function
) -> None:
    with pytest.raises(ModelLoadError, match="output 'y' of the model for one row depends on the rows"):
        checked(function, batching, datatype)


@pytest.mark.parametrize("name", [name for name in MIXING if name != "as-many-rows-as-rows"])
def test_neither_is_it_in_static_batches_which_a_request_alone_fills_with_copies(name: str) -> None:
    datatype, function = MIXING[name]
    with pytest.raises(ModelLoadError):
        checked(function, STATIC, datatype)


KEEPING: dict[str, tuple[Any, Function]] = {
    "itself": (FP32, lambda x: x),
    "softmax-of-a-row": (FP32, lambda x: softmax(x, 1)),
    "norm-of-a-row": (FP32, lambda x: x / np.sqrt((x**2).sum(1, keepdims=True))),
    "label": (FP32, lambda x: x.argmax(1)),
    "no-number": (FP32, lambda x: np.log(np.where(x > 0, x, 0 * x))),
    "constant": (FP32, lambda x: np.zeros((len(x), 1))),
    "rounding-by-the-batch": (FP32, lambda x: np.round(x / x.std() * 64) * x.std() / 64),
    "texts": (TEXT, lambda x: x),
    "booleans": (BOOL, np.logical_not),
}


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
@pytest.mark.parametrize("batching", [DYNAMIC, PAIRS, STATIC], ids=["many", "two", "static"])
@pytest.mark.parametrize(("datatype", "function"), KEEPING.values(), ids=list(KEEPING))
def test_a_model_that_keeps_rows_apart_is_batched(
    batching: Batching, datatype: Any, function: Function
) -> None:
    assert checked(function, batching, datatype) is None


def test_a_model_of_a_small_vocabulary_is_checked_all_the_same() -> None:
    def lookup(x: Any) -> Any:
        if x.max() > 1 or x.shape[1] > 1:
            raise ModelInputError("out of range")
        return x - x.max()

    with pytest.raises(ModelLoadError):
        checked(lookup, DYNAMIC, INT64)


@pytest.mark.parametrize("error", [ModelInputError, ModelFailedError])
def test_a_model_that_takes_no_random_rows_is_unknown(error: type[Exception]) -> None:
    def never(x: Array) -> Array:
        raise error("at node Gather")

    assert checked(never, DYNAMIC) == "at node Gather"


@pytest.mark.parametrize("shape", [lambda x: x[:3], lambda x: x.sum(), lambda x: np.concatenate([x, x])])
def test_an_output_without_the_rows_of_the_input_is_named_with_its_shape(shape: Function) -> None:
    with pytest.raises(ModelLoadError, match=r"output 'y' of the model has shape .* for 8 rows of input"):
        checked(shape, DYNAMIC)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param([1.0, 2.0], [1.0, 2.0001], True, id="rounding"),
        pytest.param([1e-4, 2e-4], [1e-4, 3e-4], False, id="small-numbers-differ"),
        pytest.param([np.inf, 1], [np.inf, 1], True, id="same-infinity"),
        pytest.param([np.inf, 1], [-np.inf, 1], False, id="other-infinity"),
        pytest.param([np.nan, 1], [1, 1], False, id="number-or-none"),
        pytest.param([1, 1], [np.nan, 1], False, id="none-or-number"),
        pytest.param([1] * 16, [1] * 14 + [2] * 2, True, id="few-labels-change"),
        pytest.param([1] * 16, [1] * 13 + [2] * 3, False, id="many-labels-change"),
        pytest.param([1, 2], [1, 2, 3], False, id="other-shape"),
    ],
)
def test_answers_are_alike(one: Sequence[float], other: Sequence[float], same: bool) -> None:
    assert alike(np.array(one), np.array(other)) is same
