"""The number of replicas that was decided on, the rule that decided, and the figures behind it."""

from dataclasses import dataclass
from enum import StrEnum

from tailbound.autoscale.model import Count, Known, Limit, Rate, Unknown
from tailbound.autoscale.state import State


class Reason(StrEnum):
    """The rule that set the replicas."""

    IDLE = "Idle"
    """No request arrives and none is in flight."""
    FORECAST = "Forecast"
    """Grown to what the forecast at the cold start needs."""
    PANIC = "Panic"
    """Grown to what arrives now, and to work off the backlog."""
    STUCK = "Stuck"
    """Grown to replace pods that do not become ready."""
    STEADY = "Steady"
    """The replicas are as many as are needed."""
    COOLING = "Cooling"
    """Fewer would do, but not for long enough yet."""
    SHRINK = "Shrink"
    UNKNOWN_CAPACITY = "UnknownCapacity"
    """Held: no batch has been seen yet, and nothing is known of the model on this hardware."""
    METRICS_STALE = "MetricsStale"
    """Held, or grown on what is still known; never shrunk."""
    LIMITED = "Limited"
    """A bound set the replicas, whatever the traffic asks for."""


@dataclass(frozen=True)
class Explanation:
    """The figures behind a decision."""

    arrivals: Rate
    forecast: Rate
    """Highest rate expected by the time that a replica asked for now is ready, spare included."""
    capacity: Rate
    """Requests per second of one replica working on full batches."""
    needed: Count
    """Replicas that hold the target at the forecast, whatever the bounds."""
    cold_start: float
    state: str
    """In words: panic until when, cooling, what is missing."""
    line: str = ""
    """Arithmetic that comes out at the replicas, with a word before each figure."""


@dataclass(frozen=True)
class Decision:
    """How many replicas the revision shall have, and why."""

    replicas: int
    reason: Reason
    explanation: Explanation
    state: State
    limited_by: Limit = Limit.NONE
    stale: tuple[str, ...] = ()
    """Signals that were missing, with why: the condition MetricsStale."""
    unreachable: float | None = None
    """Seconds within which even a replica with nothing else to do answers 99 of 100 requests, where that is
    more than the target; None where the target can be met."""

    def words(self) -> str:
        """One sentence for people."""
        seen = self.explanation
        return (
            f"{self.replicas} replicas ({self.reason}): {_figure(seen.arrivals)} requests/s arrive, "
            f"{_figure(seen.forecast)} are prepared for within {seen.cold_start:.0f} s, one replica does "
            f"{_figure(seen.capacity)}, so {_figure(seen.needed)} are needed"
        )


def _figure(value: Known[float] | Unknown) -> str:
    return f"{value.value:.4g}" if isinstance(value, Known) else f"unknown ({value.why})"
