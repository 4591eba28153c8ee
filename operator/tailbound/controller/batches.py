"""Parts of a sequence, so that no request grows with the fleet."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def batches(items: Sequence[_T], size: int) -> Iterator[tuple[_T, ...]]:
    """The items in their order, at most `size` at a time."""
    return (tuple(items[start : start + size]) for start in range(0, len(items), size))
