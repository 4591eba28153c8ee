"""The inference thread under concurrency, on a model of our own: every caller gets exactly its own result."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tailbound_runtime.batch import Batching, Mode
from tailbound_runtime.engine import Engine
from tailbound_runtime.errors import (
    MemoryShortError,
    ModelBrokenError,
    ModelFailedError,
    ModelInputError,
    TooLargeError,
)
from tailbound_runtime.metrics import Metrics
from tailbound_runtime.queue import QueueFullError
from tailbound_runtime.signature import InferRequest
from tailbound_runtime.tensors import Array
from tailbound_runtime.worker import InferenceThread

from tests.runtime.doubling import BROKEN, REFUSED, Doubling

NEVER = 600.0  # seconds; a limit that ends a hang


def unbroken(error: ModelBrokenError) -> None:
    """A model that fails on some tensors only is not given up."""
    raise AssertionError(error)


def thread_of(
    model: Doubling,
    batching: Batching,
    queue_limit: int = 1000,
    broken: Callable[[ModelBrokenError], None] = unbroken,
) -> InferenceThread:
    return InferenceThread(cast(Engine, model), batching, queue_limit, Metrics(), broken)


def request(values: Sequence[float], width: int = 1, outputs: tuple[str, ...] = ("y",)) -> InferRequest:
    x = np.repeat(np.array(values, np.float32).reshape(len(values), 1), width, axis=1)
    return InferRequest(None, {"x": x}, outputs, len(values))


@dataclass(frozen=True)
class Caller:
    """One request and how its caller behaves."""

    rows: int
    width: int
    outputs: tuple[str, ...]
    fault: float | None
    patience_seconds: float
    pause: bool

    async def call(self, thread: InferenceThread, number: int) -> None:
        """Check that what comes back is this caller's, and nothing else."""
        values = [float(100 * number + row) for row in range(self.rows)]
        if self.fault is not None and values:
            values[-1] = self.fault
        deadline = asyncio.get_running_loop().time() + self.patience_seconds
        asked = request(values, self.width, self.outputs)
        try:
            answer = await thread.run(asked, deadline)
        except TimeoutError:
            assert self.patience_seconds < NEVER
        except ModelInputError:
            assert self.fault is not None
        else:
            assert self.fault is None or not values
            factors = [2 if name == "y" else 1 for name in self.outputs]
            for array, factor in zip(answer, factors, strict=True):
                assert np.array_equal(array, factor * asked.inputs["x"])


CALLERS = st.builds(
    Caller,
    rows=st.integers(1, 4),
    width=st.integers(1, 2),
    outputs=st.sampled_from([("y",), ("y",), ("z", "y")]),
    fault=st.sampled_from([None, None, None, REFUSED, BROKEN]),
    patience_seconds=st.sampled_from([NEVER, NEVER, NEVER, 0.0, 0.002]),
    pause=st.booleans(),
)
BATCHINGS = st.sampled_from(
    [
        Batching(Mode.NONE, 1, (), 0),
        Batching(Mode.DYNAMIC, 4, (), 0),
        Batching(Mode.DYNAMIC, 16, (), 0.003),
        Batching(Mode.DYNAMIC, 8, (2, 4), 0.003),
        Batching(Mode.STATIC, 4, (), 0.003),
    ]
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    BATCHINGS, st.lists(CALLERS, min_size=1, max_size=30), st.sampled_from([0.0, 0.0005]), st.integers(1, 3)
)
def test_every_caller_gets_exactly_its_own_result(
    batching: Batching, callers: list[Caller], pause_seconds: float, lanes: int
) -> None:
    model = Doubling(pause_seconds, lanes=lanes)

    async def all_at_once() -> None:
        thread = thread_of(model, batching)
        calls = []
        for number, caller in enumerate(callers):
            calls.append(asyncio.create_task(caller.call(thread, number)))
            if caller.pause:
                await asyncio.sleep(0.001)
        await asyncio.gather(*calls)

    asyncio.run(all_at_once())
    if batching.mode is Mode.STATIC:
        assert set(model.sizes) <= {4}
    elif batching.mode is Mode.DYNAMIC:
        assert max(model.sizes, default=0) <= batching.max_size


def later(seconds: float = NEVER) -> float:
    """A deadline."""
    return asyncio.get_running_loop().time() + seconds


async def begins(model: Doubling) -> None:
    """Wait for the next run."""
    assert await asyncio.to_thread(model.begun.wait, NEVER)
    model.begun.clear()


async def gone(*tasks: "asyncio.Task[list[Array]]") -> None:
    """These callers leave."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def blocked(model: Doubling, thread: InferenceThread) -> "asyncio.Task[list[Array]]":
    """A request whose run has begun, and hangs."""
    model.free.clear()
    model.begun.clear()  # set by the runs before
    first = asyncio.create_task(thread.run(request([0]), later()))
    await begins(model)
    return first


async def waiting(thread: InferenceThread, *asked: InferRequest) -> "list[asyncio.Task[list[Array]]]":
    """These requests, in the queue."""
    tasks = [asyncio.create_task(thread.run(each, later())) for each in asked]
    await asyncio.sleep(0)
    return tasks


async def test_what_waits_while_the_model_runs_shares_the_next_run() -> None:
    model = Doubling()
    thread = thread_of(model, Batching(Mode.DYNAMIC, 8, (), 0))
    first = await blocked(model, thread)
    others = await waiting(thread, *(request([number]) for number in range(5)))
    model.free.set()
    assert [array.tolist() for (array,) in await asyncio.gather(first, *others)] == [
        [[0.0]],
        *([[2.0 * number]] for number in range(5)),
    ]
    assert model.sizes == [1, 5]


async def test_a_bad_request_costs_the_others_a_run_of_their_own_and_nothing_else() -> None:
    model = Doubling()
    thread = thread_of(model, Batching(Mode.DYNAMIC, 8, (), 0))
    first = await blocked(model, thread)
    good, refused, broken, also_good = await waiting(
        thread, request([1]), request([REFUSED]), request([BROKEN]), request([2])
    )
    model.free.set()
    assert [(await task)[0].tolist() for task in (first, good, also_good)] == [[[0]], [[2]], [[4]]]
    for task in (refused, broken):
        with pytest.raises(ModelInputError):
            await task
    assert model.sizes == [1, 4, 2, 1, 1, 2, 1, 1]


async def test_one_bad_request_of_sixteen_leaves_the_others_in_shared_runs_and_is_known_again() -> None:
    model = Doubling()
    thread = thread_of(model, Batching(Mode.DYNAMIC, 16, (), 0))
    for turn in range(2):
        first = await blocked(model, thread)
        good = await waiting(thread, *(request([number]) for number in range(15)))
        bad = await waiting(thread, request([REFUSED]))
        model.free.set()
        answers = await asyncio.gather(first, *good)
        assert [array.tolist() for (array,) in answers[1:]] == [[[2.0 * number]] for number in range(15)]
        with pytest.raises(ModelInputError):
            await bad[0]
        assert model.sizes == ([1, 16, 8, 8, 4, 4, 2, 2, 1, 1] if turn == 0 else [1, 15])
        model.sizes.clear()


async def test_a_model_that_never_ran_on_anything_is_not_cleared_of_its_failures() -> None:
    model = Doubling(proven=False)
    thread = thread_of(model, Batching(Mode.NONE, 1, (), 0))
    with pytest.raises(ModelFailedError):
        await thread.run(request([BROKEN]), later())


async def test_a_request_that_expires_in_the_queue_never_runs() -> None:
    model = Doubling()
    thread = thread_of(model, Batching(Mode.DYNAMIC, 8, (), 0))
    first = await blocked(model, thread)
    with pytest.raises(TimeoutError):
        await thread.run(request([7, 7]), later(0.001))
    (other,) = await waiting(thread, request([1]))
    model.free.set()
    await asyncio.gather(first, other)
    assert model.sizes == [1, 1]


async def test_a_caller_that_leaves_while_others_share_its_run_leaves_them_their_result() -> None:
    model = Doubling()
    thread = thread_of(model, Batching(Mode.DYNAMIC, 2, (), NEVER))
    model.free.clear()
    patient, impatient = await waiting(thread, request([1]), request([2]))
    await begins(model)
    await gone(impatient)
    model.free.set()
    assert (await patient)[0].tolist() == [[2]]
    assert model.sizes == [2]


async def test_a_run_is_stopped_when_the_last_of_its_callers_has_gone() -> None:
    model = Doubling()
    thread = thread_of(model, Batching(Mode.DYNAMIC, 2, (), NEVER))
    model.free.clear()
    callers = await waiting(thread, request([1]), request([2]))
    await begins(model)
    await gone(*callers)
    last = await waiting(thread, request([3]), request([4]))
    await begins(model)  # though nobody has set `free`
    model.free.set()
    assert [array.tolist() for (array,) in await asyncio.gather(*last)] == [[[6]], [[8]]]


async def test_a_full_queue_refuses_at_once_and_has_room_again_when_one_leaves() -> None:
    model = Doubling()
    thread = thread_of(model, Batching(Mode.DYNAMIC, 8, (), 0), queue_limit=2)
    first = await blocked(model, thread)
    queued = await waiting(thread, request([1]), request([2]))
    with pytest.raises(QueueFullError) as refused:
        await thread.run(request([3]), later())
    assert refused.value.waiting == 2
    await gone(queued[0])
    queued += await waiting(thread, request([4]))
    model.free.set()
    await asyncio.gather(first, *queued[1:])


async def test_a_full_queue_gives_the_place_of_a_later_level_to_an_earlier_one() -> None:
    model = Doubling()
    thread = thread_of(model, Batching(Mode.NONE, 1, (), 0, levels=2), queue_limit=2)
    first = await blocked(model, thread)
    early, late = await waiting(thread, request([1]), request([2]))
    (urgent,) = await waiting(thread, replace(request([3]), priority=1))
    with pytest.raises(QueueFullError):
        await late
    (other,) = await waiting(thread, replace(request([4]), priority=1))
    with pytest.raises(QueueFullError):
        await early
    with pytest.raises(QueueFullError):
        await thread.run(replace(request([5]), priority=1), later())
    with pytest.raises(QueueFullError):
        thread.check_room()
    model.free.set()
    answers = await asyncio.gather(first, urgent, other)
    assert [array.tolist() for (array,) in answers] == [[[0]], [[6]], [[8]]]


async def test_a_static_batch_waits_for_its_rows_and_is_filled_up_when_it_has_waited() -> None:
    model = Doubling()
    thread = thread_of(model, Batching(Mode.STATIC, 3, (), NEVER))
    answers = await asyncio.gather(*await waiting(thread, *(request([number]) for number in range(3))))
    assert [array.tolist() for (array,) in answers] == [[[0]], [[2]], [[4]]]
    impatient = thread_of(model, Batching(Mode.STATIC, 3, (), 0))
    assert (await impatient.run(request([5]), later()))[0].tolist() == [[10]]
    assert model.sizes == [3, 3]


async def test_a_model_that_fails_on_everything_is_told_and_is_asked_now_and_then_only() -> None:
    told: list[ModelBrokenError] = []
    model = Doubling()
    thread = thread_of(model, Batching(Mode.NONE, 1, (), 0), broken=told.append)
    assert (await thread.run(request([1]), later()))[0].tolist() == [[2]]
    model.dead = True
    for _ in range(3):
        with pytest.raises(ModelFailedError):
            await thread.run(request([1]), later())
    model.dead = False
    await thread.run(request([1]), later())
    assert (len(told), model.checks) == (1, 1)


async def test_neither_what_the_model_refuses_nor_a_run_that_is_stopped_casts_a_doubt_on_it() -> None:
    model = Doubling()
    thread = thread_of(model, Batching(Mode.NONE, 1, (), 0))
    with pytest.raises(ModelInputError):
        await thread.run(request([REFUSED]), later())
    model.free.clear()
    with pytest.raises(TimeoutError):
        await thread.run(request([1]), later(0.05))
    model.free.set()
    await thread.run(request([1]), later())
    assert model.checks == 0


async def test_a_second_lane_begins_with_full_batches_only_while_the_first_one_runs() -> None:
    model = Doubling(lanes=2)
    thread = thread_of(model, Batching(Mode.DYNAMIC, 4, (), 0))
    first = await blocked(model, thread)
    early = await waiting(thread, *(request([number]) for number in (1, 2, 3)))
    await asyncio.sleep(0.02)
    assert model.sizes == [1]
    early += await waiting(thread, request([4]), request([5]))
    await begins(model)
    assert (model.sizes, model.most_at_once) == ([1, 4], 2)
    model.free.set()
    answers = await asyncio.gather(first, *early)
    assert [array.tolist() for (array,) in answers] == [[[2.0 * number]] for number in range(6)]


async def test_a_second_lane_begins_with_what_waits_when_the_first_run_is_about_to_end() -> None:
    model = Doubling(lanes=2)
    model.warm_seconds = 0.05  # of a run of each size
    thread = thread_of(model, Batching(Mode.DYNAMIC, 4, (), 0, fills=(2, 4)))
    await thread.warm()
    first = await blocked(model, thread)
    begun = time.perf_counter()
    others = await waiting(thread, *(request([number]) for number in (1, 2, 3)))
    await begins(model)
    assert time.perf_counter() - begun > 0.02
    assert (model.sizes, model.most_at_once) == ([2, 4], 2)
    model.free.set()
    await asyncio.gather(first, *others)


async def test_only_the_run_whose_callers_have_gone_is_stopped() -> None:
    model = Doubling(lanes=2)
    thread = thread_of(model, Batching(Mode.NONE, 1, (), 0))
    first = await blocked(model, thread)
    (second,) = await waiting(thread, request([1]))
    await begins(model)
    await gone(first)
    (third,) = await waiting(thread, request([2]))
    await begins(model)  # in the lane of the first
    assert not second.done()
    model.free.set()
    assert [array.tolist() for (array,) in (await second, await third)] == [[[2]], [[4]]]


async def test_a_batch_without_memory_for_it_is_halved_and_a_request_without_is_too_large() -> None:
    model = Doubling(most_rows=2)
    thread = thread_of(model, Batching(Mode.DYNAMIC, 8, (), 0))
    first = await blocked(model, thread)
    small = await waiting(thread, *(request([number]) for number in range(4)))
    (large,) = await waiting(thread, request([1, 2, 3]))
    model.free.set()
    answers = await asyncio.gather(first, *small)
    assert [array.tolist() for (array,) in answers[1:]] == [[[2.0 * number]] for number in range(4)]
    with pytest.raises(TooLargeError):
        await large
    model.most_rows = 3
    again = await thread.run(request([1, 2, 3]), later())
    assert again[0].tolist() == [[2], [4], [6]], "it is not remembered"


async def test_a_device_without_any_memory_left_is_nobodys_fault_and_serves_again_once_it_has_some() -> None:
    model = Doubling(most_rows=0)
    thread = thread_of(model, Batching(Mode.DYNAMIC, 8, (), 0))
    with pytest.raises(MemoryShortError):
        await thread.run(request([1]), later())
    model.most_rows = inf
    assert (await thread.run(request([1]), later()))[0].tolist() == [[2]]
