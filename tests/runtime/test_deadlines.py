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


def job(late_at: float = inf) -> Job:
    asked = InferRequest(None, {"x": np.zeros((1, 1), np.float32)}, ("y",), 1)
    return Job(asked, 0.0, asyncio.get_running_loop().create_future(), late_at)


async def test_each_is_failed_when_it_is_due_and_not_before_whatever_comes_after_it() -> None:
    """The timer is for the first one; others that come all the time do not move it."""
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(loop, lambda job: False)
    started = loop.time()
    far, near, answered = job(), job(), job()
    deadlines.add(far, started + 100)
    deadlines.add(near, started + SOON)
    deadlines.add(answered, started + SOON)
    answered.future.set_result([])
    deadlines.done(answered)
    others = []
    while not near.future.done():
        assert loop.time() < started + 10, "it was put off"
        others.append(job())
        deadlines.add(others[-1], loop.time() + LEAST_SECONDS / 10)
        await asyncio.sleep(LEAST_SECONDS / 5)
    assert loop.time() >= started + SOON
    assert isinstance(near.future.exception(), TimeoutError)
    await asyncio.wait([other.future for other in others])
    assert all(isinstance(other.future.exception(), TimeoutError) for other in others)
    assert not far.future.done()
    deadlines.close()


async def test_one_that_is_late_is_withdrawn_if_it_waits_and_else_has_until_its_deadline() -> None:
    loop = asyncio.get_running_loop()
    asked: list[Job] = []
    late_at = time.perf_counter() + LEAST_SECONDS
    running, waiting = job(late_at), job(late_at)

    def withdraw(late: Job) -> bool:
        asked.append(late)
        return late is waiting

    deadlines = Deadlines(loop, withdraw)
    for each in (running, waiting):
        deadlines.add(each, loop.time() + 3 * SOON)
    await asyncio.wait([waiting.future])
    assert isinstance(waiting.future.exception(), WouldBeLateError)
    assert not running.future.done()
    await asyncio.wait([running.future])
    assert isinstance(running.future.exception(), TimeoutError)
    assert asked == [running, waiting], "each is asked for once"
