"""What a decision's number of replicas comes out of: its line of arithmetic and its rule, as texts. Pure."""

from dataclasses import dataclass

from tailbound.autoscale.arithmetic import Figure, Highest, Lowest, Product, Sum, Term, exact, line
from tailbound.autoscale.behavior import FACTOR, STEP, StabilizationWindow, grown, shrunk
from tailbound.autoscale.decision import ReplicaReason
from tailbound.autoscale.demand import Demand
from tailbound.autoscale.replica_estimate import MARGIN, ReplicaEstimate
from tailbound.autoscale.rule import ReplicaChange, rule


@dataclass(frozen=True)
class DecisionAccount:
    """What a decision came out of, from which its texts are made when they are read."""

    reason: ReplicaReason
    change: ReplicaChange
    demand: Demand
    sizing: ReplicaEstimate | None
    window: StabilizationWindow
    """The window before this decision stepped down."""
    kept: str
    """The clause on why nothing is given up."""

    @property
    def line(self) -> str:
        """The replicas, what they come from, and what else the latency model reckons with."""
        change, sizing = self.change, self.sizing
        moved = _moved(self.demand, self.reason, change.present, self.window.floor)
        sentence = f"{change.replicas} = {line(_bounded(moved, change.replicas))}"
        if sizing is None:
            return sentence
        within = f"P99 within margin {MARGIN:g} * {sizing.objective.p99:g} s"
        return f"{sentence}; {within} at dispersion {sizing.dispersion:.3g}"

    @property
    def rule(self) -> str:
        """The clause on the rule that set the number."""
        return rule(self.reason, self.change, self.demand, self.window, self.kept)


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
