"""TensorFlow Lite models on LiteRT.

An interpreter has one set of tensors, whose sizes are changed for a run of other sizes than the last one. Its
variables are reset before each run, so that no request sees what another one left. A run cannot be stopped.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

import ai_edge_litert
import numpy as np
from ai_edge_litert.interpreter import Interpreter

from tailbound_runtime.engine import CPU, Engine, Loaded, Order, Run, TensorSpec, one_line
from tailbound_runtime.errors import ModelFailedError, ModelLoadError
from tailbound_runtime.mistaken import check_head
from tailbound_runtime.tensors import BY_DTYPE, Array

_IDENTIFIER: Final = b"TFL3"

Names = Mapping[int, str]
"""Names by the number of the tensor."""


class LiteRt(Loaded):
    """An interpreter, which one thread uses at a time."""

    def __init__(self, interpreter: Any, inputs: Names, outputs: Names) -> None:
        self._interpreter = interpreter
        self._lock = threading.Lock()
        self._sizes: Mapping[str, tuple[int, ...]] = {}
        self._inputs = {name: number for number, name in inputs.items()}
        self._outputs = {name: number for number, name in outputs.items()}
        super().__init__(
            _specs("input", interpreter.get_input_details(), inputs),
            _specs("output", interpreter.get_output_details(), outputs),
            "litert_tflite",
            CPU,
            inlines=False,  # it stops no run
        )

    def _infer(self, outputs: Sequence[str], inputs: Mapping[str, Array], run: Run) -> list[Array]:
        with self._lock:
            try:
                self._resize({name: array.shape for name, array in inputs.items()})
                for name, array in inputs.items():
                    self._interpreter.set_tensor(self._inputs[name], array)
                self._interpreter.reset_all_variables()
                self._interpreter.invoke()
                return [self._interpreter.get_tensor(self._outputs[name]) for name in outputs]
            except (RuntimeError, ValueError) as error:
                self._sizes = {}
                raise ModelFailedError(one_line(error)) from error

    def _resize(self, sizes: Mapping[str, tuple[int, ...]]) -> None:
        if sizes == self._sizes:
            return
        for name, size in sizes.items():
            self._interpreter.resize_tensor_input(self._inputs[name], size, strict=True)
        self._interpreter.allocate_tensors()
        self._sizes = sizes


def load(order: Order) -> Engine:
    """Load a .tflite file, which is mapped and not copied. Raises ModelLoadError."""
    order.check_cpu_only("LiteRT")
    path = order.path
    check_head(path, "TensorFlow Lite model", _IDENTIFIER, at=4)
    try:
        # Asked for names, an interpreter refuses new sizes: another one is.
        asked = Interpreter(str(path), num_threads=1)
        interpreter = Interpreter(str(path), num_threads=order.threads)
        interpreter.allocate_tensors()
        return LiteRt(interpreter, _names(asked, "input"), _names(asked, "output"))
    except (OSError, RuntimeError, ValueError) as error:
        raise ModelLoadError(
            f"LiteRT {ai_edge_litert.__version__} cannot load {path}: {one_line(error)}"
        ) from error


def _names(interpreter: Any, kind: str) -> Names:
    """Names by the first signature that has all inputs or outputs, or else by the tensors themselves."""
    tensors = {each["index"]: each["name"] for each in getattr(interpreter, f"get_{kind}_details")()}
    for key in interpreter.get_signature_list():
        details = getattr(interpreter.get_signature_runner(key), f"get_{kind}_details")()
        found = {each["index"]: name for name, each in details.items()}
        if found.keys() == tensors.keys():
            return found
    return tensors


def _specs(kind: str, tensors: Sequence[Mapping[str, Any]], names: Names) -> list[TensorSpec]:
    specs = []
    for tensor in tensors:
        name = names[tensor["index"]]
        datatype = BY_DTYPE.get(np.dtype(tensor["dtype"]))
        if datatype is None:
            raise ModelLoadError(
                f"{kind} {name!r} of the model has type {np.dtype(tensor['dtype'])}, which this server "
                "cannot carry on LiteRT: convert the model with numbers as its inputs and outputs"
            )
        sizes = tuple(int(size) for size in tensor["shape_signature"])
        specs.append(TensorSpec(name, datatype, sizes, tuple(None for _ in sizes)))
    return specs
