"""Warm-up with data, and how long runs take by their rows: both before the model is ready.

Data lies beside the model in files named after it: beside `model.onnx`, `model.warmup.npz`, or
`model.warmup.NAME.npz` for several. Each has one array for each input, and is run as it is. One that does not
fit the model, or that it refuses, ends the load: its author expects such requests.

The first row that holds says what is measured:

| the model | what its runs are measured on |
|---|---|
| has data with rows along the first dimension of all inputs | rows of the first file, in turn |
| runs on a device, where each new shape has to be prepared for | nothing |
| took longer than SLOW_SECONDS for zeros | nothing |
| otherwise | random tensors within the signature, as far as it takes any |
"""

import glob
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from tailbound_runtime.batch import Batching, Mode
from tailbound_runtime.engine import WARM_UP_RUNS, Engine, Run, TensorSpec
from tailbound_runtime.errors import ModelFailedError, ModelInputError, ModelLoadError
from tailbound_runtime.measure import accepted, doubled
from tailbound_runtime.samples import UNREADABLE
from tailbound_runtime.tensors import BF16, Array, bits_of

MOST_SECONDS: Final = 2.0
"""No further size is measured after these."""
SLOW_SECONDS: Final = 0.25
"""No further run of one size is measured after these."""

Inputs = Mapping[str, Array]


def warm_up(engine: Engine, path: Path, batching: Batching) -> Mapping[int, float]:
    """Run the data beside the model file; the seconds of a run by its rows. Raises ModelLoadError."""
    files = {file: read(file, engine.inputs) for file in files_beside(path)}
    for file, inputs in files.items():
        try:
            _runs(engine, inputs)
        except (ModelInputError, ModelFailedError) as error:
            raise ModelLoadError(
                f"the model cannot run its warm-up data {file}: correct the file, or remove it: {error}"
            ) from error
    data = next(iter(files.values()), None)
    return measured(engine, data if data is not None and _has_rows(engine, data) else None, batching)


def files_beside(path: Path) -> Sequence[Path]:
    """The files with data for this model, in alphabetical order."""
    return sorted(path.parent.glob(f"{glob.escape(path.stem)}.warmup*.npz"))


def read(file: Path, specs: Mapping[str, TensorSpec]) -> Inputs:
    """The inputs of one run. Raises ModelLoadError naming the file, the array and what it has to be."""
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}
    except UNREADABLE as error:
        raise ModelLoadError(f"warm-up data {file} is no .npz file of arrays: {error}") from error
    if set(found) != set(specs):
        raise ModelLoadError(
            f"warm-up data {file} has the arrays {sorted(found)}, and the model takes {sorted(specs)}: give "
            "one array for each input, by its name"
        )
    return {name: _fitting(file, spec, found[name]) for name, spec in specs.items()}


def _fitting(file: Path, spec: TensorSpec, array: Array) -> Array:
    if not spec.admits(array.shape):
        raise ModelLoadError(
            f"warm-up data {file}: array {spec.name!r} has shape {list(array.shape)}, and the model takes "
            f"{list(spec.shape)}, -1 being any size"
        )
    if spec.datatype.is_text and array.dtype.kind == "U":
        return array.astype(np.object_)
    if spec.datatype is BF16 and array.dtype.kind == "f":
        return bits_of(array)
    if spec.datatype.is_text or array.dtype != np.dtype(spec.datatype.numpy):
        raise ModelLoadError(
            f"warm-up data {file}: array {spec.name!r} has type {array.dtype}, and the model takes "
            f"{spec.datatype.name}: store it in that type"
        )
    return array


def measured(engine: Engine, data: Inputs | None, batching: Batching) -> Mapping[int, float]:
    """Seconds of a run by its rows, of sizes that runs will have; empty if the model takes no such runs."""
    if data is None and (engine.on_device or engine.warm_seconds > SLOW_SECONDS):
        return {}
    seconds: dict[int, float] = {}
    ends = time.monotonic() + MOST_SECONDS
    for rows in sizes(batching):
        if time.monotonic() >= ends:
            break
        inputs = accepted(engine, rows) if data is None else {n: _rows(a, rows) for n, a in data.items()}
        if inputs is None:
            break
        try:
            seconds[rows] = _runs(engine, inputs)
        except (ModelInputError, ModelFailedError):
            break
    return seconds


def sizes(batching: Batching) -> Sequence[int]:
    """The rows of the runs to measure, rising."""
    if batching.mode is not Mode.DYNAMIC or batching.fills:
        return batching.sizes()
    return sorted({*batching.sizes(), *doubled(batching.max_size)})


def _has_rows(engine: Engine, data: Inputs) -> bool:
    """Whether runs of any number of rows can be made of these."""
    free = all(spec.shape[:1] == (-1,) for spec in engine.inputs.values())
    return free and len({len(array) for array in data.values()}) == 1 and all(map(len, data.values()))


def _rows(array: Array, rows: int) -> Array:
    return np.take(array, np.arange(rows) % len(array), axis=0)


def _runs(engine: Engine, inputs: Inputs) -> float:
    """The typical seconds of a run, once it is warm."""
    taken: list[float] = []
    while len(taken) < 1 + WARM_UP_RUNS and sum(taken) < SLOW_SECONDS:
        started = time.perf_counter()
        engine.run(list(engine.outputs), inputs, Run())
        taken.append(time.perf_counter() - started)
    return statistics.median(taken[1:] or taken)
