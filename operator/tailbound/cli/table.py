"""Columns and ages, as kubectl writes them."""

from collections.abc import Iterable, Sequence
from datetime import datetime

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


def age(now: datetime, then: datetime) -> str:
    """How long ago, as kubectl writes it."""
    seconds = max(0, int((now - then).total_seconds()))
    if seconds < 120:
        return f"{seconds}s"
    if seconds < 2 * 3600:
        return f"{seconds // 60}m"
    return f"{seconds // 3600}h" if seconds < 48 * 3600 else f"{seconds // 86400}d"
