"""Reads what ExecuTorch's own interface does not tell of a program: a .pte file is a FlatBuffer.

ExecuTorch has checked the buffer by then. Slots are numbers of fields in its schema, program.fbs.
"""

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flatbuffers import number_types
from flatbuffers.table import Table

from tailbound_runtime.errors import ModelLoadError

METHOD: Final = "forward"
IDENTIFIER: Final = b"ET12"
"""At the fifth byte of the file."""
_TENSOR: Final = 5
"""The number of tensors among the kinds of a value."""


@dataclass(frozen=True)
class Tensor:
    """An input or an output.

    scalar_type: as numbered in scalar_type.fbs
    sizes: those that it has at most, if it is `bounded`
    in_order: whether its elements lie in the order of its dimensions
    """

    scalar_type: int
    sizes: tuple[int, ...]
    bounded: bool
    in_order: bool


@dataclass(frozen=True)
class Program:
    """The method `forward` of a program.

    inputs, outputs: None for a value that is no tensor
    input_tree, output_tree: JSON of how they are nested
    backends: of all methods
    keeps: whether a run changes what later ones find
    """

    inputs: Sequence[Tensor | None]
    outputs: Sequence[Tensor | None]
    input_tree: str
    output_tree: str
    backends: frozenset[str]
    keeps: bool


def read(path: Path) -> Program:
    """Raises ModelLoadError for a file without that method, and what comes of one that is broken."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        root = Table(content, 0)
        root.Pos = root.Indirect(0)
        plans = list(_tables(root, 1))
        names = [_text(plan, 0) for plan in plans]
        if METHOD not in names:
            raise ModelLoadError(
                f"{path} has the methods {', '.join(names)}, and none named {METHOD}: export it with one"
            )
        return _program(plans[names.index(METHOD)], plans)


def _program(plan: Table, plans: Sequence[Table]) -> Program:
    values = list(_tables(plan, 2))
    trees = _table(plan, 1)
    return Program(
        inputs=[_tensor(values[place]) for place in _integers(plan, 3)],
        outputs=[_tensor(values[place]) for place in _integers(plan, 4)],
        input_tree="" if trees is None else _text(trees, 0),
        output_tree="" if trees is None else _text(trees, 1),
        backends=frozenset(_text(delegate, 0) for each in plans for delegate in _tables(each, 7)),
        keeps=any(map(_has_state, values)) or any(map(_is_in_place, _tables(plan, 6))),
    )


def _tensor(value: Table) -> Tensor | None:
    found = _table(value, 1)
    if found is None or _integer(value, 0, number_types.Uint8Flags) != _TENSOR:
        return None
    sizes = tuple(_integers(found, 2))
    return Tensor(
        scalar_type=_integer(found, 0, number_types.Int8Flags),
        sizes=sizes,
        bounded=_integer(found, 8, number_types.Int8Flags) != 0,
        in_order=list(_integers(found, 3, number_types.Uint8Flags)) == list(range(len(sizes))),
    )


def _has_state(value: Table) -> bool:
    """Whether it is a tensor that begins with data of the file, and is in memory that runs write to."""
    if _integer(value, 0, number_types.Uint8Flags) != _TENSOR:
        return False
    tensor = _table(value, 1)
    return tensor is not None and _integer(tensor, 5) > 0 and _table(tensor, 6) is not None


def _is_in_place(operator: Table) -> bool:
    """Whether it writes to an argument, which ExecuTorch's programs only do to buffers of the model."""
    return _text(operator, 0).endswith("_")


def _integer(table: Table, slot: int, flags: type = number_types.Uint32Flags) -> int:
    offset = table.Offset(4 + 2 * slot)
    return int(table.Get(flags, table.Pos + offset)) if offset else 0


def _integers(table: Table, slot: int, flags: type = number_types.Int32Flags) -> Iterator[int]:
    offset = table.Offset(4 + 2 * slot)
    if offset:
        start = table.Vector(offset)
        for place in range(table.VectorLen(offset)):
            yield int(table.Get(flags, start + place * flags.bytewidth))  # type: ignore[attr-defined]


def _text(table: Table, slot: int) -> str:
    """Up to the first zero, as ExecuTorch reads it."""
    offset = table.Offset(4 + 2 * slot)
    return str(table.String(table.Pos + offset).partition(b"\0")[0].decode()) if offset else ""


def _table(table: Table, slot: int) -> Table | None:
    offset = table.Offset(4 + 2 * slot)
    return Table(table.Bytes, table.Indirect(table.Pos + offset)) if offset else None


def _tables(table: Table, slot: int) -> Iterator[Table]:
    offset = table.Offset(4 + 2 * slot)
    if offset:
        start = table.Vector(offset)
        for place in range(table.VectorLen(offset)):
            yield Table(table.Bytes, table.Indirect(start + 4 * place))
