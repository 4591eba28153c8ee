"""MLX functions that `mx.export_function` has written, on MLX.

MLX's streams belong to the thread that has used it first: one thread imports and runs all functions. A run
cannot be stopped.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
import numpy as np

from tailbound_runtime.engine import CPU, Engine, Loaded, Order, Run, TensorSpec, one_line
from tailbound_runtime.engines.mlxfn_file import Head, read, version_of
from tailbound_runtime.errors import ModelFailedError, ModelLoadError
from tailbound_runtime.mistaken import check_kind
from tailbound_runtime.tensors import BY_DTYPE, BY_NAME, Array, Datatype

_THREAD: Final = ThreadPoolExecutor(1, "mlx")
_ROWS: Final = "rows"
_TRIED: Final = (1, 2, 3)
_DATATYPES: Final = {
    0: (BY_NAME["BOOL"], mx.bool_),
    1: (BY_NAME["UINT8"], mx.uint8),
    2: (BY_NAME["UINT16"], mx.uint16),
    3: (BY_NAME["UINT32"], mx.uint32),
    4: (BY_NAME["UINT64"], mx.uint64),
    5: (BY_NAME["INT8"], mx.int8),
    6: (BY_NAME["INT16"], mx.int16),
    7: (BY_NAME["INT32"], mx.int32),
    8: (BY_NAME["INT64"], mx.int64),
    9: (BY_NAME["FP16"], mx.float16),
    10: (BY_NAME["FP32"], mx.float32),
    11: (BY_NAME["FP64"], mx.float64),
}
"""By MLX's numbers of types."""


class Function:
    """An imported function, for MLX's thread."""

    def __init__(self, path: Path, head: Head) -> None:
        """Raises ModelLoadError, RuntimeError and ValueError."""
        self._call = mx.import_function(str(path))
        self._types = [_types(f"input {place}", tensor.dtype) for place, tensor in enumerate(head.inputs)]
        self._keys = head.keys

    @property
    def datatypes(self) -> list[Datatype]:
        """The datatypes of its inputs."""
        return [datatype for datatype, _ in self._types]

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """All answers. Raises ModelLoadError, RuntimeError and ValueError."""
        given = [mx.array(array, dtype=dtype) for array, (_, dtype) in zip(arrays, self._types, strict=True)]
        places = len(given) - len(self._keys)
        answers = self._call(tuple(given[:places]), dict(zip(self._keys, given[places:], strict=True)))
        mx.eval(answers)
        return [_array(f"output {place}", answer) for place, answer in enumerate(answers)]

    def on_zeros(self, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
        """All answers. Raises RuntimeError and ValueError."""
        return self([np.zeros(shape, one.numpy) for shape, one in zip(shapes, self.datatypes, strict=True)])


class Mlx(Loaded):
    """A function, of which MLX's thread makes one run at a time."""

    def __init__(self, function: Function, head: Head) -> None:
        """Raises ModelLoadError, RuntimeError and ValueError; for MLX's thread."""
        self._function = function
        shapes = [tensor.sizes for tensor in head.inputs]
        firsts = function.on_zeros(shapes)
        free = head.shapeless and _takes_any_rows(function, shapes, firsts)
        super().__init__(
            [_spec(*each, free) for each in zip(_names(head), function.datatypes, shapes, strict=True)],
            [
                _spec(f"output_{place}", BY_DTYPE[first.dtype], first.shape, free)
                for place, first in enumerate(firsts)
            ],
            "mlx_mlx",
            CPU,
            inlines=False,  # it stops no run
        )
        self._places = {name: place for place, name in enumerate(self.outputs)}

    def _infer(self, outputs: Sequence[str], inputs: Mapping[str, Array], run: Run) -> list[Array]:
        given = [inputs[name] for name in self.inputs]
        try:
            answers = _THREAD.submit(self._function, given).result()
        except (RuntimeError, ValueError) as error:
            raise ModelFailedError(one_line(error)) from error
        return [answers[self._places[name]] for name in outputs]


def load(order: Order) -> Engine:
    """Load a .mlxfn file. Raises ModelLoadError."""
    order.check_cpu_only("MLX")
    path = order.path
    check_kind(path, "exported MLX function")
    try:
        head = _head(path)
        return _THREAD.submit(lambda: Mlx(Function(path, head), head)).result()
    except (OSError, RuntimeError, ValueError) as error:
        remedy = ": export it after mx.set_default_device(mx.cpu)" if "gpu" in str(error) else ""
        raise ModelLoadError(
            f"MLX {mx.__version__} cannot load {path}: {one_line(error).rstrip('.')}{remedy}"
        ) from error


def _head(path: Path) -> Head:
    wrote = version_of(path)
    if wrote.split(".")[:2] != mx.__version__.split(".")[:2]:
        raise ModelLoadError(
            f"{path} was written by MLX {wrote}, and this image has {mx.__version__}: export it again with "
            "that version"
        )
    head = read(path)
    if head.traces != 1:
        raise ModelLoadError(
            f"{path} has {head.traces} functions, one for each set of shapes: export one, with "
            "shapeless=True for any number of rows"
        )
    return head


def _takes_any_rows(function: Function, shapes: Sequence[tuple[int, ...]], firsts: Sequence[Array]) -> bool:
    """Whether all inputs and outputs have as many rows, however many these are.

    MLX does not check the shapes of a function that was exported without them: a product of matrices that do
    not fit reads what is beyond them. So all sizes but the first are those of the export.
    """
    if not all(shapes) or len({shape[0] for shape in shapes}) != 1:
        return False
    for rows in _TRIED:
        try:
            answers = function.on_zeros([(rows, *shape[1:]) for shape in shapes])
        except (RuntimeError, ValueError):
            return False
        wanted = [(rows, *first.shape[1:]) for first in firsts]
        if [answer.shape for answer in answers] != wanted:
            return False
    return True


def _names(head: Head) -> list[str]:
    places = len(head.inputs) - len(head.keys)
    return [*(f"input_{place}" for place in range(places)), *head.keys]


def _types(what: str, number: int) -> tuple[Datatype, Any]:
    if number not in _DATATYPES:
        raise _not_carried(what, f"{number} of MLX's")
    return _DATATYPES[number]


def _array(what: str, answer: Any) -> Array:
    if not any(answer.dtype == dtype for _, dtype in _DATATYPES.values()):
        raise _not_carried(what, str(answer.dtype))
    return np.array(answer)


def _not_carried(what: str, dtype: str) -> ModelLoadError:
    return ModelLoadError(
        f"{what} of the function has type {dtype}, which this server cannot carry on MLX: cast it in the "
        "function"
    )


def _spec(name: str, datatype: Datatype, shape: tuple[int, ...], free: bool) -> TensorSpec:
    if not free:
        return TensorSpec(name, datatype, shape, tuple(None for _ in shape))
    return TensorSpec(name, datatype, (-1, *shape[1:]), (_ROWS, *(None for _ in shape[1:])))
