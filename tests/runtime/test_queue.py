"""Waiting requests: who shares a run, who goes first, and who has left. Time is a number here."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tailbound_runtime.batch import Batching, Mode
from tailbound_runtime.queue import Job, Queue
from tailbound_runtime.signature import InferRequest

DYNAMIC = Batching(Mode.DYNAMIC, 4, (), 1.0)


def job(
    arrived: float,
    rows: int = 1,
    width: int = 1,
    outputs: tuple[str, ...] = ("y",),
    level: int = 1,
) -> Job:
    inputs = {"x": np.zeros((rows, width), np.float32)}
    return Job(InferRequest(None, inputs, outputs, rows), arrived, level=level)


def queue_of(*jobs: Job, batching: Batching = DYNAMIC) -> Queue:
    queue = Queue(batching)
    for each in jobs:
        queue.put(each)
    return queue


def test_only_requests_of_the_same_shapes_and_outputs_share_a_run() -> None:
    narrow, wide, other = job(0), job(0.1, width=2), job(0.2, outputs=("z",))
    second = job(0.3, rows=3)
    queue = queue_of(narrow, wide, other, second)
    assert queue.take(5) == [narrow, second]
    assert queue.take(5) == [wide]
    assert queue.take(5) == [other]
    assert (queue.take(5), queue.length) == ([], 0)


def test_a_full_group_does_not_wait_for_an_older_one_that_is_not_full() -> None:
    old, full = job(0), job(0.5, rows=4, width=2)
    queue = queue_of(old, full)
    assert queue.take(0.6) == [full]
    assert queue.take(0.6) == []
    assert queue.due(0.6) == 1.0
    assert queue.take(1.0) == [old]


def test_of_two_groups_that_may_go_the_one_that_waits_longest_goes() -> None:
    first, second = job(1, width=2), job(2)
    assert queue_of(second, first).take(10) == [first]


def test_who_has_left_takes_no_place() -> None:
    first, second, third = (job(at, rows=2) for at in (0, 1, 2))
    queue = queue_of(first, second, third)
    assert queue.remove(first)
    assert not queue.remove(first)
    assert queue.due(1.5) == 2.0
    assert queue.take(1.5) == [second, third]
    assert not queue.remove(second)


def test_without_batching_requests_go_one_by_one_as_they_came() -> None:
    jobs = [job(at, rows=at + 1, width=at % 2 + 1) for at in range(4)]
    queue = queue_of(*jobs, batching=Batching(Mode.NONE, 1, (), 0))
    assert [queue.take(9) for _ in jobs] == [[each] for each in jobs]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(1, 2)), max_size=12))
def test_a_level_goes_before_all_later_ones_and_each_in_the_order_of_arrival(
    kinds: list[tuple[int, int, int]],
) -> None:
    """Level, rows and width of each request."""
    jobs = [job(at, rows, width, level=level) for at, (level, rows, width) in enumerate(kinds)]
    queue = queue_of(*jobs, batching=Batching(Mode.DYNAMIC, 4, (), 0, levels=3))
    last = max(jobs, key=lambda each: (each.level, each.arrived), default=None)
    assert queue.last_behind(1) is (last if last is not None and last.level > 1 else None)
    waiting = list(jobs)
    while waiting:
        taken = queue.take(1000)
        first = min(waiting, key=lambda each: (each.level, each.arrived))
        assert taken[0].level == first.level
        fitting = [each for each in waiting if each.key == taken[0].key]
        assert taken == sorted(fitting, key=lambda each: (each.level, each.arrived))[: len(taken)]
        waiting = [each for each in waiting if each not in taken]
    assert queue.length == 0


def test_an_empty_queue_is_never_due() -> None:
    assert (Queue(DYNAMIC).due(5), Queue(DYNAMIC).take(5)) == (None, [])


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3), st.booleans()), max_size=20))
def test_each_job_is_taken_once_or_removed(kinds: list[tuple[int, int, bool]]) -> None:
    """Rows, width and whether the caller leaves, of each request."""
    jobs = [job(at, rows, width) for at, (rows, width, _) in enumerate(kinds)]
    for each in jobs[::2]:
        each.late_at = 10**6
    queue = queue_of(*jobs)
    left = [each for each, (_, _, leaves) in zip(jobs, kinds, strict=True) if leaves]
    assert all(queue.remove(each) for each in left)
    assert queue.bounded == len({*jobs[::2]} - {*left})
    served: list[Job] = []
    while batch := queue.take(1000):
        assert sum(each.request.rows for each in batch) <= 4
        assert len({each.key for each in batch}) == 1
        served += batch
    assert (queue.length, queue.bounded) == (0, 0)
    assert {id(each) for each in served} == {id(each) for each in jobs} - {id(each) for each in left}
    assert len(served) == len(jobs) - len(left)
