"""How many replicas the traffic asks for, before any bound, as arithmetic that can be printed. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final

from tailbound.autoscale.arithmetic import Figure, Lowest, Product, Sum, Term, exact
from tailbound.autoscale.model import TICK, Arrivals, Known, Rate, RevisionObservation
from tailbound.autoscale.panic import DRAIN, backlog
from tailbound.autoscale.replica_estimate import ReplicaEstimate
from tailbound.autoscale.shortage import short
from tailbound.autoscale.state import State
from tailbound.objects.unknown import Unknown

_COUNTED: Final = 30.0
"""Seconds in which the present rate is counted."""
_CHANCE: Final = 2.0
"""Standard errors of that count that are no reason to grow."""
_MOVED: Final = 2.5
"""Standard errors that the present rate is over the one of two minutes only where traffic has risen."""
_LONGER: Final = 120.0
"""Seconds of the count that the present one is compared with. The present one is part of it."""
_NONE: Final = Figure(0)


@dataclass(frozen=True)
class Demand:
    """What the traffic asks for, before any bound."""

    present: Rate
    forecast: Rate
    needed: int
    """For what is expected."""
    at_once: int
    """For that and, in panic, for what arrives this moment, and for the queue that is foreseen."""
    with_spares: int
    """And in place of the pods that do not become ready."""
    term: Term = _NONE
    """What `with_spares` comes from."""
    unreachable: float | None = None
    """Seconds that even an idle replica takes, where that is more than the target."""


def demanded(now: float, state: State, seen: RevisionObservation, sizing: ReplicaEstimate | None) -> Demand:
    """The demand of the traffic, or of the backlog alone if the arrivals are unknown."""
    arrivals = seen.arrivals
    present = _first(arrivals.over_30s, arrivals.over_10s, arrivals.over_60s)
    if sizing is None:
        return Demand(present, Unknown("nothing is known of the capacity"), 0, 0, 0)
    if isinstance(present, Unknown):
        return _blind(present, seen, sizing)
    forecast = Figure(state.forecasts.expected, "returning peak" if state.forecasts.returns else "forecast")
    cautious = Product((forecast, Sum((Figure(1), Figure(state.caution, "caution")))))
    expected: list[Term] = [cautious, Figure(present.value, "arriving")]
    rate = max(part.number for part in expected)
    by_chance = 0.0 if _risen(arrivals) else _CHANCE * sqrt(present.value / _COUNTED)
    surely = max(0.0, rate - by_chance)
    needed = _beyond_chance(sizing, expected, surely, seen.replicas.requested)
    this_moment = _first(arrivals.over_10s, present)
    parts = [needed]
    if state.panic_until is not None and isinstance(this_moment, Known):
        parts.append(sizing.term(_largest([*expected, Figure(this_moment.value, "this moment")])))
    waited_out = sizing.objective.p99 >= TICK
    queue = short(now, seen, sizing, present if waited_out else this_moment, state.cold_start(seen))
    at_once = _largest(parts if queue is None else [*parts, queue])
    spares = min(seen.replicas.stuck, exact(at_once))
    term = Sum((at_once, Figure(spares, "stuck"))) if spares else at_once
    return Demand(
        present, Known(rate, present.at), exact(needed), exact(at_once), exact(term), term, sizing.missed
    )


def _blind(present: Unknown, seen: RevisionObservation, sizing: ReplicaEstimate) -> Demand:
    """Replicas that work off the backlog beside what the ready ones do; none without one.

    Pending ones are part of them: until they are ready the backlog says nothing new.
    """
    waiting = backlog(seen, sizing.objective, sizing.rows_per_request)
    if waiting <= 0:
        return Demand(present, present, 0, 0, 0)
    term = Sum((Figure(seen.replicas.ready, "ready"), sizing.term(Figure(waiting / DRAIN, "backlog"))))
    return Demand(present, present, 0, exact(term), exact(term), term)


def _beyond_chance(sizing: ReplicaEstimate, expected: Sequence[Term], surely: float, replicas: int) -> Term:
    """Replicas for what is expected; as many as there are where chance explains why more are needed.

    A change costs a start. Under a steady load the count of half a minute scatters, and now and then asks for
    one replica more: that is no reason that lasts. Once the rate has risen by more than chance, a small
    excess is the beginning of a large one, and starts a replica at once.
    """
    term = sizing.term(_largest(expected))
    by_chance = exact(term) > replicas >= sizing.needed(surely)
    return Lowest((term, Figure(replicas, "by chance no more than"))) if by_chance else term


def _risen(arrivals: Arrivals) -> bool:
    """Whether the last half minute brought more than chance explains beside the last two minutes."""
    present, longer = arrivals.over_30s, arrivals.over_120s
    if isinstance(present, Unknown) or isinstance(longer, Unknown):
        return False
    error = sqrt(longer.value * (1 / _COUNTED - 1 / _LONGER))
    return present.value > longer.value + _MOVED * error


def _largest(parts: Sequence[Term]) -> Term:
    """The parts without those that another one hides."""
    return max(parts, key=lambda part: part.number)


def _first(*rates: Rate) -> Rate:
    """The first that is known, else why the first one is not."""
    return next((rate for rate in rates if isinstance(rate, Known)), rates[0])
