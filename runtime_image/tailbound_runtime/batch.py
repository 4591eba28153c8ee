"""Batches: how many requests one run of the model takes; how their tensors become one and come apart again.

A row is one step along the first dimension, which all inputs and outputs of a batched model share.

| mode | a run has |
|---|---|
| none | one request |
| dynamic | as many requests as wait, up to `max_size` rows; on a device, filled up to one of its sizes |
| static | exactly `max_size` rows: what requests do not fill is filled up with copies of the last row |
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate
from typing import Final

import numpy as np
import numpy.typing as npt

from tailbound_runtime.engine import TensorSpec
from tailbound_runtime.errors import ApiError, ModelFailedError
from tailbound_runtime.gather import gathered
from tailbound_runtime.tensors import Array

MOST_STAGED: Final = 8
"""Shapes that memory is kept for: it is pinned, which the machine has little of."""


class Mode(StrEnum):
    """Whether requests share runs, and of what size these are."""

    NONE = "none"
    DYNAMIC = "dynamic"
    STATIC = "static"


@dataclass(frozen=True)
class Batching:
    """What spec.batching says.

    max_size: the most rows of one run; without a meaning in mode none, like the rest
    preferred: sizes in rows that run at once, without waiting for more; rising, at most `max_size`
    delay_seconds: how long a request may wait for others to join it
    fills: the only rows that dynamic runs have, rising up to `max_size`; empty: any number
    levels: of priority that requests may wait in; 0: there is one, whatever they say
    """

    mode: Mode
    max_size: int
    preferred: tuple[int, ...]
    delay_seconds: float
    fills: tuple[int, ...] = ()
    levels: int = 0

    @property
    def shares(self) -> bool:
        """Whether requests may share a run."""
        return self.mode is not Mode.NONE

    def sizes(self) -> tuple[int, ...]:
        """Rows of the runs that the model is warmed up with, rising."""
        match self.mode:
            case Mode.NONE:
                return (1,)
            case Mode.STATIC:
                return (self.max_size,)
            case Mode.DYNAMIC:
                return self.fills or tuple(sorted({1, *self.preferred, self.max_size}))

    def on_device(self) -> "Batching":
        """The batching for a device, which prepares for each new number of rows, and takes long for it.

        So runs have few sizes, all met while the model warms up, and at most a third of a run is filling.
        """
        if self.mode is not Mode.DYNAMIC:
            return self
        powers = [2**power for power in range(self.max_size.bit_length())]
        sizes = {*powers, *(3 * power // 2 for power in powers[1:]), *self.preferred, self.max_size}
        return replace(self, fills=tuple(sorted(size for size in sizes if size <= self.max_size)))

    def of_one_size(self) -> "Batching":
        """The batching for a device that prepares a run each time that the number of rows changes.

        On a GPU this took ResNet-50 a third of a second on average.
        """
        return replace(self, fills=(self.max_size,))

    def padding(self, rows: int) -> int:
        """Rows that a run of `rows` lacks."""
        if self.mode is Mode.STATIC:
            return self.max_size - rows
        if not self.fills or not rows:
            return 0
        return self.fills[bisect_left(self.fills, rows)] - rows

    def accepts(self, specs: Mapping[str, TensorSpec]) -> Mapping[str, TensorSpec]:
        """What one request may send for these inputs: any number of rows, though the model's is fixed."""
        if not self.shares:
            return specs
        return {
            name: replace(spec, shape=(-1, *spec.shape[1:]), symbols=(None, *spec.symbols[1:]))
            for name, spec in specs.items()
        }


UNBATCHED: Final = Batching(Mode.NONE, 1, (), 0)


def to_take(waiting: Iterable[int], waited_seconds: float, batching: Batching) -> int:
    """How many requests the next run takes, of those that wait; 0 means that it is to wait for more.

    waiting: rows of each request, first to go first, each at most `max_size`, and at least one
    waited_seconds: how long the oldest has waited

    The first line that applies:

    | what waits | taken |
    |---|---|
    | (mode none) | the oldest |
    | reaches `max_size` or a preferred size exactly | the oldest that sum up to the largest such size |
    | does not fit into `max_size` | the oldest that fit |
    | has waited for the delay | all |
    | otherwise | none |
    """
    if not batching.shares:
        return 1
    exact = count = 0
    for total in accumulate(waiting):
        if total > batching.max_size:
            return exact or count
        count += 1
        if total == batching.max_size or total in batching.preferred:
            exact = count
    return exact or (count if waited_seconds >= batching.delay_seconds else 0)


def rows_of(inputs: Mapping[str, Array], specs: Mapping[str, TensorSpec], batching: Batching) -> int:
    """The rows of a request whose inputs agree with `specs`.

    Raises ApiError 400 if it cannot be part of any batch. Without batching nothing is refused, and a model
    without a free first dimension has one row.
    """
    if not batching.shares:
        free = (name for name, spec in list(specs.items())[:1] if spec.shape[:1] == (-1,))
        return next((len(inputs[name]) for name in free), 1)
    (first, rows), *others = ((name, len(array)) for name, array in inputs.items())
    for name, other in others:
        if other != rows:
            raise ApiError(
                400,
                f"input {name!r} has {other} rows, but input {first!r} has {rows}: this service batches "
                "requests, so that the first dimension of all inputs must be the same",
            )
    if rows > batching.max_size:
        raise ApiError(
            400,
            f"the request has {rows} rows, but this service takes at most {batching.max_size} at once, its "
            "maxBatchSize: send several requests",
        )
    if rows == 0 and batching.mode is Mode.STATIC:
        raise ApiError(
            400, "the request has no rows, and there is nothing to fill its batch up with: send one"
        )
    return rows


class Staging:
    """The memory that a device's inputs are joined in: made once for each shape, and used for every run."""

    def __init__(
        self, batching: Batching, buffer: Callable[[tuple[int, ...], npt.DTypeLike], Array | None]
    ) -> None:
        """`buffer` makes one; None if the device gains nothing by it."""
        self._rows = batching.max_size
        self._buffer = buffer
        self._made: dict[tuple[str, tuple[int, ...]], Array | None] = {}

    def joined(self, name: str, arrays: Sequence[Array], padding: int) -> Array | None:
        """The arrays of one input in turn, and copies of the last row, until this is called again.

        None if this is no place for them.
        """
        row = arrays[0].shape[1:]
        known = (name, row)
        if known not in self._made:
            if len(self._made) >= MOST_STAGED or arrays[0].dtype.hasobject:
                return None
            self._made[known] = self._buffer((self._rows, *row), arrays[0].dtype)
        place = self._made[known]
        if place is None:
            return None
        rows = sum(map(len, arrays))
        if not all(array.flags.c_contiguous for array in arrays) or not place[:rows].nbytes:
            return None
        if not gathered(place, arrays):
            # Twice copied, and yet sooner there than with a step of the interpreter for each array.
            joined = b"".join([array.data for array in arrays])
            place.reshape(-1).view(np.uint8).data[: len(joined)] = joined
        place[rows : rows + padding] = place[rows - 1]
        return place[: rows + padding]


def join(
    requests: Sequence[Mapping[str, Array]], padding: int, staging: Staging | None = None
) -> Mapping[str, Array]:
    """The inputs of one run: those of the requests in turn, then copies of the last row to fill it."""
    if len(requests) == 1 and not padding:
        return requests[0]
    return {name: _joined(name, [one[name] for one in requests], padding, staging) for name in requests[0]}


def _joined(name: str, arrays: Sequence[Array], padding: int, staging: Staging | None) -> Array:
    staged = None if staging is None else staging.joined(name, arrays, padding)
    if staged is not None:
        return staged
    joined = np.concatenate(arrays)
    return np.concatenate([joined, np.repeat(joined[-1:], padding, axis=0)]) if padding else joined


def split(arrays: Sequence[Array], rows: Sequence[int], padding: int) -> list[list[Array]]:
    """For each request its own rows of every output. Raises ModelFailedError if they are not to be found."""
    if len(rows) == 1 and not padding:
        return [list(arrays)]
    total = sum(rows) + padding
    for array in arrays:
        if array.shape[:1] != (total,):
            raise ModelFailedError(
                f"an output has shape {list(array.shape)} for {total} rows of input: they cannot be assigned"
            )
    ends = list(accumulate(rows))
    return [[array[end - size : end] for array in arrays] for end, size in zip(ends, rows, strict=True)]
