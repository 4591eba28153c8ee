"""ExecuTorch programs in .pte files, for the process that runs them.

A program has memory for sizes up to a bound.
"""

import struct
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from executorch.extension.pybindings import _C as library  # noqa: N811  # others import the exporter
from executorch.version import __version__

from tailbound_runtime.engine import CPU, Engine, Loaded, Order, Run, TensorSpec, one_line
from tailbound_runtime.engines.pte_file import IDENTIFIER, METHOD, Program, Tensor, read
from tailbound_runtime.engines.tree_names import leaf_names
from tailbound_runtime.errors import ModelFailedError, ModelLoadError
from tailbound_runtime.mistaken import check_head
from tailbound_runtime.tensors import BY_NAME, Array

BACKENDS: Final = frozenset(("XnnpackBackend",))
"""The others load a library that the file may name, or code that is in it."""
_DATATYPES: Final = {
    0: BY_NAME["UINT8"],
    1: BY_NAME["INT8"],
    2: BY_NAME["INT16"],
    3: BY_NAME["INT32"],
    4: BY_NAME["INT64"],
    5: BY_NAME["FP16"],
    6: BY_NAME["FP32"],
    7: BY_NAME["FP64"],
    11: BY_NAME["BOOL"],
    27: BY_NAME["UINT16"],
    28: BY_NAME["UINT32"],
    29: BY_NAME["UINT64"],
}
"""By ExecuTorch's numbers of types."""


class ExecuTorch(Loaded):
    """The method `forward` of a program, which one thread uses at a time."""

    def __init__(self, program: Program, method: Any) -> None:
        self._method = method
        self._lock = threading.Lock()
        super().__init__(
            _specs("input", program.inputs, program.input_tree),
            _specs("output", program.outputs, program.output_tree),
            "executorch_executorch",
            CPU,
            inlines=False,  # it stops no run
        )
        self._places = {name: place for place, name in enumerate(self.outputs)}

    def _infer(self, outputs: Sequence[str], inputs: Mapping[str, Array], run: Run) -> list[Array]:
        given = [torch.tensor(inputs[name]) for name in self.inputs]
        try:
            with self._lock:
                answers = self._method(given)
        except RuntimeError as error:
            raise ModelFailedError(
                f"ExecuTorch, which says more on standard error: {one_line(error)}"
            ) from error
        return [np.ascontiguousarray(answers[self._places[name]].numpy()) for name in outputs]


def load(order: Order) -> Engine:
    """Load a .pte file. Raises ModelLoadError."""
    path = order.path
    check_head(path, "ExecuTorch program", IDENTIFIER, at=4)
    library._unsafe_reset_threadpool(order.threads)  # unsafe during a run
    try:
        checks = library.Verification.InternalConsistency
        loaded = library._load_program(str(path), program_verification=checks)
        program = read(path)
        _check(program, str(path))
        return ExecuTorch(program, loaded.load_method(METHOD))
    except (
        IndexError,
        KeyError,
        OSError,
        RuntimeError,
        TypeError,
        ValueError,
        struct.error,
    ) as error:
        version = __version__.partition("+")[0]
        raise ModelLoadError(
            f"ExecuTorch {version}, which says more on standard error, cannot load {path}: {one_line(error)}"
        ) from error


def _check(program: Program, path: str) -> None:
    """Raises ModelLoadError for what is not to be loaded."""
    others = sorted(program.backends - BACKENDS)
    if others:
        raise ModelLoadError(
            f"{path} was lowered for {', '.join(others)}, which this server does not run: lower it with "
            "XnnpackPartitioner, or with none"
        )
    if program.keeps:
        raise ModelLoadError(
            f"the program in {path} changes its own buffers, so that requests would see what others left: "
            "export it without them"
        )


def _specs(kind: str, tensors: Sequence[Tensor | None], tree: str) -> list[TensorSpec]:
    count = len(tensors)
    names = leaf_names(kind, tree, count) if tree else [f"{kind}_{place}" for place in range(count)]
    return [_spec(f"{kind} {name!r}", name, tensor) for name, tensor in zip(names, tensors, strict=True)]


def _spec(what: str, name: str, tensor: Tensor | None) -> TensorSpec:
    if tensor is None:
        raise ModelLoadError(f"{what} of the program is no tensor: export it with tensors")
    datatype = _DATATYPES.get(tensor.scalar_type)
    if datatype is None:
        raise ModelLoadError(
            f"{what} of the program has type {tensor.scalar_type} of ExecuTorch's, which this server cannot "
            "carry on ExecuTorch: cast it in the model"
        )
    if not tensor.in_order:
        raise ModelLoadError(
            f"{what} of the program is not contiguous: export it with tensors in torch.contiguous_format"
        )
    unnamed = tuple(None for _ in tensor.sizes)
    if not tensor.bounded or not tensor.sizes:
        return TensorSpec(name, datatype, tensor.sizes, unnamed)
    most, *rest = tensor.sizes
    return TensorSpec(name, datatype, (-1, *rest), unnamed, most_rows=most)
