"""Overload that is there already, as against the one that is forecast."""

from typing import Final

from tailbound.autoscale.model import Known, LatencyTarget, RevisionObservation

LASTS: Final = 60.0
"""Seconds after its last sign for which panic goes on."""
DRAIN: Final = 60.0
"""Seconds in which a backlog is to be worked off."""
EXPLAINED: Final = 75.0
"""Seconds after a start in which the P99 may be that of requests that waited for it: the minute that it is
taken over, and the age of a scrape."""
MOST_CAUTION: Final = 0.2
_CAUTION_STEP: Final = 0.01
_CAUTION_LEFT: Final = 0.995
_NO_CAUTION: Final = 0.001


def backlog(seen: RevisionObservation, objective: LatencyTarget, rows_per_request: float) -> float:
    """Requests that are in no replica's batch yet; 0 where neither gateways nor servers tell.

    A server whose batches stay smaller than they may be has a queue that the requests in flight do not show.
    """
    waiting = seen.waiting.value if isinstance(seen.waiting, Known) else 0.0
    if not isinstance(seen.in_flight, Known):
        return waiting
    room = seen.replicas.ready * objective.max_batch / rows_per_request
    return max(0.0, seen.in_flight.value - room, waiting)


def late(seen: RevisionObservation, objective: LatencyTarget) -> bool:
    """Whether requests of the last minute were late."""
    return isinstance(seen.p99, Known) and seen.p99.value > objective.p99


def flooded(seen: RevisionObservation, objective: LatencyTarget, rows_per_request: float) -> bool:
    """Whether requests are about to be late: more wait than a batch for every replica."""
    batches = max(1, seen.replicas.ready) * objective.max_batch / rows_per_request
    return backlog(seen, objective, rows_per_request) > batches


def overloaded(seen: RevisionObservation, objective: LatencyTarget, rows_per_request: float) -> bool:
    """Whether requests are late, or about to be."""
    return late(seen, objective) or flooded(seen, objective, rows_per_request)


def caution_after(before: float, is_overloaded: bool) -> float:
    """Share of the forecast to add after requests were late: grows while they are, and fades in half an hour.

    How much spare traffic needs that is burstier than any forecast tells is known from what came late.
    """
    if is_overloaded:
        return min(MOST_CAUTION, before + _CAUTION_STEP)
    return before * _CAUTION_LEFT if before > _NO_CAUTION else 0.0


def panic_until(before: float | None, is_overloaded: bool, now: float) -> float | None:
    """When panic ends, None outside of one. It lasts no longer where the clock is set back."""
    if is_overloaded:
        return now + LASTS
    return min(before, now + LASTS) if before is not None and before > now else None
