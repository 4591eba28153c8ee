"""What is being built and for how long: a line at the beginning, one each half minute, and one at the end."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

EVERY_SECONDS = 30.0


@contextmanager
def announced(
    what: str, cache: Path, place: str = "", *, every_seconds: float = EVERY_SECONDS
) -> Iterator[None]:
    """Say on standard error how a build goes on; `place` is for instance "2 of 5".

    How long it took is kept in the folder `cache`, to be said the next time, unless it failed.
    """
    record = cache / "durations" / what.replace(" ", "-")
    last = _seconds(record)
    before = "for the first time here" if last is None else f"{last:.0f} s last time"
    _say(f"building {what}{f', {place}' if place else ''}: {before}")
    started, over = time.monotonic(), Event()

    def go_on() -> None:
        while not over.wait(every_seconds):
            _say(f"  still building {what}: {time.monotonic() - started:.0f} s so far, {before}")

    speaker = Thread(target=go_on, daemon=True)
    speaker.start()
    try:
        yield
    finally:
        over.set()
        speaker.join()
    took = time.monotonic() - started
    _say(f"built {what} in {took:.0f} s")
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(f"{took:.1f}")


def _seconds(record: Path) -> float | None:
    try:
        return float(record.read_text())
    except (OSError, ValueError):  # never built here, or the file is only half written
        return None


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
