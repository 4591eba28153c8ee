"""When a gateway refuses what would be late: on a simulated server, seen twice a second."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from tailbound.gateway.shedding import REST, InFlightLimit, Sample

TARGET = 0.4
STEP = 0.5
SERVICE = 0.05
"""Seconds of one request on one worker: a pod with one worker finishes 20 per second."""

Rate = Callable[[float], float]


@dataclass
class Server:
    """A first-in first-out queue before one worker per pod, behind a limit of requests in flight."""

    pods: int = 2
    seconds: float = SERVICE
    unlimited: bool = False
    """Every request has a worker of its own."""
    ends: list[float] = field(default_factory=list)
    free: list[float] = field(default_factory=list)
    finished: int = 0
    latencies: list[float] = field(default_factory=list)
    refused: int = 0

    def offer(self, now: float, limit: int | None) -> None:
        self.settle(now)
        if limit is not None and len(self.ends) >= limit:
            self.refused += 1
            return
        start = now
        if not self.unlimited:
            while len(self.free) < self.pods:
                heapq.heappush(self.free, now)
            start = max(now, heapq.heappop(self.free))
            heapq.heappush(self.free, start + self.seconds)
        heapq.heappush(self.ends, start + self.seconds)
        self.latencies.append(start + self.seconds - now)

    def settle(self, now: float) -> None:
        while self.ends and self.ends[0] <= now:
            heapq.heappop(self.ends)
            self.finished += 1


def run(server: Server, rate: Rate, seconds: float) -> list[tuple[float, int | None]]:
    """The limits over time, with arrivals that are evenly spaced."""
    state, now, tick, limits = InFlightLimit(), 0.0, 0.0, list[tuple[float, int | None]]()
    while now < seconds:
        if now >= tick:
            server.settle(now)
            state = state.after(Sample(now, server.finished, len(server.ends), server.pods), TARGET)
            limits.append((now, state.limit))
            tick += STEP
        server.offer(now, state.limit)
        now += 1 / rate(now)
    return limits


def share_limited(limits: list[tuple[float, int | None]]) -> float:
    return sum(limit is not None for _, limit in limits) / len(limits)


@pytest.mark.parametrize(
    ("server", "rate"),
    [
        pytest.param(Server(), lambda _: 30.0, id="within-capacity"),
        pytest.param(Server(), lambda now: 400.0 if now % 20 < 0.05 else 5.0, id="short-bursts"),
        pytest.param(Server(pods=200), lambda now: 5.0 if now < 20 else 3000.0, id="growth-within-capacity"),
        pytest.param(Server(seconds=3.0), lambda _: 0.3, id="too-few-requests-to-know"),
    ],
)
def test_nothing_is_refused_without_an_overload(server: Server, rate: Rate) -> None:
    assert share_limited(run(server, rate, 60)) == 0
    assert server.refused == 0


@pytest.mark.parametrize("factor", [1.5, 2.0, 5.0])
def test_what_is_let_through_in_an_overload_is_in_time(factor: float) -> None:
    server, waits = Server(), Server()
    overloaded = 40.0 * factor
    run(server, lambda now: 20.0 if now < 10 else overloaded, 70)
    late = sum(one > TARGET for one in server.latencies)
    offered = len(server.latencies) + server.refused
    assert late / offered < 0.12  # the queue of the seconds until it was noticed
    tail = server.latencies[-600:]
    assert sum(one > TARGET for one in tail) == 0
    assert len(server.latencies) > 0.9 * 40 * 60  # refusing costs no capacity
    for number in range(int(60 * overloaded)):
        waits.offer(10 + number / overloaded, None)
    assert sum(one > TARGET for one in waits.latencies) / len(waits.latencies) > 0.9


def test_the_limit_goes_with_the_overload() -> None:
    server = Server()
    limits = run(server, lambda now: 100.0 if 10 < now < 40 else 10.0, 60)
    assert all(limit is None for now, limit in limits if now < 10 or now > 46)
    assert share_limited([one for one in limits if 14 < one[0] < 40]) == 1


def test_the_limit_follows_the_pods_at_once() -> None:
    state = InFlightLimit(limit=26, capacity=20.0, samples=(Sample(0, 100, 26, 2),))
    assert state.after(Sample(0.5, 120, 26, 4), TARGET).limit == 22
    assert state.after(Sample(0.5, 120, 26, 1), TARGET).limit == 5
    assert state.after(Sample(0.5, 120, 26, 0), TARGET).limit is None


@pytest.mark.parametrize("seconds", [1.1 * TARGET, 1.5 * TARGET, 10 * TARGET])
def test_a_target_that_no_queue_stands_before_is_given_up_soon(seconds: float) -> None:
    """Every request takes so long, however few there are: refusing helps nobody."""
    server = Server(seconds=seconds, unlimited=True)
    limits = run(server, lambda _: 50.0, REST)
    assert share_limited(limits) < 0.05
    assert server.refused < 0.05 * 50 * REST


def test_a_new_envoy_begins_without_a_limit() -> None:
    state = InFlightLimit(limit=26, capacity=20.0, samples=(Sample(0, 100, 26, 2),))
    assert state.after(Sample(0.5, 3, 1, 2), TARGET).limit is None


def test_a_server_that_stands_still_is_not_taken_for_one_without_capacity() -> None:
    state = InFlightLimit()
    for number in range(20):
        state = state.after(Sample(number * STEP, 100, 50 + number, 2), TARGET)
        assert state.limit is None
