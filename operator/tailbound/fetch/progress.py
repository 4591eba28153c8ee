"""What a person sees while the model is on its way: JSON lines, every tenth or every few seconds."""

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

EVERY_SECONDS: Final = 5.0
EVERY_PERCENT: Final = 10

Emit = Callable[..., None]


def emit(event: str, **fields: object) -> None:
    """One log line on standard output."""
    line = {"time": datetime.now(UTC).isoformat(), "event": event, **fields}
    sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def human_bytes(count: int) -> str:
    """Decimal units with the exact count, such as "4.2 GB (4200000000 bytes)"."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit} ({count} bytes)"
    return f"{count} bytes"


class Progress:
    """total_bytes: None if the server did not say."""

    def __init__(
        self,
        done_bytes: int,
        total_bytes: int | None,
        emit_line: Emit = emit,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total_bytes
        self._emit = emit_line
        self._clock = clock
        self._started = self._last = clock()
        self._from = done_bytes
        self._tenth = self._tenths(done_bytes)

    def update(self, done_bytes: int) -> bool:
        """Report if it is time to. True if it was."""
        now = self._clock()
        tenth = self._tenths(done_bytes)
        if tenth == self._tenth and now - self._last < EVERY_SECONDS:
            return False
        self._tenth, self._last = tenth, now
        elapsed = max(now - self._started, 1e-3)
        fields: dict[str, object] = {"bytes": done_bytes}
        rate = (done_bytes - self._from) / elapsed
        if self._total:
            fields |= {"total_bytes": self._total, "percent": 100 * done_bytes // self._total}
            if rate > 0:
                fields["seconds_left"] = round((self._total - done_bytes) / rate)
        self._emit("fetching", **fields, bytes_per_second=round(rate))
        return True

    def _tenths(self, done_bytes: int) -> int:
        return 100 * done_bytes // self._total // EVERY_PERCENT if self._total else 0
