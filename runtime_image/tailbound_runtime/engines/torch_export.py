"""PyTorch programs that `torch.export.save` has written, on PyTorch.

The file is read by modules of our own, since torch.export.load runs code that is in it. A run is stopped
between two operations.
"""

import re
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch

from tailbound_runtime.engine import CPU, Engine, Loaded, Order, Run, TensorSpec, one_line
from tailbound_runtime.engines.pt2_archive import DTYPES, Archive, check_plain, read
from tailbound_runtime.engines.pt2_graph import fault_of, nodes_of
from tailbound_runtime.engines.tree_names import leaf_names
from tailbound_runtime.errors import ModelFailedError, ModelLoadError
from tailbound_runtime.mistaken import check_head
from tailbound_runtime.tensors import BY_DTYPE, Array

_ZIP: Final = b"PK\x03\x04"
_SYMBOL: Final = re.compile(r"(?:Symbol\(')?(\w+)(?:'[\w=, ]*\))?")
_LIFTED: Final = {
    "parameter": "parameter_name",
    "buffer": "buffer_name",
    "tensor_constant": "tensor_constant_name",
}


class TorchExport(Loaded):
    """A program: its nodes and weights."""

    def __init__(self, archive: Archive) -> None:
        """Raises ModelLoadError, KeyError, TypeError and ValueError."""
        module = archive.program["graph_module"]
        graph, signature = module["graph"], module["signature"]
        self._weights, given = _inputs(signature["input_specs"], archive)
        self._results = _results(signature["output_specs"])
        self._nodes = nodes_of(graph, [*self._results, *self._weights, *given])
        fault = fault_of(self._nodes, self._weights)
        if fault is not None:
            raise ModelLoadError(fault)
        names = _output_names(module, len(self._results))
        self._places = {name: place for place, name in enumerate(names)}
        super().__init__(
            [_spec(name, name, graph) for name in given],
            [_spec(name, result, graph) for name, result in zip(names, self._results, strict=True)],
            "torch_pt2",
            CPU,
            inlines=False,  # its own threads differ for each thread that runs it
        )

    def _infer(self, outputs: Sequence[str], inputs: Mapping[str, Array], run: Run) -> list[Array]:
        try:
            with torch.inference_mode():
                values = {**self._weights, **{name: torch.tensor(array) for name, array in inputs.items()}}
                for node in self._nodes:
                    if run.stopped:
                        raise ModelFailedError("the run was stopped")
                    node.run(values)
                answers = [values[self._results[self._places[name]]].numpy() for name in outputs]
        except (
            AssertionError,
            IndexError,
            RuntimeError,
            TypeError,
            ValueError,
        ) as error:
            raise ModelFailedError(one_line(error)) from error
        return [np.ascontiguousarray(answer) for answer in answers]


def load(order: Order) -> Engine:
    """Load a .pt2 file. Raises ModelLoadError."""
    order.check_cpu_only("PyTorch")
    path = order.path
    check_head(path, "file of torch.export.save", _ZIP)
    torch.set_num_threads(order.threads)
    try:
        return TorchExport(read(path))
    except (OSError, zipfile.BadZipFile) as error:
        raise ModelLoadError(
            f"{path} cannot be read as a file of torch.export.save: {one_line(error)}"
        ) from error
    except (
        AttributeError,
        LookupError,
        MemoryError,
        RecursionError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        raise ModelLoadError(
            f"{path} is not what torch.export.save of torch {torch.__version__.partition('+')[0]} writes: "
            f"{type(error).__name__}: {one_line(error)}"
        ) from error


def _inputs(specs: Sequence[Any], archive: Archive) -> tuple[Mapping[str, torch.Tensor], list[str]]:
    """The weights by their names in the graph, and the names of the inputs."""
    weights, given = {}, []
    for spec in specs:
        ((kind, value),) = spec.items()
        if kind in _LIFTED:
            weights[value["arg"]["name"]] = archive.tensors[value[_LIFTED[kind]]]
        elif kind == "user_input" and "as_tensor" in value["arg"]:
            given.append(value["arg"]["as_tensor"]["name"])
        elif kind != "constant_input":
            raise ModelLoadError(
                f"the model has an input of kind {kind} that is no tensor: export it with tensors"
            )
    return weights, given


def _results(specs: Sequence[Any]) -> list[str]:
    results = []
    for spec in specs:
        ((kind, value),) = spec.items()
        if kind != "user_output" or "as_tensor" not in value["arg"]:
            raise ModelLoadError(
                f"the model has an output of kind {kind} that is no tensor, or changes its buffers: export "
                "it after eval(), with tensors as its results"
            )
        results.append(value["arg"]["as_tensor"]["name"])
    return results


def _output_names(module: Mapping[str, Any], count: int) -> list[str]:
    (root,) = (each for each in module["module_call_graph"] if each["fqn"] == "")
    return leaf_names("output", root["signature"]["out_spec"], count)


def _spec(name: str, value: str, graph: Mapping[str, Any]) -> TensorSpec:
    meta = graph["tensor_values"][value]
    check_plain(name, meta)
    dtype = DTYPES[meta["dtype"]]
    datatype = None if dtype == torch.bfloat16 else BY_DTYPE.get(torch.empty(0, dtype=dtype).numpy().dtype)
    if datatype is None:
        raise ModelLoadError(
            f"{name!r} of the model has type {dtype}, which this server cannot carry on PyTorch: cast it in "
            "the model"
        )
    sizes = tuple(size.get("as_int", -1) for size in meta["sizes"])
    return TensorSpec(name, datatype, sizes, tuple(map(_symbol, meta["sizes"])))


def _symbol(size: Mapping[str, Any]) -> str | None:
    """The name of a free size that is a symbol alone."""
    found = _SYMBOL.fullmatch(size["as_expr"]["expr_str"]) if "as_expr" in size else None
    return found[1] if found else None
