"""Requests wait for others only where that gains: simulated arrivals, with fixed and with learned delays."""

import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from statistics import fmean

import numpy as np
import pytest
from tailbound_runtime.batch import Batching, Mode
from tailbound_runtime.queue import Job, Queue
from tailbound_runtime.queue_delay import LEAST_GAPS, QueueDelay, best_wait
from tailbound_runtime.signature import InferRequest
from tailbound_runtime.speed import Line

LINE = Line(0.010, 0.0005)
DELAY = 0.020
REQUEST = InferRequest(None, {"x": np.zeros((1, 1), np.float32)}, ("y",), 1)


@pytest.mark.parametrize(
    ("gaps", "waiting", "seconds"),
    [
        pytest.param([], 1, 0.0, id="nobody-comes"),
        pytest.param([0.02] * 9, 1, 0.0, id="the-next-comes-when-the-run-is-over"),
        pytest.param([0.001] * 9, 1, 0.001, id="the-next-comes-at-once"),
        pytest.param([0.001] * 9, 8, 0.001, id="eight-wait-and-lose-less-than-one-gains"),
        pytest.param([0.001] * 9, 10, 0.0, id="ten-wait-and-lose-more"),
        pytest.param([0.001] * 7 + [0.5], 1, 0.001, id="to-the-end-of-a-burst-and-not-beyond"),
        pytest.param([0.001] + [0.5] * 11, 1, 0.0, id="bursts-are-rare"),
    ],
)
def test_the_time_that_gains_most_is_waited(gaps: list[float], waiting: int, seconds: float) -> None:
    assert best_wait(gaps, waiting, LINE.base) == seconds


def test_nothing_is_learned_from_too_little() -> None:
    delay = QueueDelay()
    for number in range(LEAST_GAPS + 1):
        assert delay.seconds(1, LINE, number) is None
        delay.came(number)
    assert delay.seconds(1, None, number) is None
    assert delay.seconds(1, LINE, number) == 0.0


def latencies(arrivals: Sequence[float], delay: float, line: Line | None) -> list[float]:
    """Seconds from each arrival to its answer; with a line, the delay is learned."""
    queue = Queue(Batching(Mode.DYNAMIC, 32, (), delay))
    numbers = itertools.count()
    events: list[tuple[float, int, list[Job] | None]] = [(at, next(numbers), None) for at in arrivals]
    jobs = iter([Job(REQUEST, at) for at in arrivals])
    left, busy, found = list(arrivals), False, []
    while events:
        now, _, ended = heapq.heappop(events)
        if ended is not None:
            busy = False
            found += [now - job.arrived for job in ended]
        elif left and left[0] == now:
            left.pop(0)
            queue.put(next(jobs))
        if busy:
            continue
        taken = queue.take(now, line)
        due = queue.due(now, line)
        if taken:
            busy = True
            ends = now + LINE.seconds(len(taken), len(taken), Batching(Mode.DYNAMIC, 32, (), 0))
            heapq.heappush(events, (ends, next(numbers), taken))
        elif due is not None:
            heapq.heappush(events, (max(due, now + 1e-7), next(numbers), None))
    assert len(found) == len(arrivals)
    return sorted(found)


def alone(rate: float) -> Callable[[random.Random], list[float]]:
    """Requests that come independently, so many a second."""
    return lambda dice: list(itertools.accumulate(dice.expovariate(rate) for _ in range(1200)))


def bursts(size: int, pause: float) -> Callable[[random.Random], list[float]]:
    """So many requests within a few milliseconds, then a pause."""
    return lambda dice: list(
        itertools.accumulate(
            dice.expovariate(1 / pause) if number % size == 0 else dice.expovariate(1 / 0.0003)
            for number in range(1200)
        )
    )


@pytest.mark.parametrize(
    ("arrivals", "most"),
    [
        pytest.param(alone(5), 1.05, id="sparse"),
        pytest.param(alone(50), 1.05, id="half-busy"),
        pytest.param(alone(200), 1.05, id="busy"),
        pytest.param(alone(1000), 1.05, id="full"),
        pytest.param(bursts(8, 0.1), 0.85, id="bursts"),
        pytest.param(bursts(8, 0.02), 0.95, id="dense-bursts"),
        pytest.param(bursts(32, 0.2), 0.95, id="long-bursts"),
    ],
)
def test_a_learned_delay_is_about_as_good_as_the_better_of_none_and_all_and_better_in_bursts(
    arrivals: Callable[[random.Random], list[float]], most: float
) -> None:
    times = arrivals(random.Random(1))
    learned = latencies(times, DELAY, LINE)
    none, whole = latencies(times, 0.0, None), latencies(times, DELAY, None)
    assert fmean(learned) <= most * min(fmean(none), fmean(whole))
    p99 = [each[int(0.99 * len(each))] for each in (learned, none, whole)]
    assert p99[0] <= 1.15 * min(p99[1:])


def test_a_run_begins_in_time_for_whom_it_would_be_late_otherwise() -> None:
    queue = Queue(Batching(Mode.DYNAMIC, 32, (), 5.0))
    for number in range(LEAST_GAPS + 1):  # one each millisecond, so that it gains to wait for more
        queue.put(Job(REQUEST, number * 0.001))
        queue.remove_if(lambda job: True)
    now = (LEAST_GAPS + 1) * 0.001
    queue.put(Job(REQUEST, now, late_at=now + 0.0215))
    assert queue.take(now, LINE) == []
    due = queue.due(now, LINE)
    assert due == pytest.approx(now + 0.0215 - 2 * (LINE.base + LINE.per_row))
    assert len(queue.take(due or 0.0, LINE)) == 1
