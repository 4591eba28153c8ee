"""Reads the head of the files of `mx.export_function`, since MLX tells nothing of a function but its answers.

A file begins with MLX's version; what follows is as MLX 0.32 writes it, with numbers in little endian.
"""

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

_MOST: Final = 4096
"""Characters of a name, dimensions of a tensor, and tensors: more are no such file."""
_MOST_METADATA: Final = 2**24
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+[\w.+]*")

T = TypeVar("T")


@dataclass(frozen=True)
class Tensor:
    """An input, as it was at the export; `dtype` is MLX's number of its type."""

    dtype: int
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Head:
    """What a file says first.

    traces: functions in it, one for each set of shapes
    shapeless: whether other sizes than those of the export may be given
    keys: the names of the keyword arguments, which are the last of the inputs
    """

    traces: int
    shapeless: bool
    keys: Sequence[str]
    inputs: Sequence[Tensor]


def version_of(path: Path) -> str:
    """The version of MLX that wrote it. Raises OSError and ValueError."""
    with path.open("rb") as file:
        return _version(file)


def read(path: Path) -> Head:
    """Raises OSError and ValueError."""
    with path.open("rb") as file:
        _version(file)
        traces, shapeless = _number(file, "i"), bool(_number(file, "B"))
        _text(file, _MOST_METADATA)
        keys = _several(file, _text)
        _several(file, lambda file: _number(file, "Q"))
        return Head(traces, shapeless, keys, _several(file, _tensor))


def _version(file: BinaryIO) -> str:
    text = _text(file)
    if not _VERSION.fullmatch(text):
        raise ValueError("it does not begin with the version of MLX that wrote it")
    return text


def _tensor(file: BinaryIO) -> Tensor:
    sizes = tuple(_several(file, lambda file: _number(file, "i")))
    dtype = _number(file, "i")
    _number(file, "B")
    return Tensor(dtype, sizes)


def _several(file: BinaryIO, one: Callable[[BinaryIO], T]) -> list[T]:
    return [one(file) for _ in range(_count(file, _MOST))]


def _text(file: BinaryIO, most: int = _MOST) -> str:
    return _bytes(file, _count(file, most)).decode()


def _count(file: BinaryIO, most: int) -> int:
    count = _number(file, "Q")
    if count > most:
        raise ValueError(f"it has a count of {count} where at most {most} may be")
    return count


def _number(file: BinaryIO, code: str) -> int:
    form = f"<{code}"
    (number,) = struct.unpack(form, _bytes(file, struct.calcsize(form)))
    return int(number)


def _bytes(file: BinaryIO, count: int) -> bytes:
    found = file.read(count)
    if len(found) < count:
        raise ValueError("it ends too early")
    return found
