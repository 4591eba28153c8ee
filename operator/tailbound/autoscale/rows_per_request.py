"""How many rows a request brings: what turns requests per second into the work that they are."""

from dataclasses import dataclass
from math import exp
from typing import Final

from tailbound.autoscale.model import STALE, BatchSums, Known, Service

MEMORY: Final = 120.0
"""Seconds after which a request counts for 1/e of a new one: one with more rows may come at any time."""


@dataclass(frozen=True)
class RowsPerRequest:
    """Sums over past requests, newer ones counting more, and when the last ones were added."""

    rows: float = 0.0
    requests: float = 0.0
    at: float | None = None

    @property
    def per_request(self) -> float:
        """At least 1, which is what is reckoned with before any request was seen."""
        return max(1.0, self.rows / self.requests) if self.requests > 0 else 1.0

    def after(self, service: Service) -> "RowsPerRequest":
        """The estimate with the requests of a new window."""
        if not isinstance(service, Known) or not isinstance(service.value, BatchSums):
            return self
        sums, at = service.value, service.at
        # Of a clock that was set back no time since the last requests is known.
        passed = None if self.at is None or at < self.at - STALE else at - self.at
        fresh = 1.0 if passed is None else min(1.0, passed / sums.window)
        if fresh <= 0 or sums.requests <= 0:
            return self
        kept = 1.0 if passed is None else exp(-passed / MEMORY)
        return RowsPerRequest(
            self.rows * kept + fresh * sums.rows, self.requests * kept + fresh * sums.requests, at
        )
