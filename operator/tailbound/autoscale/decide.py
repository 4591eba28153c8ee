"""How many replicas a revision shall have: arrivals over learned capacity, with latency as the constraint."""

from dataclasses import replace
from typing import Final, TypeVar

from tailbound.autoscale.account import DecisionAccount
from tailbound.autoscale.behavior import PAUSE, StabilizationWindow, grown, shrunk
from tailbound.autoscale.decision import Explanation, ReplicaDecision, ReplicaReason
from tailbound.autoscale.demand import Demand, demanded
from tailbound.autoscale.feedback import QUIET, corrected
from tailbound.autoscale.model import (
    STALE,
    TICK,
    Arrivals,
    Known,
    LatencyTarget,
    LearnedCapacity,
    Limit,
    Limits,
    Rate,
    RevisionObservation,
    Service,
)
from tailbound.autoscale.panic import (
    EXPLAINED,
    LASTS,
    backlog,
    caution_after,
    flooded,
    late,
    overloaded,
    panic_until,
)
from tailbound.autoscale.replica_estimate import ReplicaEstimate
from tailbound.autoscale.rule import ReplicaChange, needed_within
from tailbound.autoscale.state import State, taught
from tailbound.objects.unknown import Unknown

_WATCHFUL: Final = 0.8
"""Share of the target above which nothing is given up."""

V = TypeVar("V")


def decide(
    now: float, observation: RevisionObservation, objective: LatencyTarget, limits: Limits, state: State
) -> ReplicaDecision:
    """One tick's decision about one revision. Called once every `TICK` seconds."""
    seen, stale = fresh(observation, now)
    state = taught(state, seen, objective, now)
    objective = _of_whole_requests(objective, state.rows.per_request)
    sizing = _sizing(state, objective)
    if sizing is not None and sizing.missed is not None:
        state, seen = _resigned(state, seen)
    state = _alarmed(state, seen, objective, now)
    if sizing is not None:
        state = _corrected(state, seen, sizing)
        sizing = _sizing(state, objective)
    demand = demanded(now, state, seen, sizing)
    state = _stabilized(state, demand, state.cold_start(seen))
    wanted, reason, kept = _wanted(state, seen, objective, limits, demand)
    replicas, limit = _bounded(wanted, demand.with_spares, seen.replicas.requested, limits)
    change = ReplicaChange(seen.replicas.requested, wanted, replicas, limit)
    account = DecisionAccount(reason, change, demand, sizing, state.stabilization, kept)
    if reason is ReplicaReason.SHRINK:
        state = state._replace(stabilization=state.stabilization.stepped())
    return ReplicaDecision(
        replicas,
        reason if replicas == wanted else ReplicaReason.LIMITED,
        _explanation(now, state, seen, account),
        state._replace(replicas=replicas, quiet=state.quiet if replicas == seen.replicas.requested else 0),
        limit,
        stale,
        demand.unreachable,
    )


def _resigned(state: State, seen: RevisionObservation) -> tuple[State, RevisionObservation]:
    """The state and observation without lateness, which cannot size replicas if none meets the target."""
    learned = state.learned
    if isinstance(learned, LearnedCapacity):
        state = state._replace(learned=replace(learned, correction=1.0))
    return state, replace(seen, p99=Unknown("no replica meets the target"))


def _alarmed(state: State, seen: RevisionObservation, objective: LatencyTarget, now: float) -> State:
    """The state with panic and more caution, if requests are late or about to be, or else another quiet tick.

    While replicas that were asked for still start, lateness says nothing new of how much spare is needed, nor
    while requests that waited for them are among those whose latency is measured.
    """
    hot = overloaded(seen, objective, state.rows.per_request)
    starting_at = now if _starting(seen) else state.starting_at
    explained = starting_at is not None and abs(now - starting_at) <= EXPLAINED
    return state._replace(
        panic_until=panic_until(state.panic_until, hot, now),
        caution=caution_after(state.caution, hot and not explained),
        starting_at=starting_at if explained else None,
        quiet=_quiet(state, seen, objective),
    )


def _starting(seen: RevisionObservation) -> bool:
    """Whether pods that were asked for will be ready soon."""
    return seen.replicas.pending > seen.replicas.stuck


def fresh(observation: RevisionObservation, now: float) -> tuple[RevisionObservation, tuple[str, ...]]:
    """The observation with what is too old taken for unknown, and what is missing, in words."""
    believed = observation if _all_fresh(observation, now) else _of_fresh(observation, now)
    signals = (
        ("arrivals", believed.arrivals.over_10s),
        ("arrivals", believed.arrivals.over_30s),
        ("in flight", believed.in_flight),
    )
    missing = {name: value.reason for name, value in signals if isinstance(value, Unknown)}
    return believed, tuple(f"{name}: {why}" for name, why in missing.items())


def _all_fresh(observation: RevisionObservation, now: float) -> bool:
    """Whether nothing is too old, as mostly."""
    arrivals, oldest = observation.arrivals, now - STALE
    values: tuple[Rate | Service, ...] = (
        *(arrivals.over_10s, arrivals.over_30s, arrivals.over_60s, arrivals.over_120s),
        *(observation.p99, observation.in_flight, observation.service, observation.waiting),
    )
    return all(isinstance(value, Unknown) or value.at >= oldest for value in values)


def _of_fresh(observation: RevisionObservation, now: float) -> RevisionObservation:
    arrivals = observation.arrivals
    return replace(
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
        waiting=_believed(observation.waiting, now),
    )


def _believed(value: Known[V] | Unknown, now: float) -> Known[V] | Unknown:
    if isinstance(value, Known) and now - value.at > STALE:
        return Unknown(f"the last value is {now - value.at:.0f} s old")
    return value


def _of_whole_requests(objective: LatencyTarget, rows_per_request: float) -> LatencyTarget:
    """A run holds at least one request, however many rows it brings."""
    rows = round(rows_per_request)
    return objective if rows <= objective.max_batch else replace(objective, max_batch=rows)


def _quiet(state: State, seen: RevisionObservation, objective: LatencyTarget) -> int:
    """Ticks for which nothing has moved, this one included."""
    waiting = backlog(seen, objective, state.rows.per_request) > 0
    moved = seen.replicas.pending > 0 or seen.replicas.requested != state.replicas or waiting
    return 0 if moved else min(QUIET, state.quiet + 1)


def _sizing(state: State, objective: LatencyTarget) -> ReplicaEstimate | None:
    if state.batch_times is None or isinstance(state.learned, Unknown):
        return None
    return ReplicaEstimate(
        state.batch_times,
        objective,
        state.learned.correction,
        state.forecasts.dispersion,
        state.rows.per_request,
    )


def _corrected(state: State, seen: RevisionObservation, sizing: ReplicaEstimate) -> State:
    """The state with a corrected latency model, if the correction can be measured."""
    rate, p99, learned = seen.arrivals.over_60s, seen.p99, state.learned
    if state.quiet < QUIET or isinstance(learned, Unknown):
        return state
    if isinstance(rate, Unknown) or isinstance(p99, Unknown):
        return state
    content = sizing.needed(rate.value) <= seen.replicas.ready
    factor = corrected(learned.correction, p99.value, sizing.objective.p99, content)
    return state._replace(learned=LearnedCapacity(learned.base, learned.per_row, factor, learned.cold_start))


def _stabilized(state: State, demand: Demand, cold_start: float) -> State:
    if isinstance(demand.forecast, Unknown):
        return state._replace(stabilization=StabilizationWindow())
    moved = state.panic_until is not None or state.forecasts.falling
    return state._replace(stabilization=state.stabilization.with_need(demand.with_spares, cold_start, moved))


def _wanted(
    state: State,
    seen: RevisionObservation,
    objective: LatencyTarget,
    limits: Limits,
    demand: Demand,
) -> tuple[int, ReplicaReason, str]:
    """The first rule that fits; for Cooling with why nothing is given up.

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
        return replicas + int(more), ReplicaReason.UNKNOWN_CAPACITY, ""
    if demand.with_spares > replicas:
        return grown(replicas, demand.with_spares), _why_grown(replicas, demand), ""
    if isinstance(demand.forecast, Unknown):
        return replicas, ReplicaReason.METRICS_STALE, ""
    if demand.with_spares == replicas:
        return replicas, ReplicaReason.STEADY if replicas else ReplicaReason.IDLE, ""
    least = replicas <= limits.min
    kept = "" if least else _why_kept(state, seen, objective, demand)
    if kept is not None:
        return replicas, ReplicaReason.LIMITED if least else ReplicaReason.COOLING, kept
    return shrunk(replicas, state.stabilization.floor), ReplicaReason.SHRINK, ""


def _why_kept(
    state: State, seen: RevisionObservation, objective: LatencyTarget, demand: Demand
) -> str | None:
    """Why no replica is given up, as a clause; None if some may be. The first rule that holds.

    On forecasts whose errors are not known yet nothing is given up, nor while a pod starts, which would be
    the first to be deleted: so none is deleted before it was of any use, and replicas that were added are
    kept for one cold start.
    """
    window = state.stabilization
    held = f"{window.hold * TICK:.0f} s (stabilization window)"
    rules = (
        (window.floor >= seen.replicas.requested, needed_within(window)),
        (len(window.needs) < window.hold, f"the need has not been known for {held} yet"),
        (window.pause > 0, f"the last step down was less than {PAUSE * TICK:.0f} s ago"),
        (isinstance(seen.in_flight, Unknown), "the number of requests in flight is unknown"),
        (not state.forecasts.proven, "the errors of the forecast are not known yet"),
        (state.panic_until is not None, f"requests were late or waited within the last {LASTS:.0f} s"),
        (_starting(seen), "a replica is still starting"),
        (
            demand.unreachable is None and not _relaxed(seen, objective),
            f"the latency is above {100 * _WATCHFUL:.0f} % of the target",
        ),
    )
    return next((clause for holds, clause in rules if holds), None)


def _why_grown(replicas: int, demand: Demand) -> ReplicaReason:
    if demand.needed > replicas:
        return ReplicaReason.FORECAST
    return ReplicaReason.PANIC if demand.at_once > replicas else ReplicaReason.STUCK


def _relaxed(seen: RevisionObservation, objective: LatencyTarget) -> bool:
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


def _why_unknown(seen: RevisionObservation) -> Unknown:
    """Why the capacity is not known while no batch was seen."""
    return seen.service if isinstance(seen.service, Unknown) else Unknown("no batch was seen yet")


def _explanation(
    now: float, state: State, seen: RevisionObservation, account: DecisionAccount
) -> Explanation:
    demand, sizing = account.demand, account.sizing
    forecast = demand.forecast
    return Explanation(
        arrivals=demand.present,
        forecast=forecast,
        capacity=_why_unknown(seen) if sizing is None else Known(sizing.capacity, now),
        needed=Known(float(demand.needed), forecast.at) if isinstance(forecast, Known) else forecast,
        cold_start=state.cold_start(seen),
        account=account,
    )
