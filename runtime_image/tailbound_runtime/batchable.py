"""Whether a model can be batched at all. A log line at the start says why it cannot."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tailbound_runtime.batch import Batching, Mode
from tailbound_runtime.engine import TensorSpec
from tailbound_runtime.errors import ModelFailedError, ModelInputError, ModelLoadError
from tailbound_runtime.tensors import BF16, Array, bits_of, values_of

TOLERANCE: Final = 0.05
LEAST_DIFFERENCE: Final = 1e-6
MOST_LABELS_CHANGED: Final = 0.125
MOST_ROWS: Final = 8
MOSTROUNDS: Final = 3
CHECK_SECONDS: Final = 10.0
"""No new round begins after these, once one has passed."""

Model = Callable[[Mapping[str, Array]], Sequence[Array]]
"""All outputs for these inputs. Raises ModelInputError or ModelFailedError."""


@dataclass(frozen=True)
class Random:
    """How a round draws its rows.

    integers: one more than the largest; small ones are in any vocabulary
    scale: typical size of floats
    free_size: of free dimensions other than the first
    """

    integers: int
    scale: float
    free_size: int


ROUNDS: Final = (
    Random(10, 1.0, 8),
    Random(10, 50.0, 8),
    Random(2, 0.1, 8),
    Random(10, 1.0, 1),
    Random(2, 1.0, 1),
    Random(2, 1.0, 64),
)


def check_shapes(
    inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec], batching: Batching
) -> None:
    """Raises ModelLoadError unless requests can share runs of a model with these tensors, or need not.

    | first dimension | dynamic | static |
    |---|---|---|
    | free | yes | yes |
    | fixed, equal to `max_size` | no | yes |
    | fixed otherwise | no | no |
    | free up to less than `max_size` | no | no |
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
    if spec.most_rows is not None and spec.most_rows < batching.max_size:
        raise ModelLoadError(
            f"{kind} {spec.name!r} of the model has room for {spec.most_rows} rows, but "
            f"spec.batching.maxBatchSize is {batching.max_size}: set it to {spec.most_rows} at most, or "
            "export the model with a larger bound"
        )
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


def check_rows(
    run: Model, inputs: Mapping[str, TensorSpec], outputs: Sequence[TensorSpec], batching: Batching
) -> str | None:
    """Whether each row's answer is the same alone, in a batch and in another order, on distinct random rows.

    None if it is; the reason if the model took no random rows, so that this is unknown. Raises ModelLoadError
    if it is not: a caller's answer would depend on other callers' rows.
    """
    reason = None
    passed = 0
    started = time.monotonic()
    for number, random in enumerate(ROUNDS):
        if passed == MOSTROUNDS or (passed and time.monotonic() - started > CHECK_SECONDS):
            break
        rows = random_rows(np.random.default_rng(number), inputs, _count(batching), random)
        try:
            _check_round(run, rows, outputs, batching)
        except (ModelInputError, ModelFailedError) as error:
            reason = str(error)
        else:
            passed += 1
    return None if passed else reason


def _count(batching: Batching) -> int:
    return batching.max_size if batching.mode is Mode.STATIC else min(batching.max_size, MOST_ROWS)


def _check_round(
    run: Model, rows: Mapping[str, Array], outputs: Sequence[TensorSpec], batching: Batching
) -> None:
    count = _count(batching)
    together = run(rows)
    for spec, array in zip(outputs, together, strict=True):
        if array.shape[:1] != (count,):
            raise ModelLoadError(
                f"output {spec.name!r} of the model has shape {list(array.shape)} for {count} rows of input, "
                "so that requests cannot share a run: set spec.batching.mode to none"
            )
    order = np.roll(np.arange(count), 1)
    others = [(order, run({name: array[order] for name, array in rows.items()}))]
    for index in sorted({0, count // 2, count - 1}):
        alone = np.full(count if batching.mode is Mode.STATIC else 1, index)
        others.append((alone, run({name: array[alone] for name, array in rows.items()})))
    for place, spec in enumerate(outputs):
        for order, answers in others:
            one, other = together[place][order], answers[place]
            if spec.datatype is BF16:
                one, other = values_of(one), values_of(other)
            if not alike(one, other):
                raise ModelLoadError(
                    f"output {spec.name!r} of the model for one row depends on the rows beside it, which may "
                    "be another caller's: set spec.batching.mode to none"
                )


def random_rows(
    dice: np.random.Generator, specs: Mapping[str, TensorSpec], count: int, random: Random
) -> dict[str, Array]:
    """Draw `count` distinct rows of every input at random."""
    return {
        spec.name: draw(
            dice,
            spec,
            (count, *(random.free_size if size == -1 else size for size in spec.shape[1:])),
            random,
        )
        for spec in specs.values()
    }


def draw(dice: np.random.Generator, spec: TensorSpec, shape: tuple[int, ...], random: Random) -> Array:
    """A tensor for this input, drawn at random."""
    if spec.datatype.is_text:
        return np.array([f"{number}" for number in range(math.prod(shape))], np.object_).reshape(shape)
    if spec.datatype is BF16:
        return bits_of(dice.standard_normal(shape) * random.scale)
    dtype = np.dtype(spec.datatype.numpy)
    if np.issubdtype(dtype, np.floating):
        return np.asarray(dice.standard_normal(shape) * random.scale, dtype)
    if dtype == np.bool_:
        return np.asarray(dice.integers(0, 2, shape), dtype)
    return np.asarray(dice.integers(0, random.integers, shape), dtype)


def alike(one: Array, other: Array) -> bool:
    """Whether these answers are the same but for rounding, of which quantised models do much.

    Floats may differ by a part of the array's typical size. Labels may change with the rounding, but few.
    """
    if one.shape != other.shape:
        return False
    if not np.issubdtype(one.dtype, np.floating):
        differ = (one != other).reshape(len(one), -1).any(axis=1) if one.size else np.zeros(1)
        return bool(differ.mean() <= MOST_LABELS_CHANGED)
    first, second = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(first)
    if not np.array_equal(first[~finite], second[~finite], equal_nan=True):
        return False
    if not np.isfinite(second[finite]).all():
        return False
    size = float(np.sqrt(np.mean(first[finite] ** 2))) if finite.any() else 0.0
    return bool((np.abs(first[finite] - second[finite]) <= TOLERANCE * size + LEAST_DIFFERENCE).all())
