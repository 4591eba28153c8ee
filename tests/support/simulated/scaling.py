"""Decisions of an autoscaler, for tables, and services that are scaled by them."""

from dataclasses import dataclass, replace
from typing import Any

from tailbound.autoscale.decision import Explanation, ReplicaDecision, ReplicaReason
from tailbound.autoscale.model import Known, Limit
from tailbound.autoscale.state import State
from tailbound.reconcile.model import Plan, ScalingDecision, ScalingDecisions, ScalingRequest

from tests.support.copies import remembered
from tests.support.simulated.objects import service
from tests.support.simulated.rollouts import CANARY, SLA
from tests.support.simulated.simulator import Simulator

BOUNDS = {"min": 2, "max": 20}


@dataclass(frozen=True)
class Written:
    """The texts of a decision that nothing was calculated for."""

    line: str = "7 = ceil(forecast 15 / (capacity 4 * usage 0.88 * correction 1)) + for latency 2"
    rule: str = ""


WHY = Explanation(
    arrivals=Known(12.3456, 0.0),
    forecast=Known(15.0, 0.0),
    capacity=Known(4.0, 0.0),
    needed=Known(5.0, 0.0),
    cold_start=30.0,
    account=Written(),
)


def decision(
    replicas: int,
    limited_by: Limit = Limit.NONE,
    stale: tuple[str, ...] = (),
    arrivals: float = 12.3456,
    needed: int | None = None,
    **fields: Any,
) -> ReplicaDecision:
    """A decision on so many replicas, for a reason; the traffic needs as many if nothing else is said."""
    traffic = float(replicas if needed is None else needed)
    why = replace(WHY, arrivals=Known(arrivals, 0.0), needed=Known(traffic, 0.0))
    return ReplicaDecision(replicas, ReplicaReason.FORECAST, why, State(), limited_by, stale, **fields)


def sizes(*, late: float | None = None, **revisions: ScalingDecision) -> ScalingDecisions:
    """The sizes, by revision."""
    return ScalingDecisions(revisions, late)


@remembered
def following(scaling: dict[str, Any] | None = None, **fields: Any) -> Simulator:
    """A service whose pods follow the traffic, at rest before the first decision."""
    simulator = Simulator(service=service(sla=SLA, scaling=scaling or BOUNDS, rollout=CANARY, **fields))
    simulator.settle()
    return simulator


def decided(simulator: Simulator, late: float | None = None, awaited: bool = False, **pods: Any) -> Plan:
    """Decisions on revisions by the number in their name: pods, or (pods, share)."""
    revisions = {}
    for each in simulator.of("Deployment"):
        name = each["metadata"]["name"]
        value = pods.get(name.split("-")[-2])
        if value is not None:
            count, share = value if isinstance(value, tuple) else (value, 100)
            made = count if not isinstance(count, int) else decision(count)
            revisions[name] = ScalingDecision(share, made)
    simulator.sizes = ScalingDecisions(revisions, late, awaited)
    return simulator.reconcile()


def shares(plan: Plan) -> dict[str, int]:
    assert isinstance(plan.scalable, ScalingRequest)
    return {name.split("-")[-2]: each.share for name, each in plan.scalable.revisions.items()}
