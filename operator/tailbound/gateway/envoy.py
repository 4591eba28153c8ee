"""The Envoy beside this sidecar: since when it runs, and whether it is on its way out."""

from collections.abc import Callable, Collection
from datetime import datetime, timedelta

from tailbound.gateway.admin import EnvoyAdmin, NoAnswerError
from tailbound.gateway.bootstrap import RunDirectory
from tailbound.gateway.counting import Counters, counters_pattern, name_metric, read_counters
from tailbound.gateway.start_time import read_start, settle_start, write_start
from tailbound.traffic.model import ServiceKey

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
