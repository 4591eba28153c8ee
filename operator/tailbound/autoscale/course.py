"""The cost that planning in one way has had of late, starts included. Pure."""

from typing import NamedTuple

from tailbound.autoscale.behavior import hold
from tailbound.autoscale.forecast_errors import REMEMBERED
from tailbound.autoscale.model import TICK


class Course(NamedTuple):
    """The rates that one way to plan has asked for, in requests per second, and what that cost."""

    cost: float = 0.0
    """Mean rate that replicas would have been kept or started for, in requests per second."""
    ticks: int = 0
    """How many the mean is taken over."""
    rates: tuple[float, ...] = ()
    """Those of the time for which a replica is kept, and the one before."""

    @property
    def rate(self) -> float:
        """The rate that it asks for now; 0 before the first."""
        return self.rates[-1] if self.rates else 0.0

    def after(self, rate: float, horizon: float) -> "Course":
        """The course a tick later. A replica costs for `horizon` seconds until it serves."""
        kept = hold(horizon)
        rates = (*self.rates, rate)[-kept - 1 :]
        asked = max(rates[-kept:])
        started = max(0.0, asked - max(rates[:-1])) if len(rates) > kept else 0.0
        ticks = min(REMEMBERED, self.ticks + 1)
        paid = asked + started * horizon / TICK
        return Course(self.cost + (paid - self.cost) / ticks, ticks, rates)

    def scaled(self, factor: float) -> "Course":
        """The course of `factor` times the traffic."""
        return Course(self.cost * factor, self.ticks, tuple(rate * factor for rate in self.rates))
