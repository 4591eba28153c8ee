"""JAX functions that `jax.export` has written, on JAX.

JAX compiles for each shape that it has not met: the sizes of batches are few, as on a device. A run cannot be
stopped.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import export, tree_util

from tailbound_runtime.engine import CPU, Engine, Loaded, Order, Run, TensorSpec, one_line
from tailbound_runtime.errors import ModelFailedError, ModelLoadError
from tailbound_runtime.mistaken import check_kind
from tailbound_runtime.tensors import BY_DTYPE, Array


class Jax(Loaded):
    """An exported function; its inputs and outputs are the leaves of its arguments and of its result."""

    def __init__(self, exported: Any) -> None:
        self._in_tree = exported.in_tree
        self._call = jax.jit(exported.call)
        super().__init__(
            _specs("input", exported.in_tree, exported.in_avals),
            _specs("output", exported.out_tree, exported.out_avals),
            "jax_jax",
            CPU,
            prepares_sizes=True,
            inlines=False,  # it stops no run
        )
        self._places = {name: place for place, name in enumerate(self.outputs)}

    def _infer(self, outputs: Sequence[str], inputs: Mapping[str, Array], run: Run) -> list[Array]:
        try:
            given = [inputs[name] for name in self.inputs]
            arguments, named = tree_util.tree_unflatten(self._in_tree, given)
            answers = tree_util.tree_leaves(self._call(*arguments, **named))
            return [np.asarray(answers[self._places[name]]) for name in outputs]
        except (RuntimeError, TypeError, ValueError) as error:
            raise ModelFailedError(one_line(error)) from error


def load(order: Order) -> Engine:
    """Load a file of `jax.export.Exported.serialize()`. Raises ModelLoadError."""
    order.check_cpu_only("JAX")
    path = order.path
    check_kind(path, "exported JAX function")
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)  # else it would cut INT64 and FP64 to half
    try:
        exported = export.deserialize(bytearray(path.read_bytes()))
    except Exception as error:  # its reader checks nothing, and raises whatever comes of it
        raise ModelLoadError(f"JAX {jax.__version__} cannot load {path}: {one_line(error)}") from error
    if "cpu" not in exported.platforms:
        raise ModelLoadError(
            f"{path} was exported for {', '.join(exported.platforms)}: export it with platforms=['cpu']"
        )
    return Jax(exported)


def _specs(kind: str, tree: Any, shapes: Sequence[Any]) -> list[TensorSpec]:
    leaves, _ = tree_util.tree_flatten_with_path(tree_util.tree_unflatten(tree, list(shapes)))
    specs = []
    for place, (keys, shape) in enumerate(leaves):
        name = _name(keys) or f"{kind}_{place}"
        datatype = BY_DTYPE.get(np.dtype(shape.dtype))
        if datatype is None:
            raise ModelLoadError(
                f"{kind} {name!r} of the model has type {shape.dtype}, which this server cannot carry on "
                "JAX: cast it in the function"
            )
        sizes = tuple(size if isinstance(size, int) else -1 for size in shape.shape)
        symbols = tuple(None if isinstance(size, int) else _symbol(str(size)) for size in shape.shape)
        specs.append(TensorSpec(name, datatype, sizes, symbols))
    return specs


def _name(keys: Sequence[Any]) -> str | None:
    """The key of a dictionary that the leaf is in; None in a tuple, or alone."""
    key = getattr(keys[-1], "key", None) if keys else None
    return key if isinstance(key, str) else None


def _symbol(size: str) -> str | None:
    return size if size.isidentifier() else None
