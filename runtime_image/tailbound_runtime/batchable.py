"""Whether a model can be batched at all. Who asks for batches and cannot have them is told at the start."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from tailbound_runtime.batch import Batching, Mode
from tailbound_runtime.errors import ModelLoadError
from tailbound_runtime.session import TensorSpec
from tailbound_runtime.tensors import Array

# Equal rows beside each other differ by rounding alone; quantised models round coarsely.
RELATIVE_TOLERANCE: Final = 0.1
ABSOLUTE_TOLERANCE: Final = 0.01


def check_shapes(
    inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec], batching: Batching
) -> None:
    """Raises ModelLoadError unless requests can share runs of a model with these tensors, or need not.

    | first dimension | dynamic | static |
    |---|---|---|
    | free | yes | yes |
    | fixed, equal to `max_size` | no | yes |
    | fixed otherwise | no | no |
    | none: a scalar, or of unknown rank | no | no |
    """
    if not batching.shares:
        return
    if not inputs:
        raise ModelLoadError(
            f"the model has no inputs, so that there is nothing to batch, but spec.batching.mode is "
            f"{batching.mode}: set it to none"
        )
    named = [("input", spec) for spec in inputs.values()] + [("output", spec) for spec in outputs.values()]
    for kind, spec in named:
        if not spec.shape:
            raise ModelLoadError(
                f"{kind} {spec.name!r} of the model has no first dimension that is known, so that requests "
                f"cannot share a run, but spec.batching.mode is {batching.mode}: export the model with a "
                "free first dimension everywhere, or set spec.batching.mode to none"
            )
        _check_first(kind, spec, batching)


def _check_first(kind: str, spec: TensorSpec, batching: Batching) -> None:
    first = spec.shape[0]
    if first == -1 or (batching.mode is Mode.STATIC and first == batching.max_size):
        return
    found = f"the first dimension of {kind} {spec.name!r} of the model is fixed at {first}"
    if batching.mode is Mode.STATIC:
        raise ModelLoadError(
            f"{found}, but spec.batching is static with maxBatchSize {batching.max_size}: set maxBatchSize "
            f"to {first}, or export the model with a free first dimension"
        )
    static = f", or to static with maxBatchSize {first}" if kind == "input" else ""
    raise ModelLoadError(
        f"{found}, so that requests of other sizes cannot share a run, but spec.batching.mode is dynamic: "
        f"export the model with a free first dimension, or set spec.batching.mode to none{static}"
    )


def check_answers(outputs: Sequence[TensorSpec], runs: Mapping[int, Sequence[Array]]) -> None:
    """Raises ModelLoadError if the answers to equal rows say that requests must not share a run.

    runs: by the number of rows, all equal, what the model answered
    """
    for index, spec in enumerate(outputs):
        for rows, arrays in runs.items():
            shape = list(arrays[index].shape)
            if shape[:1] != [rows]:
                raise ModelLoadError(
                    f"output {spec.name!r} of the model has shape {shape} for {rows} rows of input, so that "
                    "requests cannot share a run: set spec.batching.mode to none"
                )
        if not _alike([arrays[index] for arrays in runs.values()]):
            raise ModelLoadError(
                f"output {spec.name!r} of the model for one row depends on the rows beside it, which may be "
                "another caller's: set spec.batching.mode to none"
            )


def _alike(arrays: Sequence[Array]) -> bool:
    """Whether all rows of all arrays are the same, but for rounding. Only floats are compared: a label may
    well change with the rounding."""
    if len({array.shape[1:] for array in arrays}) > 1:
        return False
    rows = np.concatenate(arrays)
    if not np.issubdtype(rows.dtype, np.floating):
        return True
    return np.allclose(rows, rows[:1], RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE, equal_nan=True)
