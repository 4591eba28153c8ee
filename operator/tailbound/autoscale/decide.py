"""How many replicas a revision shall have: arrivals over learned capacity, with latency as the constraint."""

from dataclasses import replace
from typing import Final, TypeVar

from tailbound.autoscale.account import account
from tailbound.autoscale.behavior import StabilizationWindow, grown, shrunk
from tailbound.autoscale.decision import Decision, Explanation, Reason
from tailbound.autoscale.demand import Demand, demanded
from tailbound.autoscale.feedback import QUIET, corrected
from tailbound.autoscale.forecast import dispersion
from tailbound.autoscale.model import (
    Arrivals,
    Known,
    LearnedCapacity,
    Limit,
    Limits,
    Objective,
    Observation,
    Rate,
    Unknown,
)
from tailbound.autoscale.panic import backlog, caution_after, flooded, late, overloaded, panic_until
from tailbound.autoscale.replica_estimate import ReplicaEstimate
from tailbound.autoscale.state import State, taught

STALE: Final = 45.0
"""Seconds after which a value is not believed: three scrapes."""
_WATCHFUL: Final = 0.8
"""Share of the target above which nothing is given up."""

V = TypeVar("V")


def decide(
    now: float, observation: Observation, objective: Objective, limits: Limits, state: State
) -> Decision:
    """One tick's decision about one revision. Called once every `TICK` seconds."""
    seen, stale = fresh(observation, now)
    state = taught(state, seen, objective, now)
    objective = _of_whole_requests(objective, state.rows.per_request)
    sizing = _sizing(state, objective)
    if sizing is not None and sizing.missed is not None:
        state, seen = _resigned(state, seen)
    state = _quieter(_alarmed(state, seen, objective, now), seen, objective)
    if sizing is not None:
        state = _corrected(state, seen, sizing)
        sizing = _sizing(state, objective)
    demand = demanded(now, state, seen, sizing)
    state = _stabilized(state, demand, state.cold_start(seen))
    wanted, reason = _wanted(state, seen, objective, limits, demand)
    replicas, limit = _bounded(wanted, demand.with_spares, seen.replicas.requested, limits)
    line = account(demand, sizing, reason, seen.replicas.requested, state.stabilization.floor, replicas)
    if reason is Reason.SHRINK:
        state = replace(state, stabilization=state.stabilization.stepped())
    return Decision(
        replicas,
        reason if replicas == wanted else Reason.LIMITED,
        _explanation(now, state, seen, sizing, demand, line),
        replace(state, replicas=replicas, quiet=state.quiet if replicas == seen.replicas.requested else 0),
        limit,
        stale,
        demand.unreachable,
    )


def _resigned(state: State, seen: Observation) -> tuple[State, Observation]:
    """Where no replica meets the target, how late requests are says nothing of how many there should be."""
    learned = state.learned
    if isinstance(learned, LearnedCapacity):
        state = replace(state, learned=replace(learned, correction=1.0))
    return state, replace(seen, p99=Unknown("no replica meets the target"))


def _alarmed(state: State, seen: Observation, objective: Objective, now: float) -> State:
    """In panic, and more cautious, where requests are late or about to be.

    While replicas that were asked for still start, lateness says nothing new of how much spare is needed.
    """
    hot = overloaded(seen, objective, state.rows.per_request)
    return replace(
        state,
        panic_until=panic_until(state.panic_until, hot, now),
        caution=caution_after(state.caution, hot and not _starting(seen)),
    )


def _starting(seen: Observation) -> bool:
    """Whether pods that were asked for will be ready soon."""
    return seen.replicas.pending > seen.replicas.stuck


def fresh(observation: Observation, now: float) -> tuple[Observation, tuple[str, ...]]:
    """The observation with what is too old taken for unknown, and what is missing, in words."""
    arrivals = observation.arrivals
    believed = replace(
        observation,
        arrivals=Arrivals(
            _believed(arrivals.over_10s, now),
            _believed(arrivals.over_30s, now),
            _believed(arrivals.over_60s, now),
            _believed(arrivals.over_120s, now),
        ),
        p99=_believed(observation.p99, now),
        in_flight=_believed(observation.in_flight, now),
        service=_believed(observation.service, now),
    )
    signals = (
        ("arrivals", believed.arrivals.over_10s),
        ("arrivals", believed.arrivals.over_30s),
        ("in flight", believed.in_flight),
    )
    missing = {name: value.why for name, value in signals if isinstance(value, Unknown)}
    return believed, tuple(f"{name}: {why}" for name, why in missing.items())


def _believed(value: Known[V] | Unknown, now: float) -> Known[V] | Unknown:
    if isinstance(value, Known) and now - value.at > STALE:
        return Unknown(f"the last value is {now - value.at:.0f} s old")
    return value


def _of_whole_requests(objective: Objective, rows_per_request: float) -> Objective:
    """A run holds at least one request, however many rows it brings."""
    return replace(objective, max_batch=max(objective.max_batch, round(rows_per_request)))


def _quieter(state: State, seen: Observation, objective: Objective) -> State:
    waiting = backlog(seen, objective, state.rows.per_request) > 0
    moved = seen.replicas.pending > 0 or seen.replicas.requested != state.replicas or waiting
    return replace(state, quiet=0 if moved else min(QUIET, state.quiet + 1))


def _sizing(state: State, objective: Objective) -> ReplicaEstimate | None:
    if state.batch_times is None or isinstance(state.learned, Unknown):
        return None
    return ReplicaEstimate(
        state.batch_times,
        objective,
        state.learned.correction,
        dispersion(state.forecasts.rates),
        state.rows.per_request,
    )


def _corrected(state: State, seen: Observation, sizing: ReplicaEstimate) -> State:
    """With the latency model corrected, where it can be judged."""
    rate, p99, learned = seen.arrivals.over_60s, seen.p99, state.learned
    if state.quiet < QUIET or isinstance(learned, Unknown):
        return state
    if isinstance(rate, Unknown) or isinstance(p99, Unknown):
        return state
    content = sizing.needed(rate.value) <= seen.replicas.ready
    factor = corrected(learned.correction, p99.value, sizing.objective.p99, content)
    return replace(state, learned=LearnedCapacity(learned.base, learned.per_row, factor, learned.cold_start))


def _stabilized(state: State, demand: Demand, cold_start: float) -> State:
    if isinstance(demand.forecast, Unknown):
        return replace(state, stabilization=StabilizationWindow())
    return replace(state, stabilization=state.stabilization.with_need(demand.with_spares, cold_start))


def _wanted(
    state: State, seen: Observation, objective: Objective, limits: Limits, demand: Demand
) -> tuple[int, Reason]:
    """The first rule that fits.

    The latencies of a minute in which replicas were added say little about what they are now.

    | capacity known | arrivals known | asked for now           | result                           |
    |----------------|----------------|-------------------------|----------------------------------|
    | no             | any            | flooded, none pends     | one more, UnknownCapacity        |
    | no             | any            | late after a quiet while| one more, UnknownCapacity        |
    | no             | any            | else                    | as they are, UnknownCapacity     |
    | yes            | no             | more, by a backlog      | grown, Panic                     |
    | yes            | no             | else                    | as they are, MetricsStale        |
    | yes            | yes            | more, by panic          | grown, Panic                     |
    | yes            | yes            | more, by forecast       | grown, Forecast                  |
    | yes            | yes            | more, for stuck pods    | grown, Stuck                     |
    | yes            | yes            | as many                 | as they are, Steady              |
    | yes            | yes            | fewer, at min           | as they are, Limited             |
    | yes            | yes            | fewer, in each last tick| fewer, Shrink (to none: Idle)    |
    | yes            | yes            | fewer                   | as they are, Cooling             |
    """
    replicas = seen.replicas.requested
    if state.batch_times is None:
        flood = flooded(seen, objective, state.rows.per_request) and not seen.replicas.pending
        more = flood or (late(seen, objective) and state.quiet >= QUIET)
        return replicas + int(more), Reason.UNKNOWN_CAPACITY
    if demand.with_spares > replicas:
        return grown(replicas, demand.with_spares), _why_grown(replicas, demand)
    if isinstance(demand.forecast, Unknown):
        return replicas, Reason.METRICS_STALE
    if demand.with_spares == replicas:
        return replicas, Reason.STEADY if replicas else Reason.IDLE
    return _given_up(state, seen, objective, limits, demand)


def _given_up(
    state: State, seen: Observation, objective: Objective, limits: Limits, demand: Demand
) -> tuple[int, Reason]:
    """What becomes of more replicas than are needed now: the last three rows of the table of `_wanted`."""
    replicas = seen.replicas.requested
    if replicas <= limits.min:
        return replicas, Reason.LIMITED
    floor = state.stabilization.floor
    calm = demand.unreachable is not None or _relaxed(seen, objective)
    if floor >= replicas or not state.stabilization.full or not _judged(state, seen) or not calm:
        return replicas, Reason.COOLING
    return shrunk(replicas, floor), Reason.SHRINK


def _why_grown(replicas: int, demand: Demand) -> Reason:
    if demand.needed > replicas:
        return Reason.FORECAST
    return Reason.PANIC if demand.at_once > replicas else Reason.STUCK


def _judged(state: State, seen: Observation) -> bool:
    """Whether anything may be given up: not in panic, nor on forecasts whose errors are not known yet.

    Nor while a pod starts, which would be the first to go: so none is deleted before it was of any use, and
    a fleet that grew keeps for one cold start what it grew to.
    """
    known = isinstance(seen.in_flight, Known) and state.forecasts.proven
    return known and state.panic_until is None and not _starting(seen)


def _relaxed(seen: Observation, objective: Objective) -> bool:
    """Whether latency allows to give something up. Nothing in flight is as good as a low latency."""
    if isinstance(seen.p99, Unknown):
        return isinstance(seen.in_flight, Known) and seen.in_flight.value == 0
    return seen.p99.value < _WATCHFUL * objective.p99


def _bounded(wanted: int, asked: int, present: int, limits: Limits) -> tuple[int, Limit]:
    """The replicas within the bounds, and the bound that what is asked for runs into.

    A ceiling stops growth only: a pod that waits for room takes it as soon as there is any.
    """
    ceiling = min(limits.ceilings, key=lambda one: one.replicas, default=None)
    replicas, limit = wanted, Limit.NONE
    if ceiling is not None and asked > ceiling.replicas:
        replicas, limit = min(wanted, max(present, ceiling.replicas)), ceiling.limit
    if asked > limits.max and (ceiling is None or limits.max <= ceiling.replicas):
        limit = Limit.MAX
    replicas = min(replicas, limits.max)
    if asked < limits.min and replicas <= limits.min:
        return limits.min, Limit.MIN
    return max(replicas, limits.min), limit


def _explanation(
    now: float, state: State, seen: Observation, sizing: ReplicaEstimate | None, demand: Demand, line: str
) -> Explanation:
    known = isinstance(demand.forecast, Known)
    capacity: Rate = Unknown("no batch was seen yet")
    if sizing is not None:
        capacity = Known(sizing.capacity, now)
    return Explanation(
        demand.present,
        demand.forecast,
        capacity,
        Known(float(demand.needed), demand.forecast.at)
        if isinstance(demand.forecast, Known)
        else demand.forecast,
        state.cold_start(seen),
        "overloaded" if state.panic_until is not None else ("steady" if known else "blind"),
        line,
    )
