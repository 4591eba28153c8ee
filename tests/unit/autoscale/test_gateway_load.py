"""What a runtime that tells nothing of its batches can do is learned from what the gateway sees of it."""

import numpy as np
import pytest
from tailbound.autoscale.batch_time import BatchTimeModel, Fit, learn
from tailbound.autoscale.gateway_load import as_batches
from tailbound.autoscale.model import (
    Arrivals,
    GatewayLoad,
    Known,
    LatencyTarget,
    LearnedCapacity,
    Replicas,
    RevisionObservation,
)
from tailbound.autoscale.state import State, taught
from tailbound.objects.unknown import Unknown

from e2e.bench.autoscale.fleet import Fleet, Floats, Server, draw, simulate
from e2e.bench.autoscale.own import Own
from tests.support.effort import effort

STEEP = Server(0.1, 0.1, batch=4, target=3.0, delay=0.0)
FLAT = Server(0.25, 0.0, batch=4, target=3.0, delay=0.0)
LARGE = Server(0.2, 0.05, batch=16, target=3.0)
ONE = Server(0.2, 0.0, batch=1, target=3.0, delay=0.0)
SECONDS = 900


class Watched(Own):
    """Learns and decides as ever, but the number of replicas stays."""

    def replicas(self, fleet: Fleet) -> int | None:
        super().replicas(fleet)
        return None


def learned(server: Server, rates: Floats, replicas: int = 1, seed: int = 1) -> float:
    """The capacity that is learned over the true one."""
    own = Watched(tells_batches=False)
    simulate(draw(rates, seed), len(rates), server, own, replicas, seed=seed)
    assert own.state.batch_times is not None
    return own.state.batch_times.capacity(server.batch) / server.capacity


@pytest.mark.parametrize(
    ("load", "least"), [(0.2, 0.3), (0.5, 0.5), (0.8, 0.75), (0.9, 0.8), (1.0, 0.85), (1.2, 0.9)]
)
@pytest.mark.parametrize("server", [STEEP, FLAT, LARGE, ONE], ids=["steep", "flat", "large", "one"])
def test_the_busier_it_is_the_better_the_capacity_is_known(server: Server, load: float, least: float) -> None:
    ratios = [
        learned(server, np.full(SECONDS, load * server.capacity), seed=seed)
        for seed in effort((1,), (1, 2, 3))
    ]
    assert least <= min(ratios) <= max(ratios) <= 1.15, ratios


def test_a_queue_is_no_slow_batch() -> None:
    overload = np.concatenate([np.full(300, 0.5), np.full(200, 2.0), np.full(200, 0.5)])
    assert 0.85 < learned(STEEP, overload * STEEP.capacity) < 1.15


def load(
    answered: float, inside: float, replicas: float = 1.0, fewest: float | None = None, swing: float = 0.0
) -> GatewayLoad:
    """The load of a minute in which the requests inside rose and fell by `swing`."""
    fewest = replicas if fewest is None else fewest
    return GatewayLoad(answered, inside, max(0.0, inside - swing), inside + swing, replicas, fewest)


def after(*windows: GatewayLoad, limit: int = 4) -> BatchTimeModel:
    """What is known after minutes that follow one another."""
    fit = Fit()
    for number, window in enumerate(windows):
        fit = learn(fit, as_batches(window, limit, fit.batch_times is not None), 60.0 * number, limit)
    assert fit.batch_times is not None
    return fit.batch_times


FULL = load(8.0, 20.0)


def test_a_replica_that_always_has_a_queue_does_what_it_answers() -> None:
    assert after(FULL).capacity(4) == pytest.approx(8.0)
    assert after(load(24.0, 60.0, replicas=3)).capacity(4) == pytest.approx(8.0)


@pytest.mark.parametrize(
    "mixed",
    [
        load(9.0, 20.0, replicas=2, fewest=1),
        load(4.0, 10.0, swing=20.0),
        load(4.0, 5.0, swing=20.0),
        load(0.0, 20.0),
        load(4.0, 20.0, replicas=0),
    ],
    ids=["a replica came", "a queue came", "a queue came late", "nothing was answered", "no replica"],
)
def test_a_minute_whose_parts_are_not_alike_tells_nothing_once_something_is_known(mixed: GatewayLoad) -> None:
    assert after(FULL, mixed) == after(FULL)


def test_one_replica_of_many_that_comes_is_no_other_state() -> None:
    more = load(100.0, 400.0, replicas=20.5, fewest=20)
    assert after(FULL, more).capacity(4) < 8.0 * 0.9


def test_the_first_minute_is_taken_as_it_is() -> None:
    assert 0 < after(load(9.0, 20.0, replicas=2, fewest=1)).capacity(4) < 8.0


def test_nothing_is_learned_from_no_requests() -> None:
    for nothing in (load(0.0, 0.0), load(0.0, 3.0), load(1.0, 3.0, replicas=0.0)):
        assert learn(Fit(), as_batches(nothing, 4, known=False), 0.0, 4).batch_times is None


def test_replicas_that_work_on_all_requests_at_once_are_taken_for_no_more_than_half_as_many_again() -> None:
    """Four requests at a time, a quarter of a second each: 16 a second."""
    for inside in (0.5, 1.0, 1.5, 2.0, 3.0, 4.0):
        assert after(load(4 * inside, inside)).capacity(4) <= 1.5 * 16 * (1 + 1e-9)


def test_pods_follow_a_ramp_of_a_service_whose_runtime_tells_nothing() -> None:
    rates = np.concatenate([np.full(300, 2.0), np.linspace(2, 22, 180), np.full(600, 22.0)])
    arrivals = draw(rates, 1)
    own = simulate(arrivals, len(rates), STEEP, Own(tells_batches=False), 1, cold_start=10.0)
    told = simulate(arrivals, len(rates), STEEP, Own(), 1, cold_start=10.0)
    assert own.late_pct <= max(1.0, 1.5 * told.late_pct), (own.late_pct, told.late_pct)
    assert own.replica_hours <= 1.5 * told.replica_hours


def test_after_an_overload_replicas_that_are_hardly_busy_teach_no_lower_capacity() -> None:
    quiet = np.full(900, 0.3)
    overload = np.concatenate([np.full(300, 0.5), np.full(200, 2.0), quiet])
    assert 0.85 < learned(LARGE, overload * LARGE.capacity) < 1.15


def test_what_was_learned_before_a_restart_is_corrected_upwards_by_faster_answers() -> None:
    state = State(learned=LearnedCapacity(0.4, 0.1))
    for minute in range(10):
        at = 60.0 * minute
        unread = Unknown("not read")
        seen = RevisionObservation(
            Arrivals(unread, unread, unread, unread),
            unread,
            unread,
            Known(load(10.0, 6.0), at),
            Replicas(1, 1, 0),
            unread,
        )
        state = taught(state, seen, LatencyTarget(2.0, 4), at)
    assert state.batch_times is not None
    assert state.batch_times.capacity(4) > 1.3 * BatchTimeModel(0.4, 0.1).capacity(4)
