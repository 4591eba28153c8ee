"""The one line of arithmetic that a decision's number of replicas comes out of. Pure."""

from tailbound.autoscale.arithmetic import Figure, Highest, Lowest, Product, Sum, Term, exact, line
from tailbound.autoscale.behavior import FACTOR, STEP, grown, shrunk
from tailbound.autoscale.decision import ReplicaReason
from tailbound.autoscale.demand import Demand
from tailbound.autoscale.replica_estimate import MARGIN, ReplicaEstimate


def account(
    demand: Demand,
    sizing: ReplicaEstimate | None,
    reason: ReplicaReason,
    present: int,
    floor: int,
    replicas: int,
) -> str:
    """`replicas`, what it comes from, and what else the latency model reckons with.

    `floor` is what was needed at most for as long as anything is kept, `present` the replicas before.
    """
    term = _bounded(_moved(demand, reason, present, floor), replicas)
    sentence = f"{replicas} = {line(term)}"
    if sizing is None:
        return sentence
    within = f"P99 within margin {MARGIN:g} * {sizing.objective.p99:g} s"
    return f"{sentence}; {within} at dispersion {sizing.dispersion:.3g}"


def _moved(demand: Demand, reason: ReplicaReason, present: int, floor: int) -> Term:
    """
    | rule | term |
    |---|---|
    | Forecast, Panic, Stuck | what is asked for, as far as one step up goes |
    | Shrink | what was needed lately, as far as one step down goes |
    | Steady | what is asked for |
    | Cooling, Limited | what is asked for, and no fewer than there are |
    | Idle, MetricsStale, UnknownCapacity | as many as there are |
    """
    before = Figure(present, "present")
    if reason in (ReplicaReason.FORECAST, ReplicaReason.PANIC, ReplicaReason.STUCK):
        furthest = Highest((Product((Figure(FACTOR), before)), Sum((before, Figure(STEP)))))
        step_binds = grown(present, demand.with_spares) < demand.with_spares
        return Lowest((demand.term, furthest)) if step_binds else demand.term
    if reason is ReplicaReason.SHRINK:
        step = Sum((before, Figure(shrunk(present, 0) - present, "step")))
        return Highest((Figure(floor, "needed lately"), step))
    if reason is ReplicaReason.STEADY:
        return demand.term
    if reason in (ReplicaReason.COOLING, ReplicaReason.LIMITED):
        return Highest((demand.term, before))
    return before


def _bounded(term: Term, replicas: int) -> Term:
    """Within the bounds, where they changed the number."""
    if exact(term) > replicas:
        return Lowest((term, Figure(replicas, "most allowed")))
    return Highest((term, Figure(replicas, "least allowed"))) if exact(term) < replicas else term
