"""A gateway pod: what it applies, shares out and counts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from tailbound.api.traffic import AppliedRoute, Observed, ServiceObservation
from tailbound.judge.counters import Classes, Reading
from tailbound.objects.unknown import Unknown

START = datetime(2026, 1, 1, tzinfo=UTC)
"""When everything begins."""


@dataclass
class Gateway:
    """One gateway pod: what it has applied, and whether it can be read."""

    route: dict[str, Any] | None = None
    generation: int = 0
    has_ready_pod: bool = False
    """Whether a revision that it sends requests to has a ready pod, as it knows."""
    readable: bool = True
    started: int = 0
    """How often its Envoy was restarted."""
    counted: dict[str, Classes] = field(default_factory=dict)
    """Requests by revision since Envoy started."""

    @property
    def backends(self) -> set[str]:
        """The revisions that it sends requests to."""
        return {
            backend["revision"] for backend in (self.route or {}).get("backends", []) if backend["weight"]
        }

    def serve(
        self,
        requests: int,
        slow: Mapping[str, float],
        ready: set[str],
        failing: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Share requests out as the weights say; `slow` and `failing` are fractions by revision."""
        shares = {
            backend["revision"]: backend["weight"]
            for backend in (self.route or {}).get("backends", [])
            if backend["revision"] in ready and backend["weight"]
        }
        for revision, weight in shares.items():
            judged = round(requests * weight / sum(shares.values()))
            failed = round(judged * failing.get(revision, 0.0))
            late = round((judged - failed) * slow.get(revision, 0.0))
            before = self.counted.get(revision, Classes())
            self.counted[revision] = before + Classes(good=judged - late - failed, slow=late, failed=failed)

    def restart(self) -> None:
        """Envoy begins to count anew."""
        self.started += 1
        self.counted = {}

    def reading(self) -> Reading | Unknown:
        """Its counters."""
        if not self.readable or self.route is None:
            return Unknown("it does not answer")
        return Reading(str(self.started), dict(self.counted))

    def report(self, key: str) -> Observed | Unknown:
        """Its /observed for the service NAMESPACE/NAME."""
        if not self.readable:
            return Unknown("timed out after 2 s")
        applied = None
        if self.route is not None:
            applied = AppliedRoute(
                generation=self.generation,
                traffic_generation=self.route["generation"],
                has_ready_pod=self.has_ready_pod,
            )
        return Observed(
            envoy_start_time=START,
            synced=True,
            services={key: ServiceObservation(applied=applied)},
        )
