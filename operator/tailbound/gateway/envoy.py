"""The Envoy beside this sidecar: since when it runs, and whether it is on its way out.

Envoy tells its uptime in whole seconds only, and the operator takes a changed start time for a lost history.
So one Envoy process must keep one start time, over restarts of the sidecar too.
"""

from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tailbound.gateway.admin import EnvoyAdmin, NoAnswerError
from tailbound.gateway.bootstrap import RunDirectory
from tailbound.gateway.counting import Counters, counters_pattern, name_metric, read_counters
from tailbound.traffic.model import ServiceKey

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


# An Envoy that has no configuration is a fresh one if it is younger than this. An older one merely has no
# service configured.
FRESH = timedelta(seconds=10)


class EnvoyProcess:
    """Asks Envoy's admin interface, and keeps what must survive the sidecar in the run directory."""

    def __init__(self, admin: EnvoyAdmin, run: RunDirectory, now: Callable[[], datetime]) -> None:
        self._admin = admin
        self._run = run
        self._now = now
        self._start = read_start(run.envoy_start)
        self._has_nothing = False

    def asked(self, has_nothing: bool) -> None:
        """Envoy opened a stream, with or without a configuration of its own."""
        self._has_nothing = has_nothing

    @property
    def draining(self) -> bool:
        """Whether `tailbound gateway drain` has begun for this Envoy."""
        return self._run.draining.exists()

    async def start_if_live(self) -> datetime | None:
        """When Envoy started, or None while it does not serve yet or any more."""
        try:
            info = await self._admin.server_info()
        except NoAnswerError:
            return None
        has_just_started = self._has_nothing and info.uptime < FRESH
        self._has_nothing = False
        start = settle_start(self._now(), info.uptime, self._start, has_just_started)
        if start != self._start:
            self._record(start)
        return start if info.live else None

    async def counters(self, services: Collection[ServiceKey]) -> Counters | None:
        """Requests of these services by revision and class, or None if Envoy does not answer."""
        if not services:
            return {}
        try:
            return read_counters(await self._admin.counters(counters_pattern(services)))
        except NoAnswerError:
            return None

    async def metrics(self) -> str | None:
        """Envoy's allow-listed metrics, ours among them, or None if it does not answer."""
        try:
            return name_metric(await self._admin.prometheus())
        except NoAnswerError:
            return None

    def _record(self, start: datetime) -> None:
        """A new Envoy drains for reasons of its own: its predecessor's mark is not about it."""
        self._start = start
        write_start(self._run.envoy_start, start)
        self._run.draining.unlink(missing_ok=True)
