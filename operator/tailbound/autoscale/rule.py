"""The rule that set the number of replicas, as a clause for people. Pure.

| rule | clause |
|---|---|
| a bound changed the number | which bound |
| Idle, MetricsStale, UnknownCapacity | what is known of the traffic |
| Forecast, Panic, Stuck, Steady | what is added to the need at the forecast, and where one step ends |
| Shrink | the highest need within the stabilization window, and where one step ends |
| Cooling | why replicas are kept that are not needed now |
"""

from dataclasses import dataclass

from tailbound.autoscale.behavior import StabilizationWindow
from tailbound.autoscale.decision import ReplicaReason
from tailbound.autoscale.demand import Demand
from tailbound.autoscale.model import TICK, Limit

_BOUNDS = {
    Limit.QUOTA: "the quota admits no more",
    Limit.HARDWARE: "no node has capacity for more",
    Limit.REFUSED: "the API server refuses more",
}


@dataclass(frozen=True)
class ReplicaChange:
    """One decision on the number of replicas: before, by the rule alone, and within the bounds."""

    present: int
    wanted: int
    replicas: int
    limit: Limit


def rule(
    reason: ReplicaReason, change: ReplicaChange, demand: Demand, window: StabilizationWindow, kept: str
) -> str:
    """The clause; empty where the need at the forecast says everything. `kept` is why nothing is given up."""
    if change.replicas != change.wanted:
        bound = "maximum" if change.wanted > change.replicas else "minimum"
        return _BOUNDS.get(change.limit, f"the {bound} is {change.replicas}")
    added = change.replicas > change.present
    clauses = {
        ReplicaReason.LIMITED: f"the minimum is {change.replicas}",
        ReplicaReason.IDLE: "no request arrives",
        ReplicaReason.METRICS_STALE: f"{change.replicas} are kept while metrics are missing",
        ReplicaReason.UNKNOWN_CAPACITY: (
            "one is added, because requests are late or wait" if added else f"{change.replicas} are kept"
        ),
        ReplicaReason.COOLING: f"{change.replicas} are kept, because {kept}",
        ReplicaReason.SHRINK: _shrunk(change, window),
    }
    return clauses.get(reason) or _added(change, demand)


def _shrunk(change: ReplicaChange, window: StabilizationWindow) -> str:
    step = f", and one step removes {change.present - change.replicas} of {change.present}"
    return needed_within(window) + (step if change.replicas > window.floor else "")


def needed_within(window: StabilizationWindow) -> str:
    """The highest need within the stabilization window."""
    seconds = len(window.needs) * TICK
    return f"{window.floor} were needed within the last {seconds:.0f} s (stabilization window)"


def _added(change: ReplicaChange, demand: Demand) -> str:
    parts = []
    if demand.at_once > demand.needed:
        parts.append(f"{demand.at_once} are needed with the waiting and the latest requests")
    if demand.with_spares > demand.at_once:
        parts.append(
            f"{demand.with_spares} are needed with those that replace pods which do not become ready"
        )
    if change.replicas < demand.with_spares:
        parts.append(f"one step adds {change.replicas - change.present} to {change.present}")
    return ", and ".join(parts)
