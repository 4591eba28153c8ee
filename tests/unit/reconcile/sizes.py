"""Decisions of an autoscaler, for tables."""

from dataclasses import replace
from typing import Any

from tailbound.autoscale.decision import Decision, Explanation, Reason
from tailbound.autoscale.model import Known, Limit
from tailbound.autoscale.state import State
from tailbound.reconcile.model import ScalingDecision, ScalingDecisions

WHY = Explanation(
    arrivals=Known(12.3456, 0.0),
    forecast=Known(15.0, 0.0),
    capacity=Known(4.0, 0.0),
    needed=Known(5.0, 0.0),
    cold_start=30.0,
    state="steady",
    line="7 = ceil(forecast 15 / (capacity 4 * usage 0.88 * correction 1)) + for latency 2",
)


def decision(
    replicas: int,
    limited_by: Limit = Limit.NONE,
    stale: tuple[str, ...] = (),
    arrivals: float = 12.3456,
    needed: int | None = None,
    **fields: Any,
) -> Decision:
    """So many replicas, for a reason; the traffic needs as many if nothing else is said."""
    traffic = float(replicas if needed is None else needed)
    why = replace(WHY, arrivals=Known(arrivals, 0.0), needed=Known(traffic, 0.0))
    return Decision(replicas, Reason.FORECAST, why, State(), limited_by, stale, **fields)


def sizes(*, late: float | None = None, **revisions: ScalingDecision) -> ScalingDecisions:
    """By revision."""
    return ScalingDecisions(revisions, late)
