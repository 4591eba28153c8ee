"""How well an optimized model agrees with the original, on samples that it has not seen. Pure.

What is measured of each output, first row that fits:

| output | measure |
|---|---|
| no float | share of samples whose values are not all equal |
| float, and a sample is a row of two values or more | share whose largest value is at another place |
| any other | mean over samples of the norm of the difference by the norm of the original |

A sample that is finite in the original and not in the optimized model counts as wholly wrong. With labels,
rows count by how much less often the largest value is at the place of the label.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from tailbound_runtime.tensors import Array

_LEAST_NORM: Final = 1e-12


class Measure(StrEnum):
    """What is compared of an output."""

    EQUAL = "unequal"
    TOP1 = "top1"
    ERROR = "error"
    LABELS = "labels"


@dataclass(frozen=True)
class Agreement:
    """How far one output is off: 0 is the same, and 1 is wholly wrong."""

    output: str
    measure: Measure
    loss: float


def agreements(
    original: Mapping[str, Array], optimized: Mapping[str, Array], labels: Array | None = None
) -> tuple[Agreement, ...]:
    """One for each output; both hold all held-out samples, one after the other."""
    return tuple(_agreement(name, original[name], optimized[name], labels) for name in original)


def _agreement(name: str, before: Array, after: Array, labels: Array | None) -> Agreement:
    if before.shape != after.shape:
        return Agreement(name, Measure.EQUAL, 1.0)
    if not np.issubdtype(before.dtype, np.floating):
        unequal = (before != after).reshape(len(before), -1).any(axis=1)
        return Agreement(name, Measure.EQUAL, float(unequal.mean()))
    broken = _finite(before) & ~_finite(after)
    if before.ndim == 2 and before.shape[1] > 1:
        if labels is not None:
            lost = (_top(before) == labels).mean() - ((_top(after) == labels) & ~broken).mean()
            return Agreement(name, Measure.LABELS, max(0.0, float(lost)))
        return Agreement(name, Measure.TOP1, float(((_top(before) != _top(after)) | broken).mean()))
    return Agreement(name, Measure.ERROR, float(np.where(broken, 1.0, _errors(before, after)).mean()))


def _finite(values: Array) -> Array:
    return np.asarray(np.isfinite(values).reshape(len(values), -1).all(axis=1))


def _top(values: Array) -> Array:
    return np.asarray(np.nan_to_num(values.astype(np.float64), nan=-np.inf).argmax(axis=1))


def _errors(before: Array, after: Array) -> Array:
    """The relative error of each sample. What is not finite in the original is left out."""
    there = np.isfinite(before)
    old = np.where(there, before, 0).astype(np.float64).reshape(len(before), -1)
    new = np.where(there & np.isfinite(after), after, 0).astype(np.float64).reshape(len(before), -1)
    norms = np.maximum(np.linalg.norm(old, axis=1), _LEAST_NORM)
    return np.asarray(np.minimum(np.linalg.norm(new - old, axis=1) / norms, 1.0))


def worst(found: Sequence[Agreement]) -> Agreement:
    """The output that is off the most."""
    return max(found, key=lambda each: each.loss)
