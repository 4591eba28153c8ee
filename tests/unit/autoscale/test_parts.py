"""The parts of a decision, each by itself."""

from math import exp, inf, sin
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tailbound.autoscale.batch_time import BatchTimeModel
from tailbound.autoscale.behavior import PAUSE, StabilizationWindow, grown, shrunk
from tailbound.autoscale.course import Course
from tailbound.autoscale.feedback import LOWEST, corrected
from tailbound.autoscale.forecast import Forecasts, Regression, dispersion, observed
from tailbound.autoscale.latency import p99, waiting_chance
from tailbound.autoscale.model import (
    Arrivals,
    BatchSums,
    Known,
    LatencyTarget,
    Limits,
    Replicas,
    RevisionObservation,
)
from tailbound.autoscale.panic import MOST_CAUTION, backlog, caution_after, overloaded
from tailbound.autoscale.replica_estimate import USAGE, ReplicaEstimate, fewest
from tailbound.autoscale.rows_per_request import RowsPerRequest
from tailbound.autoscale.shortage import foreseen, short
from tailbound.objects.unknown import Unknown

from tests.unit.autoscale.observations import SQUARE

BATCH_TIMES = BatchTimeModel(0.2, 0.05)
OBJECTIVE = LatencyTarget(2.0, 16, 0.05)
NOT_READ = Unknown("not read")


@pytest.mark.parametrize(("replicas", "load", "chance"), [(1, 0.5, 0.5), (2, 1.0, 1 / 3), (3, 3.0, 1.0)])
def test_chance_of_waiting_is_that_of_erlang(replicas: int, load: float, chance: float) -> None:
    assert waiting_chance(replicas, load) == pytest.approx(chance)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.floats(0.1, 900), st.floats(1, 3))
def test_more_replicas_are_never_slower(replicas: int, rate: float, spread: float) -> None:
    fewer = p99(replicas, rate, BATCH_TIMES, OBJECTIVE, spread)
    assert p99(replicas + 1, rate, BATCH_TIMES, OBJECTIVE, spread) <= fewer * (1 + 1e-9)
    assert (fewer == inf) == (rate >= replicas * BATCH_TIMES.capacity(16))


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 900), st.floats(0, 100), st.floats(0.5, 1.0))
def test_need_rises_with_the_rate_and_never_plans_with_more_than_the_cap(
    rate: float, more: float, correction: float
) -> None:
    sizing = ReplicaEstimate(BATCH_TIMES, OBJECTIVE, correction, 1.0)
    needed = sizing.needed(rate)
    assert needed <= sizing.needed(rate + more)
    assert needed * BATCH_TIMES.capacity(16) * USAGE * (1 + 1e-9) >= rate
    assert (needed == 0) == (rate == 0)


@pytest.mark.parametrize(("replicas", "load"), [(999, 960.0), (999, 985.0), (999, 850.0)])
def test_the_chance_of_waiting_for_one_of_many_goes_on_as_for_one_of_fewer(
    replicas: int, load: float
) -> None:
    more = waiting_chance(replicas + 1, load * (replicas + 1) / replicas)
    assert more == pytest.approx(waiting_chance(replicas, load), rel=0.05, abs=1e-5)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 10**6), st.integers(0, 10**6))
def test_the_fewest_that_are_enough_are_found_in_few_looks(least: int, more: int) -> None:
    looks: list[int] = []

    def enough(count: int) -> bool:
        looks.append(count)
        return count >= least + more

    assert fewest(least, enough) == least + more
    assert len(looks) <= 42


def test_a_need_of_any_size_is_found() -> None:
    sizing = ReplicaEstimate(BatchTimeModel(0.3, 0.1), OBJECTIVE, 0.5, 1.0)
    assert sizing.needed(1e6) == pytest.approx(1000 * sizing.needed(1e3), rel=0.01)


def test_a_target_that_no_replicas_hold_is_sized_by_usage_alone() -> None:
    assert ReplicaEstimate(BatchTimeModel(5.0, 0.1), OBJECTIVE, 1.0, 1.0).needed(10) == 5


@pytest.mark.parametrize(
    ("latency", "content", "before", "after"),
    [
        (2.5, True, 1.0, 0.95),
        (2.5, True, 0.5, LOWEST),
        (2.5, False, 0.8, 0.8),
        (1.0, True, 0.8, 0.808),
        (1.0, False, 1.0, 1.0),
        (1.8, True, 0.8, 0.8),
    ],
)
def test_latency_corrects_the_model_slowly(
    latency: float, content: bool, before: float, after: float
) -> None:
    assert corrected(before, latency, 2.0, content) == pytest.approx(after)


def requests(rows: list[int], per_request: float) -> BatchSums:
    """A window of batches of these sizes."""
    return BatchSums(30.0, sum(rows) / per_request, len(rows), sum(rows), 0, 0, 0)


def forecast(rates: list[float], horizon: float = 85.0, span: float = 2.0) -> Forecasts:
    """The forecast after these rates, a tick each."""
    forecasts = Forecasts()
    for tick, rate in enumerate(rates):
        forecasts = observed(forecasts, rate, tick * 10.0, horizon, span)
    return forecasts


def test_a_steady_rate_is_expected_to_stay_with_a_shrinking_spare() -> None:
    early, late = forecast([100.0] * 5).expected, forecast([100.0] * 400).expected
    assert 100 < late < early < 140


WAVE = [100 + 30 * sin(tick / 8) for tick in range(400)]
NOISE = [Random(7 * tick).uniform(60, 140) for tick in range(400)]


@pytest.mark.parametrize(
    ("rates", "horizon", "span", "least", "most"),
    [
        ([100.0] * 400, 85.0, 2.0, 1.05, 1.06),
        ([100.0] * 400, 205.0, 2.0, 1.05, 1.10),
        (WAVE, 85.0, 2.0, 1.05, 1.20),
        (WAVE, 205.0, 2.0, 1.20, 1.60),
        (NOISE, 85.0, 2.0, 1.20, 1.50),
        (NOISE, 85.0, 20.0, 1.05, 1.18),
    ],
    ids=["calm", "calm, slow start", "wave", "wave, slow start", "noise", "noise, waited out"],
)
def test_the_spare_is_as_large_as_forecasts_at_that_horizon_were_wrong(
    rates: list[float], horizon: float, span: float, least: float, most: float
) -> None:
    seen = forecast(rates, horizon, span)
    last = seen.pending[-1]
    assert least <= seen.following.rate / (last.present * exp(last.predicted)) <= most


SURGES = [100 * (1 + 0.5 * (tick % 90 >= 75)) for tick in range(540)]
DAY = [100 * (1 + 0.4 * sin(tick / 48)) for tick in range(540)]


@pytest.mark.parametrize(("rates", "most"), [(DAY, 1.3), (SURGES, 1.7)], ids=["day", "surges"])
def test_the_spare_far_beyond_the_usual_horizon_is_enough_and_no_multiple_of_the_errors(
    rates: list[float], most: float
) -> None:
    horizon, forecasts, over = 32, Forecasts(), []
    for tick, rate in enumerate(rates[:-horizon]):
        forecasts = observed(forecasts, rate, tick * 10.0, 10.0 * horizon, 2.0)
        over.append(forecasts.expected / rates[tick + horizon])
    settled = over[180:]
    assert min(settled) > 0.95
    assert sum(settled) / len(settled) < most


ONCE = [*[100.0] * 200, *[50.0] * 40]


@pytest.mark.parametrize(
    ("rates", "returns"),
    [(SQUARE, True), (DAY, False), ([100.0] * 240, False), (ONCE, False)],
    ids=["square-wave", "day", "calm", "step-down"],
)
def test_traffic_that_returns_within_minutes_keeps_what_its_peak_needs(
    rates: list[float], returns: bool
) -> None:
    """Who follows a square wave pays for starts, and for a spare against rises that no trend tells of."""
    forecasts, expected = Forecasts(), []
    for tick, rate in enumerate(rates):
        forecasts = observed(forecasts, rate, tick * 10.0, 85.0, 2.0)
        expected.append(forecasts.expected)
    assert forecasts.returns is returns
    if returns:
        assert all(140 <= each <= 1.2 * 140 for each in expected[-48:])


def test_a_course_costs_what_it_asks_for_and_its_starts() -> None:
    """A rate counts for 6 ticks, and a start costs 9: 17 ticks of 100, 7 of 60, and again, with one start."""
    course = Course()
    for tick in range(48):
        course = course.after(100.0 if tick % 24 < 12 else 60.0, 90.0)
    assert course.rate == 60.0
    assert course.cost == pytest.approx((2 * (17 * 100 + 7 * 60) + 9 * 40) / 48)


def test_guesses_are_judged_when_they_are_due_though_an_earlier_horizon_was_longer() -> None:
    forecasts = Forecasts()
    for tick in range(60):
        forecasts = observed(forecasts, 100.0, tick * 10.0, 900.0 if tick < 6 else 60.0, 2.0)
    assert forecasts.judged >= 45


def test_a_step_is_no_rise() -> None:
    step = forecast([*[20.0] * 60, *[100.0] * 8])
    assert step.expected < 160
    ramp = forecast([*[60.0] * 60, *[60.0 + 8 * tick for tick in range(1, 13)]])
    assert ramp.expected >= 156 + 8 * 8


def test_traffic_falls_where_it_does_by_more_than_chance() -> None:
    random = Random(1)
    steady = [120 + random.gauss(0, 3.5) for _ in range(400)]
    assert sum(Forecasts(rates=tuple(steady[at : at + 60])).falling for at in range(340)) <= 10
    for least, down in ((5, 6.0), (12, 2.0)):
        fallen = [rate - down * max(0, tick - 47) for tick, rate in enumerate(steady[:60])]
        assert Forecasts(rates=tuple(fallen[: 48 + least])).falling
    assert not Forecasts(rates=(9.0, 1.0)).falling


def test_forecasts_are_proven_once_they_were_judged_for_some_minutes() -> None:
    assert not forecast([100.0] * 30).proven
    assert forecast([100.0] * 36).proven
    assert forecast([0.0]).proven


def test_a_rise_is_followed_to_the_horizon() -> None:
    assert forecast([100.0] * 60 + [100 + 3.0 * tick for tick in range(30)]).expected >= 187 + 3 * 8


def test_a_rate_that_falls_back_each_time_is_learned() -> None:
    pattern = ([100.0] * 12 + [150.0] * 3) * 24
    assert forecast([*pattern, 150.0, 150.0]).expected < 150 * 1.4


def test_a_tick_that_comes_twice_counts_once() -> None:
    before = forecast([100.0] * 5)
    assert observed(before, 100.0, 42.0, 85.0, 2.0) == before


def test_a_service_that_was_idle_for_as_long_as_is_remembered_is_a_new_one() -> None:
    after = forecast([5.0, *[0.0] * 60])
    assert after.idle
    assert observed(after, 0.0, 9999.0, 85.0, 2.0) == after
    assert after.expected == 0


def test_weights_stay_bounded_without_excitation() -> None:
    regression = Regression()
    for _ in range(5000):
        regression = regression.taught((0.0, 0.0, 0.0, 0.0), 0.0, 1.0)
    assert all(abs(value) < 100 for row in regression.covariance for value in row)


@pytest.mark.parametrize(
    ("rates", "spread"),
    [([100.0] * 30, 1.0), ([0.0] * 30, 1.0), ([50.0, 150.0] * 15, 2.0), ([100.0], 2.0)],
)
def test_dispersion_is_that_of_the_counts(rates: list[float], spread: float) -> None:
    assert dispersion(rates) == pytest.approx(spread)


def test_late_requests_make_cautious_and_that_fades() -> None:
    caution = 0.0
    for _ in range(100):
        caution = caution_after(caution, True)
    assert caution == MOST_CAUTION
    for _ in range(2000):
        caution = caution_after(caution, False)
    assert caution == 0


@pytest.mark.parametrize(
    ("in_flight", "p99_seconds", "rows_per_request", "waiting", "hot"),
    [
        (32.0, 0.5, 1.0, 0.0, False),
        (65.0, 0.5, 1.0, 33.0, True),
        (32.0, 0.5, 4.0, 24.0, True),
        (8.0, 0.5, 4.0, 0.0, False),
        (0.0, 3.0, 1.0, 0.0, True),
    ],
)
def test_more_rows_than_a_batch_for_each_replica_are_an_overload(
    in_flight: float, p99_seconds: float, rows_per_request: float, waiting: float, hot: bool
) -> None:
    seen = RevisionObservation(
        Arrivals(NOT_READ, NOT_READ, NOT_READ, NOT_READ),
        Known(p99_seconds, 0.0),
        Known(in_flight, 0.0),
        NOT_READ,
        Replicas(2, 2, 0),
        NOT_READ,
    )
    assert backlog(seen, OBJECTIVE, rows_per_request) == waiting
    assert overloaded(seen, OBJECTIVE, rows_per_request) is hot


def test_rows_of_a_request_are_those_of_the_last_minutes() -> None:
    rows = RowsPerRequest()
    assert rows.per_request == 1
    rows = rows.after(Known(requests([4, 8] * 10, 4.0), 30.0))
    assert rows.per_request == 4
    assert rows.after(Known(requests([8] * 10, 1.0), 30.0)) == rows
    assert rows.after(NOT_READ) == rows
    for at in range(60, 660, 30):
        rows = rows.after(Known(requests([8] * 20, 2.0), float(at)))
    assert rows.per_request == pytest.approx(2, rel=0.02)


@pytest.mark.parametrize(
    ("replicas", "needed", "result"), [(1, 3, 3), (1, 40, 5), (10, 40, 20), (10, 12, 12)]
)
def test_growth_is_bounded(replicas: int, needed: int, result: int) -> None:
    assert grown(replicas, needed) == result


@pytest.mark.parametrize(("replicas", "floor", "result"), [(10, 2, 8), (3, 1, 2), (10, 9, 9), (1, 0, 0)])
def test_the_way_down_is_bounded(replicas: int, floor: int, result: int) -> None:
    assert shrunk(replicas, floor) == result


@pytest.mark.parametrize(
    ("cold_start", "least", "longest"),
    [(0.0, 2, 2), (20.0, 2, 6), (31.0, 4, 10), (60.0, 6, 18), (150.0, 6, 9), (300.0, 6, 6)],
)
def test_a_need_counts_for_three_starts_and_for_one_where_traffic_has_moved(
    cold_start: float, least: int, longest: int
) -> None:
    for moved, ticks in ((True, least), (False, longest)):
        window = StabilizationWindow().with_need(9, cold_start, moved)
        for _ in range(ticks - 1):
            window = window.with_need(4, cold_start, moved)
        assert (window.floor, window.hold) == (9, least)
        assert window.with_need(4, cold_start, moved).floor == 4
    assert window.with_need(4, cold_start, True).needs == (4,) * least


def test_steps_down_are_apart() -> None:
    window = StabilizationWindow().stepped()
    for left in (PAUSE, *reversed(range(PAUSE))):
        assert window.pause == left
        window = window.with_need(4, 60.0, False)


@pytest.mark.parametrize(
    ("waiting", "rate", "coming", "queue"),
    [
        (0.0, 30.0, [], 0.0),
        (0.0, 60.0, [], 1200.0),
        (0.0, 60.0, [20.0, 200.0], 800.0),
        (500.0, 35.0, [30.0, 30.0], 0.0),
        (100.0, 41.0, [], 160.0),
    ],
    ids=["enough", "short", "one comes", "drained", "a queue grows"],
)
def test_the_queue_that_is_foreseen(waiting: float, rate: float, coming: list[float], queue: float) -> None:
    assert foreseen(waiting, rate, 10.0, 4, coming, 60.0) == pytest.approx(queue)


@pytest.mark.parametrize(
    ("target", "in_flight", "is_short"),
    [(2.0, 64.0, False), (2.0, 400.0, True), (20.0, 400.0, False), (20.0, 4000.0, True)],
    ids=["busy", "late soon", "waited out", "late soon as well"],
)
def test_a_queue_that_is_no_longer_than_requests_may_wait_is_no_shortage(
    target: float, in_flight: float, is_short: bool
) -> None:
    seen = RevisionObservation(
        Arrivals(NOT_READ, NOT_READ, NOT_READ, NOT_READ),
        NOT_READ,
        Known(in_flight, 0.0),
        NOT_READ,
        Replicas(4, 4, 0),
        NOT_READ,
    )
    sizing = ReplicaEstimate(BATCH_TIMES, LatencyTarget(target, 16, 0.05), 1.0, 1.0)
    assert (short(0.0, seen, sizing, Known(66.0, 0.0), 60.0) is not None) is is_short


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LatencyTarget(1.0, 0), "max_batch is 0"),
        (lambda: LatencyTarget(1.0, 1, 1.0), "max_queue_delay is 1.0 s"),
        (lambda: Limits(3, 2), "min is 3 and max 2"),
    ],
)
def test_what_cannot_be_met_is_refused(make: object, words: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=words):
        make()
