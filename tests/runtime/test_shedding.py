"""What is refused because it would be late: rules of one queue, with time as a number."""

import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailbound_runtime.batch import Batching, Mode
from tailbound_runtime.queue import Job, Queue
from tailbound_runtime.shedding import Bound, Shedding, WouldBeLateError
from tailbound_runtime.signature import InferRequest
from tailbound_runtime.speed import LEAST_RUNS, RUNS, Line, Speed

NONE = Batching(Mode.NONE, 1, (), 0)
DYNAMIC = Batching(Mode.DYNAMIC, 4, (), 0)
STATIC = Batching(Mode.STATIC, 4, (), 0)
PICKY = Batching(Mode.DYNAMIC, 4, (2,), 0.5)
LINE = Line(base=1.0, per_row=0.25)


def request(rows: int = 1, width: int = 1) -> InferRequest:
    return InferRequest(None, {"x": np.zeros((rows, width), np.float32)}, ("y",), rows)


def speed_of(*runs: tuple[int, float]) -> Speed:
    speed = Speed()
    for rows, seconds in runs:
        speed.ran(rows, seconds)
    return speed


@pytest.mark.parametrize(
    ("runs", "line"),
    [
        pytest.param([(1, 1.25)] * (LEAST_RUNS - 1), None, id="too-few-runs"),
        pytest.param([(1, 1.25)] * LEAST_RUNS, Line(1.25, 0), id="one-size"),
        pytest.param([(n, 1 + n / 4) for n in (1, 2, 3, 4)], LINE, id="many-sizes"),
        pytest.param([(1, 1.25)] * RUNS + [(4, 2.0)], LINE, id="one-large-run-after-a-calm"),
        pytest.param([(1, 90.0)] + [(1, 1.25)] * LEAST_RUNS, Line(1.25, 0), id="one-slow-run"),
        pytest.param(
            [(1, 2.0), (1, 2.0), (4, 1.0), (4, 1.0)], Line(1.5, 0), id="never-shorter-with-more-rows"
        ),
        pytest.param([(1, 1.0), (1, 1.0), (2, 9.0), (2, 9.0)], Line(0, 8), id="never-less-than-nothing"),
        pytest.param(
            [(1, 9.0)] * RUNS + [(1, 1.0)] * RUNS, Line(1, 0), id="what-is-long-past-does-not-count"
        ),
    ],
)
def test_the_speed_is_a_line_through_the_last_runs(
    runs: Sequence[tuple[int, float]], line: Line | None
) -> None:
    assert speed_of(*runs).line() == line


@pytest.mark.parametrize(
    ("batching", "requests", "rows", "seconds"),
    [
        pytest.param(NONE, 3, 3, 3.75, id="none-runs-one-by-one"),
        pytest.param(DYNAMIC, 3, 3, 1.75, id="dynamic-shares-a-run"),
        pytest.param(DYNAMIC, 5, 5, 3.25, id="dynamic-needs-a-second-run"),
        pytest.param(DYNAMIC, 1, 0, 1.0, id="no-rows-are-a-run-too"),
        pytest.param(STATIC, 1, 1, 2.0, id="static-is-filled-up"),
    ],
)
def test_the_time_of_what_waits(batching: Batching, requests: int, rows: int, seconds: float) -> None:
    assert LINE.seconds(requests, rows, batching) == seconds


class Numbered(Job):
    """A job that knows the number of its request."""

    def __init__(self, number: int, request: InferRequest, arrived: float, late_at: float) -> None:
        super().__init__(request, arrived, late_at)
        self.number = number


@dataclass
class Model:
    """A server whose runs take exactly as long as `LINE` says, or `slower` times that; time is a number."""

    batching: Batching
    sheds: bool = True
    known: bool = True
    slower: float = 1.0
    order: Iterator[int] = field(default_factory=itertools.count)
    events: list[tuple[float, int, tuple[list[Job], float] | None]] = field(default_factory=list)
    answered: dict[int, float] = field(default_factory=dict)
    refused: dict[int, float] = field(default_factory=dict)
    exempt: set[int] = field(default_factory=set)
    running: bool = False

    def __post_init__(self) -> None:
        self.queue = Queue(self.batching)
        self.rules = Shedding(self.queue, self.batching)
        if self.known:
            for rows in range(1, 5):
                self.rules.ran(rows, self.seconds(rows))

    def seconds(self, rows: int) -> float:
        padded = rows + self.batching.padding(rows)
        return self.slower * (LINE.base + LINE.per_row * padded)

    def serve(self, asked: Sequence[tuple[float, InferRequest, float | None]]) -> None:
        """Requests by arrival, each with its bound; what became of each is known by its number after it."""
        for number, (at, each, seconds) in enumerate(asked):
            self._until(at)
            bound = None if seconds is None else Bound(at, seconds)
            try:
                late_at = self.rules.late_at(each, bound, at)
            except WouldBeLateError:
                self.refused[number] = at
                continue
            if late_at == inf:
                self.exempt.add(number)
            self.queue.put(Numbered(number, each, at, late_at))
            self._next(at)
        self._until(inf)

    def _until(self, end: float) -> None:
        while self.events and self.events[0][0] <= end:
            now, _, ended = heapq.heappop(self.events)
            if ended is not None:
                jobs, seconds = ended
                self.answered |= {cast(Numbered, job).number: now for job in jobs}
                self.rules.ran(sum(job.request.rows for job in jobs), seconds)
                self.rules.ends()
                self.running = False
            self._next(now)

    def _next(self, now: float) -> None:
        if self.running:
            return
        self.refused |= {cast(Numbered, job).number: now for job in self.rules.give_up(now)}
        jobs = self.queue.take(now, self.rules.line())
        if jobs:
            rows = sum(job.request.rows for job in jobs)
            self.running = True
            self.rules.begins(rows, now)
            seconds = self.seconds(rows)
            heapq.heappush(self.events, (now + seconds, next(self.order), (jobs, seconds)))
        elif (due := self.queue.due(now, self.rules.line())) is not None:
            # Rounding: a job may have waited for a hair less than the delay then.
            heapq.heappush(self.events, (max(due, now + 1e-7), next(self.order), None))


GAPS = st.floats(0, 2)
BOUNDS = st.sampled_from([2.0, 3.0, 6.0])


@given(
    st.sampled_from([NONE, DYNAMIC, STATIC]),
    st.lists(GAPS, max_size=40),
    BOUNDS,
    st.sampled_from([1.0, 1.0, 1.5, 3.0]),
)
def test_whoever_is_let_in_is_answered_in_time_as_long_as_the_speed_is_as_expected(
    batching: Batching, gaps: list[float], bound: float, slower: float
) -> None:
    """Requests are answered in the order in which they came, and each is answered or refused, once."""
    model = Model(batching, slower=slower)
    times = list(itertools.accumulate(gaps))
    model.serve([(at, request(), bound) for at in times])
    assert sorted([*model.answered, *model.refused]) == list(range(len(times)))
    assert model.queue.length == 0
    if slower * LINE.seconds(1, 1, batching) <= bound:
        late = [number for number, at in model.answered.items() if at > times[number] + bound + 1e-6]
        assert not late, model.answered
    else:
        assert not model.refused, "a bound that no run can keep refuses nothing"
    assert [at for _, at in sorted(model.answered.items())] == sorted(model.answered.values())


@given(
    st.sampled_from([NONE, DYNAMIC, STATIC, PICKY, Batching(Mode.STATIC, 4, (), 0.5)]),
    st.lists(st.tuples(GAPS, st.integers(1, 4), st.integers(1, 2)), max_size=40),
    BOUNDS,
    st.sampled_from([1.0, 2.0]),
)
def test_whoever_is_let_in_is_late_by_less_than_a_full_run_whatever_shares_it(
    batching: Batching, kinds: list[tuple[float, int, int]], bound: float, slower: float
) -> None:
    """However rows and shapes get into each other's way, and however slow the model has become."""
    model = Model(batching)
    model.slower = slower
    times = list(itertools.accumulate(gap for gap, _, _ in kinds))
    model.serve(
        [(at, request(rows, width), bound) for at, (_, rows, width) in zip(times, kinds, strict=True)]
    )
    assert sorted([*model.answered, *model.refused]) == list(range(len(times)))
    for number, at in model.answered.items():
        alone = model.seconds(kinds[number][1])
        if alone <= bound and number not in model.exempt:
            assert at <= times[number] + bound + model.seconds(4) + 1e-6


@given(st.sampled_from([NONE, DYNAMIC, STATIC]), st.lists(st.tuples(GAPS, st.integers(1, 4)), max_size=40))
def test_without_a_bound_nothing_is_refused_and_an_idle_server_refuses_nothing_ever(
    batching: Batching, kinds: list[tuple[float, int]]
) -> None:
    times = list(itertools.accumulate(gap for gap, _ in kinds))
    unbound, apart = Model(batching), Model(batching)
    unbound.serve([(at, request(rows), None) for at, (_, rows) in zip(times, kinds, strict=True)])
    apart.serve([(100.0 * number, request(rows), 0.001) for number, (_, rows) in enumerate(kinds)])
    assert not unbound.refused
    assert not apart.refused


def test_a_model_that_has_become_slower_is_known_again_after_as_many_runs_as_are_remembered() -> None:
    model = Model(DYNAMIC)
    model.slower = 2.0
    requests, learned = 1200, 4 * RUNS * model.seconds(4)
    model.serve([(number / 4, request(), 6.0) for number in range(requests)])
    late = [number for number, at in model.answered.items() if at > number / 4 + 6.0]
    assert late
    assert max(late) < learned
    in_full_batches = requests / 4
    assert len(model.answered) > 0.6 * in_full_batches, "a bound of one and a half full runs costs some of it"


def test_what_has_waited_too_long_is_given_up_before_a_run_takes_it() -> None:
    model = Model(NONE)
    model.slower = 5.0
    model.serve([(0.0, request(), 3.0), (0.1, request(), 3.0), (0.2, request(), 9.0)])
    assert model.answered.keys() == {0, 2}
    assert model.refused == {1: 6.25}


def test_nobody_joins_a_run_that_would_make_another_one_in_it_late() -> None:
    """The second would still be in time itself, but the first would not."""
    running, first, second = (0.0, request(4), 9.0), (0.1, request(), 3.3), (0.2, request(3), 9.0)
    model = Model(DYNAMIC)
    model.serve([running, first, second])
    assert (set(model.refused), model.answered[1]) == ({2}, 3.25)


def test_requests_that_cannot_share_a_run_count_as_runs_of_their_own() -> None:
    asked = [(0.0, request(), 9.0), (0.1, request(width=2), 9.0), (0.2, request(width=3), 3.0)]
    model = Model(DYNAMIC)
    model.serve(asked)
    assert model.refused.keys() == {2}


def test_nothing_is_refused_before_the_speed_is_known() -> None:
    model = Model(NONE, known=False)
    model.serve([(0.0, request(), 1.5)] * (LEAST_RUNS - 1))
    assert not model.refused
