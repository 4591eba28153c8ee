"""Decisions, tick by tick: the replicas that they lead to, and what they never do."""

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tailbound.autoscale.decide import decide
from tailbound.autoscale.decision import ReplicaDecision, ReplicaReason
from tailbound.autoscale.model import (
    Arrivals,
    BatchSums,
    Ceiling,
    Known,
    LatencyTarget,
    LearnedCapacity,
    Limit,
    Limits,
    Replicas,
    Service,
)
from tailbound.autoscale.state import State
from tailbound.objects.unknown import Unknown

from tests.unit.autoscale.observations import (
    LEARNED,
    LIMITS,
    LOST,
    OBJECTIVE,
    batches,
    blind,
    ready,
    seen,
    steady,
)


@pytest.mark.parametrize(("rate", "fewest", "most"), [(10, 1, 2), (80, 6, 7), (160, 11, 13), (480, 33, 38)])
def test_a_steady_rate_gets_its_capacity_and_little_more(rate: float, fewest: int, most: int) -> None:
    assert fewest <= steady(rate, 60).replicas <= most


def test_requests_of_many_rows_need_as_many_times_the_replicas() -> None:
    needs = {}
    for per_request in (1.0, 4.0):
        state, count = State(learned=LEARNED), 3
        for tick in range(30):
            at = tick * 10.0
            service: Service = Known(batches(per_request=per_request), at)
            observation = replace(seen(at, 40, ready(count)), service=service)
            decision = decide(at, observation, OBJECTIVE, LIMITS, state)
            state, count = decision.state, decision.replicas
        needs[per_request] = (count, decision.explanation.capacity)
    assert 3 * needs[1.0][0] <= needs[4.0][0] <= 4.5 * needs[1.0][0]
    assert isinstance(needs[4.0][1], Known)
    assert needs[4.0][1].value == pytest.approx(4.0, rel=0.02)


def test_a_request_of_many_rows_is_one_run_without_batching() -> None:
    """Two requests a second, each of three rows and an eighth of a second: a quarter of one replica."""
    runs = BatchSums(
        60.0, requests=120, batches=120, rows=360, rows_squared=1080, seconds=15, rows_seconds=45
    )
    state, count = State(), 1
    for tick in range(30):
        at = tick * 10.0
        observation = replace(seen(at, 2.0, ready(count)), service=Known(runs, at))
        decision = decide(at, observation, LatencyTarget(p99=2.0), LIMITS, state)
        state, count = decision.state, decision.replicas
        assert count == 1, decision.message()
        capacity = decision.explanation.capacity
        assert isinstance(capacity, Known)
        assert capacity.value == pytest.approx(8)


def test_replicas_grow_before_a_rising_rate_needs_them() -> None:
    state, count = State(learned=LEARNED), 8
    for tick in range(30):
        at = tick * 10.0
        rate = 80.0 + 0.4 * at
        decision = decide(at, seen(at, rate, ready(count)), OBJECTIVE, LIMITS, state)
        state, count = decision.state, decision.replicas
    assert count * 16 >= rate + 0.4 * 70


def test_nothing_is_given_up_before_the_forecasts_were_judged() -> None:
    counts = [steady(80, ticks, replicas=12).replicas for ticks in (10, 30, 60)]
    assert counts[:2] == [12, 12]
    assert counts[2] < 10


def test_metrics_that_are_lost_hold_the_replicas_within_the_bounds() -> None:
    before = steady(160, 30)
    for limits, expected in ((LIMITS, before.replicas), (Limits(20, 60), 20), (Limits(1, 5), 5)):
        decision = decide(900, blind(ready(before.replicas)), OBJECTIVE, limits, before.state)
        assert decision.replicas == expected
        assert decision.stale
    assert (
        decide(900, blind(ready(before.replicas)), OBJECTIVE, LIMITS, before.state).reason
        is ReplicaReason.METRICS_STALE
    )


def test_a_value_that_is_too_old_is_as_good_as_none() -> None:
    before = steady(160, 30)
    old = seen(300, 0.0, ready(before.replicas))
    decision = decide(400, old, OBJECTIVE, LIMITS, before.state)
    assert decision.replicas == before.replicas
    assert decision.reason is ReplicaReason.METRICS_STALE


def test_a_backlog_grows_the_replicas_even_while_arrivals_are_unknown() -> None:
    before = steady(160, 30)
    waiting = replace(blind(ready(before.replicas)), in_flight=Known(3000.0, 300.0))
    decision = decide(300, waiting, OBJECTIVE, LIMITS, before.state)
    assert decision.replicas > before.replicas
    assert decision.reason is ReplicaReason.PANIC


def test_without_arrivals_pods_that_start_are_part_of_what_a_backlog_needs() -> None:
    """A hundred requests stay in flight, and pods take six ticks to start."""
    before = steady(40, 30)
    state, made = before.state, [-999.0] * 3
    for tick in range(30, 70):
        at = tick * 10.0
        count = sum(each <= at - 60 for each in made)
        replicas = Replicas(len(made), count, len(made) - count)
        waiting = replace(blind(replicas), in_flight=Known(100.0, at))
        decision = decide(at, waiting, OBJECTIVE, LIMITS, state)
        state, made = decision.state, made + [at] * (decision.replicas - len(made))
    assert 4 <= len(made) <= 7
    assert isinstance(decision.explanation.capacity, Known)
    assert decision.explanation.forecast == LOST
    assert "no batch was seen" not in decision.message()


def test_why_the_capacity_is_unknown_is_said() -> None:
    why = Unknown("Prometheus has no fresh series of done_total of the pods of r1")
    seen = replace(blind(Replicas(2, 2, 0)), service=why)
    decision = decide(0.0, seen, OBJECTIVE, LIMITS, State())
    assert (decision.replicas, decision.explanation.capacity) == (2, why)
    assert f"one replica serves unknown ({why.reason})" in decision.message()


def test_a_target_that_no_pod_meets_is_named_and_lateness_makes_no_more_of_them() -> None:
    hurried = replace(OBJECTIVE, p99=0.2)
    state, count = State(learned=LearnedCapacity(0.2, 0.05, 0.5)), 30
    for tick in range(90):
        at = tick * 10.0
        decision = decide(at, seen(at, 80, ready(count), p99=0.6), hurried, LIMITS, state)
        state, count = decision.state, decision.replicas
    assert 5 <= count <= 7
    assert decision.unreachable == pytest.approx(0.05 + 0.25 * 1.228, rel=0.02)
    assert isinstance(state.learned, LearnedCapacity)
    assert state.learned.correction == 1
    assert decide(0, seen(0, 80, ready(6)), OBJECTIVE, LIMITS, state).unreachable is None


@pytest.mark.parametrize(("cold_start", "least"), [(30.0, 3), (60.0, 6), (300.0, 6)])
def test_a_pod_goes_only_after_it_was_not_needed_for_one_cold_start_or_a_minute(
    cold_start: float, least: int
) -> None:
    before = steady(160, 60)
    state, count, needed = before.state, before.replicas, 0.0
    for tick in range(60, 160):
        at = tick * 10.0
        rate = 160.0 if tick < 100 else 80.0
        known = replace(seen(at, rate, ready(count)), cold_start=Known(cold_start, at))
        decision = decide(at, known, OBJECTIVE, LIMITS, state)
        if tick < 100:
            assert isinstance(decision.explanation.needed, Known)
            needed = decision.explanation.needed.value
        elif decision.replicas < needed:
            break
        state, count = decision.state, decision.replicas
    assert tick - 100 >= least - 1


@pytest.mark.parametrize(("starting", "goes"), [(0, True), (1, False), (4, False)])
def test_no_pod_goes_while_one_starts(starting: int, goes: bool) -> None:
    before = steady(160, 60)
    state, count = before.state, before.replicas
    pods = Replicas(count, count - starting, starting, 0, (30.0,) * starting)
    least = count
    for tick in range(60, 100):
        at = tick * 10.0
        decision = decide(at, seen(at, 80, pods), OBJECTIVE, LIMITS, state)
        state, least = decision.state, min(least, decision.replicas)
    assert (least < count) == goes


def counted(state: State, rate: float, longer: float) -> ReplicaDecision:
    """Eight pods whose last half minute brought `rate` a second and whose last two minutes `longer`."""
    observation = seen(1200, rate, ready(8))
    arrivals = replace(observation.arrivals, over_120s=Known(longer, 1200.0))
    return decide(1200, replace(observation, arrivals=arrivals), OBJECTIVE, LIMITS, state)


def test_a_small_excess_starts_a_pod_only_where_the_rate_has_risen() -> None:
    """The count of half a minute scatters by 1.7/s about the one of two minutes."""
    state = steady(100, 120).state
    rates = (100.0 + tick for tick in range(20))
    rate = next(rate for rate in rates if "by chance" in counted(state, rate, rate).explanation.account.line)
    assert [counted(state, rate, rate - less).replicas for less in (0, 3, 6)] == [8, 8, 9]


def test_chance_in_the_count_of_a_steady_rate_starts_no_pod() -> None:
    random, state, count = Random(1), State(learned=LEARNED), 9
    changes = 0
    for tick in range(360):
        at = tick * 10.0
        rate = 120 * random.gauss(1.0, 1 / (120 * 30) ** 0.5)
        decision = decide(at, seen(at, rate, ready(count)), OBJECTIVE, LIMITS, state)
        changes += decision.replicas != count
        state, count = decision.state, decision.replicas
    assert changes <= 4


def test_an_unknown_capacity_holds_unless_overloaded() -> None:
    observation = replace(seen(0, 100, ready(3)), service=Unknown("no batch yet"))
    assert decide(0, observation, OBJECTIVE, LIMITS, State()).replicas == 3
    flooded = replace(observation, in_flight=Known(900.0, 0.0))
    decision = decide(0, flooded, OBJECTIVE, LIMITS, State())
    assert (decision.replicas, decision.reason) == (4, ReplicaReason.UNKNOWN_CAPACITY)
    pending = replace(flooded, replicas=Replicas(4, 3, 1))
    assert decide(0, pending, OBJECTIVE, LIMITS, State()).replicas == 4


def test_late_requests_add_one_replica_of_unknown_capacity_and_the_next_one_after_a_while() -> None:
    state, counts = State(), [1]
    for tick in range(20):
        at = tick * 10.0
        observation = replace(seen(at, 2, ready(counts[-1]), p99=9.0), service=Unknown("no batch yet"))
        decision = decide(at, observation, OBJECTIVE, LIMITS, state)
        state = decision.state
        counts.append(decision.replicas)
    assert [counts.index(count) for count in (2, 3)] == [8, 15]
    assert counts[-1] == 3


@pytest.mark.parametrize(
    ("rate", "max_batch", "seconds", "most"),
    [(0.5, 16, 0.25, 1), (2.0, 16, 0.25, 1), (4.0, 16, 0.25, 2), (0.5, 1, 0.125, 1), (2.0, 1, 0.125, 1)],
)
def test_a_cold_learner_keeps_one_replica_at_a_tiny_rate(
    rate: float, max_batch: int, seconds: float, most: int
) -> None:
    objective, state, count = LatencyTarget(2.0, max_batch), State(), 1
    for tick in range(60):
        at = tick * 10.0
        rows = max(1.0, 60 * rate)
        sums = BatchSums(60.0, rows, rows, rows, rows, rows * seconds, rows * seconds)
        service: Service = Known(sums, at) if tick >= 5 else Unknown("no batch yet")
        # The first requests of all waited for the first pod, and are in the latencies for a minute.
        p99 = 9.0 if tick < 7 else 2 * seconds
        known = seen(at, 0.0 if tick < 3 else rate * (0.8, 1.2)[tick % 2], ready(count), p99=p99)
        observation = replace(known, service=service)
        decision = decide(at, observation, objective, LIMITS, state)
        state, count = decision.state, decision.replicas
        assert count <= most


def test_a_step_grows_the_replicas_to_little_more_than_what_it_needs() -> None:
    objective, state, count, most = LatencyTarget(2.0, 1), State(learned=LearnedCapacity(0.125, 0.0)), 1, 0
    for tick in range(90):
        at = tick * 10.0
        rate = 2.0 if tick < 40 else 22.0
        known = replace(seen(at, rate, ready(count)), service=Unknown("no batches"))
        decision = decide(at, known, objective, LIMITS, state)
        state, count = decision.state, decision.replicas
        most = max(most, count)
    assert most <= 6
    assert 3 <= count <= 5


def test_pending_replicas_count_as_capacity_and_stuck_ones_do_not() -> None:
    before = steady(160, 60)
    count = before.replicas
    pending = decide(600, seen(600, 160, Replicas(count, count - 3, 3)), OBJECTIVE, LIMITS, before.state)
    assert pending.replicas == count
    stuck = decide(600, seen(600, 160, Replicas(count, count - 3, 3, 3)), OBJECTIVE, LIMITS, before.state)
    assert (stuck.replicas, stuck.reason) == (count + 3, ReplicaReason.STUCK)


@pytest.mark.parametrize(
    ("limits", "replicas", "limited_by"),
    [
        (Limits(1, 4), 4, Limit.MAX),
        (Limits(30, 60), 30, Limit.MIN),
        (Limits(1, 60, (Ceiling(Limit.QUOTA, 5),)), 5, Limit.QUOTA),
        (Limits(1, 60, (Ceiling(Limit.QUOTA, 7), Ceiling(Limit.HARDWARE, 6))), 6, Limit.HARDWARE),
        (Limits(1, 4, (Ceiling(Limit.HARDWARE, 6),)), 4, Limit.MAX),
        (LIMITS, None, Limit.NONE),
    ],
)
def test_a_bound_is_kept_and_named(limits: Limits, replicas: int | None, limited_by: Limit) -> None:
    decision = steady(160, 60, limits=limits)
    assert decision.limited_by is limited_by
    assert replicas is None or decision.replicas == replicas


def test_replicas_without_capacity_stay_asked_for_and_grow_no_more() -> None:
    before = steady(160, 30)
    limits = Limits(1, 60, (Ceiling(Limit.HARDWARE, 4),))
    short = Replicas(6, 4, 2, 2)
    decision = decide(300, seen(300, 160, short, p99=5.0), OBJECTIVE, limits, before.state)
    assert decision.replicas == 6
    assert decision.limited_by is Limit.HARDWARE


def test_the_way_down_is_slow_and_stops_while_requests_are_late() -> None:
    before = steady(320, 60)
    counts, state = [before.replicas], before.state
    for tick in range(60, 90):
        at = tick * 10.0
        decision = decide(at, seen(at, 80, ready(counts[-1])), OBJECTIVE, LIMITS, state)
        state = decision.state
        counts.append(decision.replicas)
    assert counts[1] == counts[0]
    assert all(after >= now - max(1, now // 3) for now, after in pairwise(counts))
    assert counts[-1] <= 12
    late = decide(600, seen(600, 80, ready(before.replicas), p99=2.5), OBJECTIVE, LIMITS, before.state)
    assert late.replicas >= before.replicas


def test_an_idle_service_changes_nothing() -> None:
    decision = steady(40, 30)
    state, count = decision.state, decision.replicas
    for tick in range(30, 130):
        at = tick * 10.0
        decision = decide(at, seen(at, 0, ready(count), p99=None), OBJECTIVE, LIMITS, state)
        previous, state, count = state, decision.state, decision.replicas
    assert count == 1
    assert state == previous
    empty = decide(2000, seen(2000, 0, ready(1), p99=None), OBJECTIVE, Limits(0, 60), state)
    assert empty.replicas in {0, 1}


def test_to_none_and_back_to_one() -> None:
    limits, state, count = Limits(0, 60), State(learned=LEARNED), 2
    for tick in range(20):
        at = tick * 10.0
        decision = decide(at, seen(at, 0, ready(count), p99=None), OBJECTIVE, limits, state)
        state, count = decision.state, decision.replicas
    assert (count, decision.reason) == (0, ReplicaReason.IDLE)
    woken = decide(200, seen(200, 0.5, ready(0), p99=None, waiting=5), OBJECTIVE, limits, state)
    assert woken.replicas == 1


def test_slower_batches_raise_the_need_at_once() -> None:
    before = steady(160, 60)
    state = before.state
    for at in (600.0, 630.0):
        slow = replace(seen(at, 160, ready(before.replicas)), service=Known(batches(factor=1.35), at))
        decision = decide(at, slow, replace(OBJECTIVE, p99=2.5), LIMITS, state)
        state = decision.state
    assert isinstance(state.learned, LearnedCapacity)
    assert state.learned.base + 16 * state.learned.per_row == pytest.approx(1.35, rel=0.02)
    assert decision.replicas >= 1.25 * before.replicas


rates = st.one_of(st.just(0.0), st.floats(0.01, 2000))
known_or_not = st.booleans()
passed = st.sampled_from((10.0, 10.0, 10.0, 0.0, 3600.0, -40.0, -3600.0))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(rates, known_or_not, known_or_not, passed), min_size=1, max_size=25),
    st.sampled_from((0.0, 80.0, 3600.0)),
    st.integers(0, 5),
    st.integers(0, 40),
)
def test_whatever_is_seen_bounds_hold_and_nothing_is_given_up_blindly(
    ticks: list[tuple[float, bool, bool, float]], ahead: float, least: int, more: int
) -> None:
    """Also where the clock is set, and where that of Prometheus is ahead."""
    limits, state, count, at = Limits(least, least + more), State(learned=LEARNED), least, 0.0
    for rate, arrivals_known, rest_known, seconds in ticks:
        at += seconds
        observation = seen(at + ahead, rate, ready(count), p99=1.0, waiting=rate)
        if not arrivals_known:
            observation = replace(observation, arrivals=Arrivals(LOST, LOST, LOST, LOST))
        if not rest_known:
            observation = replace(observation, p99=LOST, in_flight=LOST, service=LOST)
        decision = decide(at, observation, OBJECTIVE, limits, state)
        assert limits.min <= decision.replicas <= limits.max
        if not (arrivals_known and rest_known):
            assert decision.replicas >= count
        state, count = decision.state, decision.replicas
