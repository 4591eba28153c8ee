"""Samples for `tailbound-runtime optimize`: .npz files with one array for each input, a sample to a row."""

import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from tailbound_runtime.engine import TensorSpec
from tailbound_runtime.errors import SamplesError
from tailbound_runtime.tensors import Array

HELD_OUT: Final = 5
"""Each fifth sample is kept from calibration."""
LEAST_HELD_OUT: Final = 100
"""With fewer, a loss of one in a hundred could not be seen."""
UNREADABLE: Final = (OSError, ValueError, AttributeError, EOFError, zipfile.BadZipFile, zlib.error)
"""What numpy raises for files that are no .npz, or damaged ones."""
_AT_ONCE: Final = 32


@dataclass(frozen=True)
class Samples:
    """Arrays by name, all with the same number of rows."""

    arrays: Mapping[str, Array]
    labels: Array | None

    @property
    def count(self) -> int:
        """The number of samples."""
        return len(next(iter(self.arrays.values())))

    def parted(self) -> tuple["Samples", "Samples"]:
        """Those for calibration, and those that are held out."""
        held = np.arange(self.count) % HELD_OUT == HELD_OUT - 1
        return self._of(~held), self._of(held)

    def batches(self, rows: int | None) -> Iterator[Mapping[str, Array]]:
        """Inputs of runs with `rows` rows each, or with at most 32; what does not fill a run is left out."""
        size = rows or _AT_ONCE
        ends = range(0, self.count if rows is None else self.count - rows + 1, size)
        for first in ends:
            yield {name: array[first : first + size] for name, array in self.arrays.items()}

    def _of(self, chosen: Array) -> "Samples":
        labels = self.labels[chosen] if self.labels is not None else None
        return Samples({name: array[chosen] for name, array in self.arrays.items()}, labels)


def read(paths: Sequence[Path], inputs: Mapping[str, TensorSpec], label: str | None) -> Samples:
    """The samples of these files together. Raises SamplesError."""
    wanted = [*inputs, *([label] if label is not None else [])]
    parts = [_read(path, wanted) for path in paths]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in wanted}
    if len({len(array) for array in joined.values()}) != 1:
        counts = ", ".join(f"{name} {len(array)}" for name, array in joined.items())
        raise SamplesError(f"the arrays have different numbers of samples ({counts}): give each as many")
    for name, spec in inputs.items():
        joined[name] = _fitting(name, joined[name], spec)
    return Samples({name: joined[name] for name in inputs}, joined[label] if label is not None else None)


def check_counts(samples: Samples, calibrates: bool, least: int) -> None:
    """Raises SamplesError if there are too few to calibrate with, or to see a loss."""
    calibration, held = samples.parted()
    if calibrates and calibration.count < least:
        raise SamplesError(
            f"{calibration.count} samples are left for calibration, and {least} are the least: give more, or "
            "state another least number with --samples"
        )
    if held.count < LEAST_HELD_OUT:
        raise SamplesError(
            f"{held.count} samples are held out, and {LEAST_HELD_OUT} are the least that show a loss: give "
            f"{HELD_OUT * LEAST_HELD_OUT} samples or more"
        )


def fixed_rows(inputs: Mapping[str, TensorSpec]) -> int | None:
    """The rows of each run, where the model fixes them."""
    first = {spec.shape[0] for spec in inputs.values() if spec.shape}
    return next((size for size in first if size > 0), None)


def _read(path: Path, wanted: Sequence[str]) -> Mapping[str, Array]:
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            found = {name: file[name] for name in wanted if name in file.files}
            there = ", ".join(file.files)
    except UNREADABLE as error:
        raise SamplesError(f"{path} is no .npz file of arrays: {error}") from error
    missing = [name for name in wanted if name not in found]
    if missing:
        raise SamplesError(f"{path} has no array {missing[0]}: it has {there}; name each array as its input")
    scalars = [name for name, array in found.items() if not array.ndim]
    if scalars:
        raise SamplesError(f"{path}: array {scalars[0]} has no rows: give one row to each sample")
    return found


def _fitting(name: str, array: Array, spec: TensorSpec) -> Array:
    """The array in the type of the input. The first dimension of the model may be the rows of a run."""
    rows = spec.shape[:1] or (-1,)
    if spec.shape and not spec.admits((rows[0] if rows[0] > 0 else len(array), *array.shape[1:])):
        raise SamplesError(
            f"array {name} has samples of shape {list(array.shape[1:])}, and the model takes "
            f"{list(spec.shape)}"
        )
    if not np.can_cast(array.dtype, spec.datatype.numpy, casting="same_kind"):
        raise SamplesError(
            f"array {name} has type {array.dtype}, and the model takes {spec.datatype.name}: store it in "
            "that type"
        )
    return np.ascontiguousarray(array, dtype=spec.datatype.numpy)
