"""What one decision leaves to the next. In memory only, but for what was learned of the capacity."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tailbound.autoscale import gateway_load
from tailbound.autoscale.batch_time import BatchTimeModel, Fit, learn, seeded
from tailbound.autoscale.behavior import StabilizationWindow
from tailbound.autoscale.forecast import Forecasts, observed
from tailbound.autoscale.model import (
    TICK,
    BatchSums,
    GatewayLoad,
    Known,
    LatencyTarget,
    LearnedCapacity,
    RevisionObservation,
)
from tailbound.autoscale.rows_per_request import RowsPerRequest
from tailbound.objects.unknown import Unknown

USUAL_COLD_START: Final = 60.0
"""Seconds, where none was measured yet."""
_SAVED_CHANGE: Final = 0.05
_SAVED_PAUSE: Final = 600.0
_NEVER_SEEN: Final = Unknown("no batch of this model was seen on this hardware class yet")


class State(NamedTuple):
    """Stays equal while a service is idle."""

    learned: LearnedCapacity | Unknown = _NEVER_SEEN
    fit: Fit = Fit()
    full: bool = False
    """Whether replicas with a queue have shown what they can do, where only the gateway sees it."""
    rows: RowsPerRequest = RowsPerRequest()
    forecasts: Forecasts = Forecasts()
    panic_until: float | None = None
    caution: float = 0.0
    """Share of the forecast that is added since requests were late."""
    starting_at: float | None = None
    """When a replica that was asked for was last starting; None if requests that waited for it are past."""
    stabilization: StabilizationWindow = StabilizationWindow()
    quiet: int = 0
    """Ticks for which nothing has moved, up to `feedback.QUIET`."""
    replicas: int = 0
    """Replicas at the last decision."""

    @property
    def batch_times(self) -> BatchTimeModel | None:
        """The time of a batch by its rows, as learned; None until it is known."""
        if isinstance(self.learned, Unknown):
            return None
        return BatchTimeModel(self.learned.base, self.learned.per_row)

    def carrying(self, share: int, before: int) -> "State":
        """The state of a revision that is to carry `share` percent of the requests, where it was `before`.

        That its traffic changes is then no surge: the requests of the service are as many as they were.
        """
        if share == before or share <= 0 or before <= 0:
            return self
        return self._replace(forecasts=self.forecasts.scaled(share / before))

    def cold_start(self, seen: RevisionObservation) -> float:
        """Seconds: as measured, else as learned, else as usual."""
        if isinstance(seen.cold_start, Known):
            return seen.cold_start.value
        return USUAL_COLD_START if isinstance(self.learned, Unknown) else self.learned.cold_start


def restored(
    rates: Sequence[Known[float]],
    cold_start: float,
    objective: LatencyTarget,
    learned: LearnedCapacity | Unknown = _NEVER_SEEN,
) -> State:
    """The state after a restart, from the rates over ten seconds of the last hour or so, oldest first."""
    forecasts = Forecasts()
    for rate in rates:
        forecasts = observed(forecasts, rate.value, rate.at, cold_start + TICK, objective.p99)
    return State(learned=learned, forecasts=forecasts)


def taught(state: State, seen: RevisionObservation, objective: LatencyTarget, now: float) -> State:
    """The state with the new batches and arrivals."""
    cold_start = state.cold_start(seen)
    fit, batch_times, learned, full = state.fit, state.batch_times, state.learned, state.full
    if isinstance(seen.service, Known):
        if fit.at is None and batch_times is not None:
            fit, full = seeded(batch_times, objective.max_batch), True
        full = full or _full(seen.service.value, objective.max_batch)
        batches = _batches(seen.service.value, objective.max_batch, batch_times, full)
        fit = learn(fit, batches, seen.service.at, objective.max_batch)
        batch_times = fit.batch_times
    if batch_times is not None:
        correction = 1.0 if isinstance(learned, Unknown) else learned.correction
        learned = LearnedCapacity(batch_times.base, batch_times.per_row, correction, cold_start)
    forecasts, rate = state.forecasts, seen.arrivals.over_10s
    if isinstance(rate, Known):
        horizon = cold_start + TICK + max(0.0, now - rate.at)
        forecasts = observed(forecasts, rate.value, rate.at, horizon, objective.p99)
    return state._replace(
        learned=learned, fit=fit, full=full, rows=state.rows.after(seen.service), forecasts=forecasts
    )


def _full(service: BatchSums | GatewayLoad, limit: int) -> bool:
    return isinstance(service, GatewayLoad) and gateway_load.full(service, limit)


def _batches(
    service: BatchSums | GatewayLoad, limit: int, batch_times: BatchTimeModel | None, full: bool
) -> BatchSums:
    """What to learn from.

    Replicas that are not busy seem slower to the gateway than they are. Once ones with a queue have shown
    what they can do, only others with a queue teach less than that; ones without may teach more.
    """
    if isinstance(service, BatchSums):
        return service
    batches = gateway_load.as_batches(service, limit, batch_times is not None)
    if batch_times is None or not full or _full(service, limit):
        return batches
    faster = batches.seconds < batch_times.base * batches.batches + batch_times.per_row * batches.rows
    return batches if faster else gateway_load.NOTHING


def worth_saving(
    learned: LearnedCapacity, saved: LearnedCapacity | Unknown, saved_at: float | None, now: float
) -> bool:
    """Whether to write `learned` where it outlives the operator: seldom, and only what differs by 5 %."""
    if isinstance(saved, Unknown) or saved_at is None:
        return True
    if now - saved_at < _SAVED_PAUSE:
        return False
    pairs = (
        (learned.base + learned.per_row, saved.base + saved.per_row),
        (learned.per_row, saved.per_row),
        (learned.correction, saved.correction),
        (learned.cold_start, saved.cold_start),
    )
    return any(abs(new - old) > _SAVED_CHANGE * old for new, old in pairs)
