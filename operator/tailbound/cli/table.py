"""Columns, as kubectl aligns them."""

from collections.abc import Iterable, Sequence

_GAP = 3


def table(rows: Iterable[Sequence[str]]) -> str:
    """Rows under each other, the first one being the heading; no blanks at the ends of lines."""
    lines = [tuple(row) for row in rows]
    widths = [max(map(len, column)) + _GAP for column in zip(*lines, strict=True)]
    return "\n".join(
        "".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def indented(text: str) -> str:
    """Two blanks before every line."""
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())
