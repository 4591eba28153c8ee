"""When the running Envoy started, to be distinguished from the start of its neighbour.

Envoy tells its uptime in whole seconds only, and the operator takes a changed start time for a lost history.
So one Envoy process must keep one start time, over restarts of the sidecar too.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

# Two readings of one process differ by the rounding of the uptime and by the way to the socket.
TOLERANCE = timedelta(seconds=3)


def settle_start(
    now: datetime, uptime: timedelta, recorded: datetime | None, has_just_started: bool
) -> datetime:
    """The start time of the Envoy that tells this uptime.

    | recorded     | Envoy has just started | settled          |
    |--------------|------------------------|------------------|
    | within 3 s   | no                     | the recorded one |
    | within 3 s   | yes                    | the reading, and later than the recorded one |
    | none, or off |                        | the reading      |
    """
    reading = (now - uptime).replace(microsecond=0)
    if recorded is None or abs(reading - recorded) > TOLERANCE:
        return reading
    return max(reading, recorded + timedelta(seconds=1)) if has_just_started else recorded


def read_start(path: Path) -> datetime | None:
    """The start time that was recorded, or None if there is none that can be read."""
    try:
        return datetime.fromisoformat(path.read_text()).astimezone(UTC)
    except (OSError, ValueError):
        return None


def write_start(path: Path, start: datetime) -> None:
    """Record it for the sidecar's next life. Raises OSError."""
    path.write_text(start.isoformat())
