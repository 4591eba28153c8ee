"""When requests are given up that wait for an answer."""

import asyncio
import time
from math import inf

import numpy as np
from tailbound_runtime.deadlines import LEAST_SECONDS, Deadlines
from tailbound_runtime.queue import Job
from tailbound_runtime.shedding import WouldBeLateError
from tailbound_runtime.signature import InferRequest

SOON = 2 * LEAST_SECONDS


class Asked(Job):
    """Says when it is over."""

    def __init__(self, late_at: float = inf) -> None:
        asked = InferRequest(None, {"x": np.zeros((1, 1), np.float32)}, ("y",), 1)
        self.over = asyncio.Event()
        super().__init__(asked, 0.0, late_at, then=lambda _: self.over.set())


async def test_each_is_failed_when_it_is_due_and_not_before_whatever_comes_after_it() -> None:
    """The timer is for the first one; others that come all the time do not move it."""
    deadlines = Deadlines(asyncio.get_running_loop(), lambda job: False)
    started = time.perf_counter()
    far, near, answered = Asked(), Asked(), Asked()
    deadlines.add(far, started + 100)
    deadlines.add(near, started + SOON)
    deadlines.add(answered, started + SOON)
    answered.end([])
    deadlines.done(answered)
    others = []
    while not near.is_over:
        assert time.perf_counter() < started + 10, "it was put off"
        others.append(Asked())
        deadlines.add(others[-1], time.perf_counter() + LEAST_SECONDS / 10)
        await asyncio.sleep(LEAST_SECONDS / 5)
    assert time.perf_counter() >= started + SOON
    assert isinstance(near.error, TimeoutError)
    for other in others:
        await other.over.wait()
        assert isinstance(other.error, TimeoutError)
    assert not far.is_over
    deadlines.close()


async def test_one_that_is_late_is_withdrawn_if_it_waits_and_else_has_until_its_deadline() -> None:
    asked: list[Job] = []
    late_at = time.perf_counter() + LEAST_SECONDS
    running, waiting = Asked(late_at), Asked(late_at)

    def withdraw(late: Job) -> bool:
        asked.append(late)
        return late is waiting

    deadlines = Deadlines(asyncio.get_running_loop(), withdraw)
    for each in (running, waiting):
        deadlines.add(each, time.perf_counter() + 3 * SOON)
    await waiting.over.wait()
    assert isinstance(waiting.error, WouldBeLateError)
    assert not running.is_over
    await running.over.wait()
    assert isinstance(running.error, TimeoutError)
    assert asked == [running, waiting], "each is asked for once"


async def test_a_caller_may_give_up_another_that_is_due_as_well_and_ask_for_one_more() -> None:
    deadlines = Deadlines(asyncio.get_running_loop(), lambda job: False)
    soon = time.perf_counter() + LEAST_SECONDS
    given_up, more = Asked(soon), Asked()

    def told(_: Job) -> None:
        given_up.leave()
        deadlines.done(given_up)
        deadlines.add(more, time.perf_counter())

    first = Job(more.request, 0.0, then=told)
    deadlines.add(first, soon)
    deadlines.add(given_up, inf)
    await more.over.wait()
    assert (isinstance(first.error, TimeoutError), isinstance(more.error, TimeoutError)) == (True, True)
    assert given_up.error is None
    assert not deadlines._due, "a job that is over would stay there for ever"
