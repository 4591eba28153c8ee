"""One workload, drawn with one seed and served by one policy after another."""

from typing import Final

from e2e.bench.autoscale import oracle
from e2e.bench.autoscale.fleet import Faults, Outcome, Plan, Policy, draw, simulate
from e2e.bench.autoscale.traces import Trace

_SETTLED: Final = 150
"""Seconds whose busiest moment sets the replicas that every policy starts with."""


class Scenario:
    """One workload drawn with one seed, and what the oracle needs for it."""

    def __init__(
        self, trace: Trace, seed: int, cold_start: float = 60.0, faults: Faults | None = None
    ) -> None:
        self.trace, self.seed, self.cold_start, self.faults = trace, seed, cold_start, faults
        self.arrivals = draw(trace.rates, seed)
        self.duration = len(trace.rates)
        self.plan = oracle.plan(self.arrivals, self.duration, trace.server)
        self.start = int(self.plan[:_SETTLED].max())
        self.hours = float(self.plan.sum()) / 3600
        self.paid_hours = oracle.paid_hours(self.plan, cold_start)

    def run(self, policy: Policy) -> Outcome:
        """Serve it with `policy`."""
        return simulate(
            self.arrivals,
            self.duration,
            self.trace.server,
            policy,
            self.start,
            self.cold_start,
            self.faults,
            self.seed,
        )

    def ideal(self) -> Outcome:
        """Serve it with the oracle's replicas, which are ready at once."""
        return simulate(
            self.arrivals, self.duration, self.trace.server, Plan(self.plan), self.start, 0.0, seed=self.seed
        )
