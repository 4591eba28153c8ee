"""The number of replicas that was decided on, the rule that decided, and the figures behind it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tailbound.autoscale.model import Count, Known, Limit, Rate
from tailbound.autoscale.state import State
from tailbound.objects.unknown import Unknown


class ReplicaReason(StrEnum):
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


class DecisionTexts(Protocol):
    """The texts of a decision, made when they are read. Most decisions repeat the one before, unread."""

    @property
    def line(self) -> str:
        """An equation whose result is the number of replicas; each figure has a name."""
        ...

    @property
    def rule(self) -> str:
        """The rule that set the number, where it is not the need at the forecast alone; a clause."""
        ...


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
    account: DecisionTexts


@dataclass(frozen=True)
class ReplicaDecision:
    """How many replicas the revision shall have, and why."""

    replicas: int
    reason: ReplicaReason
    explanation: Explanation
    state: State
    limited_by: Limit = Limit.NONE
    stale: tuple[str, ...] = ()
    """Signals that were missing, with why: the condition MetricsStale."""
    unreachable: float | None = None
    """Seconds within which even a replica with nothing else to do answers 99 of 100 requests, where that is
    more than the target; None where the target can be met."""

    def message(self) -> str:
        """The decision as one sentence: the need at the forecast, then the rule if it sets another number."""
        seen = self.explanation
        rule = f"; {clause}" if (clause := seen.account.rule) else ""
        return (
            f"{self.replicas} replicas ({self.reason}): the arrival rate is "
            f"{_figure(seen.arrivals, ' requests/s')}, the forecast for the next {seen.cold_start:.0f} s is "
            f"{_figure(seen.forecast)}, "
            f"and one replica serves {_figure(seen.capacity)}, {_needed(seen.needed)}{rule}"
        )


def _needed(count: Count) -> str:
    if isinstance(count, Unknown):
        return "and it is not known how many are needed"
    return f"so that {count.value:g} {'is' if count.value == 1 else 'are'} needed"


def _figure(value: Known[float] | Unknown, unit: str = "") -> str:
    return f"{value.value:.4g}{unit}" if isinstance(value, Known) else f"unknown ({value.reason})"
