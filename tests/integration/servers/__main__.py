"""Examines real servers, prints a table and stores the results, for `make test-servers`."""

import signal
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tests.integration.servers.examination import examine
from tests.integration.servers.kinds import SERVERS
from tests.integration.servers.real import RealServer, environment
from tests.integration.servers.results import NOT_RUN, store

LONGEST_SECONDS: Final = 1800
"""For one server, once its packages are there: some are built from source."""
_COLUMNS: Final = (
    "server",
    "package",
    "ran",
    "answers right",
    "largest batch",
    "lost held",
    "lost without hold",
)


def main(names: list[str]) -> int:
    """Examine the servers of these names, which tests/servers.py has, or all. 1: one failed."""
    rows: list[tuple[str, ...]] = []
    failed = 0
    for name in names or sorted({*SERVERS, *NOT_RUN}):
        row, is_right = _row(name)
        rows.append(row)
        failed += not is_right
    widths = [max(map(len, column)) for column in zip(_COLUMNS, *rows, strict=True)]
    for row in (_COLUMNS, *rows):
        line = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        sys.stdout.write(f"{line.rstrip()}\n")
    return int(failed > 0)


def _row(name: str) -> tuple[tuple[str, ...], bool]:
    if name not in SERVERS:
        return (name, "", f"no: {NOT_RUN[name]}", "", "", "", ""), True
    result = _examined(SERVERS[name])
    if isinstance(result, str):
        return (name, "", f"failed: {result}", "", "", "", ""), False
    store({name: {**result, "date": datetime.now(UTC).date().isoformat()}})
    numbers = ("calls", "largest_batch", "held_lost", "cut_lost")
    return (name, result["package"], "yes", *(str(result[number]) for number in numbers)), (
        result["held_lost"] == 0 and result["cut_lost"] > 0 and result["largest_batch"] > 1
    )


def _examined(server: RealServer) -> dict[str, Any] | str:
    """What it did, or why it could not be examined."""
    try:
        environment(server)
        signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(LONGEST_SECONDS)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            return examine(server, Path(folder)).written()
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"[:200]
    finally:
        signal.alarm(0)


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"it took more than {LONGEST_SECONDS} s")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
