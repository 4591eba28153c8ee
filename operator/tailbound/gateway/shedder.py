"""Has Envoy refuse what would be answered late: reads its counters, and limits the requests in flight.

The limit of a cluster is a runtime value that overrides its circuit breaker: the cluster never changes.
A new Envoy has no such values. Those that a former sidecar set are removed first.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tailbound.api.runtime_contract import HTTP_PORT_NAME
from tailbound.gateway.admin import EnvoyAdmin, NoAnswerError
from tailbound.gateway.clusters import cluster_name
from tailbound.gateway.shedding import InFlightLimit, Sample
from tailbound.traffic.model import Route

PERIOD_SECONDS: Final = 0.5

_KEY: Final = "circuit_breakers.{cluster}.default.max_requests"
_IS_KEY: Final = re.compile(r"circuit_breakers\..+\.default\.max_requests")


@dataclass(frozen=True)
class Shed:
    """A cluster whose late requests are refused."""

    target: timedelta
    ready: int


def shed_clusters(routes: Iterable[Route]) -> dict[str, Shed]:
    """The clusters of services whose spec.overload is shed, by name: gRPC requests always wait."""
    return {
        cluster_name(route.service, backend.revision, HTTP_PORT_NAME): Shed(
            route.latency_target, len(backend.http)
        )
        for route in routes
        if route.sheds and route.latency_target is not None
        for backend in route.backends
    }


class Shedder:
    """Runs until cancelled. `routes` are those that Envoy should have, `now` is a clock in seconds."""

    def __init__(
        self, admin: EnvoyAdmin, routes: Callable[[], Iterable[Route]], now: Callable[[], float]
    ) -> None:
        self._admin = admin
        self._routes = routes
        self._now = now
        self._limits: dict[str, InFlightLimit] = {}
        self._set: dict[str, int] | None = None
        """What this Envoy was given; None: not known."""

    async def run(self) -> None:
        """Look at every cluster, twice a second."""
        while True:
            await self.tick()
            await asyncio.sleep(PERIOD_SECONDS)

    async def tick(self) -> None:
        """One look. While Envoy does not answer, nothing is known of any cluster."""
        wanted = shed_clusters(self._routes())
        try:
            if self._set is None:
                self._set = dict.fromkeys(await self._left_behind(), 0)
            if wanted or self._set:
                await self._look(wanted, self._set)
        except NoAnswerError:
            self._limits, self._set = {}, None

    async def _left_behind(self) -> list[str]:
        return [key for key in await self._admin.runtime_keys() if _IS_KEY.fullmatch(key)]

    async def _look(self, wanted: Mapping[str, Shed], present: dict[str, int]) -> None:
        counters = await self._admin.gauges(_pattern(wanted)) if wanted else {}
        self._limits = {
            name: self._limits.get(name, InFlightLimit()).after(
                _sample(counters, name, shed.ready, self._now()), shed.target.total_seconds()
            )
            for name, shed in wanted.items()
        }
        limits = {
            _KEY.format(cluster=name): state.limit
            for name, state in self._limits.items()
            if state.limit is not None
        }
        changes = {key: str(limit) for key, limit in limits.items() if present.get(key) != limit}
        changes |= {key: "" for key in present if key not in limits}
        if changes:
            await self._admin.modify_runtime(changes)
        self._set = limits


def _pattern(clusters: Iterable[str]) -> str:
    names = "|".join(re.escape(name) for name in sorted(clusters))
    return rf"^cluster\.({names})\.upstream_rq_(total|active)$"


def _sample(counters: Mapping[str, int], cluster: str, ready: int, now: float) -> Sample:
    in_flight = counters.get(f"cluster.{cluster}.upstream_rq_active", 0)
    begun = counters.get(f"cluster.{cluster}.upstream_rq_total", 0)
    return Sample(now, begun - in_flight, in_flight, ready)
