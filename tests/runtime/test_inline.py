"""Which runs happen on the event loop, and that a long one there is stopped and done again elsewhere."""

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import numpy.typing as npt
import pytest
from tailbound_runtime.batch import UNBATCHED, Batching, Mode
from tailbound_runtime.engine import UNKNOWN_SECONDS, Engine, Run
from tailbound_runtime.errors import ModelBrokenError, ModelFailedError, ModelInputError
from tailbound_runtime.inline import MOST_BYTES, Inline
from tailbound_runtime.metrics import Metrics
from tailbound_runtime.signature import InferRequest
from tailbound_runtime.tensors import Array
from tailbound_runtime.worker import InferenceThread

SLOW, BAD = -1.0, -2.0
RUNS = 60  # enough to know that they are short


def request(value: float, columns: int = 1) -> InferRequest:
    return InferRequest(None, {"x": np.full((1, columns), value, np.float32)}, ("y",), 1)


@pytest.mark.parametrize(
    ("batching", "inlines", "columns", "seconds", "allowed"),
    [
        pytest.param(UNBATCHED, True, 1, 1e-5, True, id="short"),
        pytest.param(UNBATCHED, True, 1, 1e-3, False, id="long"),
        pytest.param(UNBATCHED, True, MOST_BYTES, 1e-5, False, id="large"),
        pytest.param(Batching(Mode.DYNAMIC, 8, (), 0), True, 1, 1e-5, False, id="shared"),
        pytest.param(UNBATCHED, False, 1, 1e-5, False, id="cannot-be-stopped"),
    ],
)
def test_a_run_is_on_the_loop_if_it_is_short_small_and_not_shared(
    batching: Batching, inlines: bool, columns: int, seconds: float, allowed: bool
) -> None:
    inline = Inline(batching, inlines, False, UNKNOWN_SECONDS)
    assert not inline.allows(request(1, columns), time.perf_counter())
    for _ in range(RUNS):
        inline.ran(seconds)
    inline.ran(1.0)  # one that was slow by accident
    assert inline.allows(request(1, columns), time.perf_counter()) is allowed


@dataclass
class Model:
    """Doubles; hangs for ever at SLOW where it is not stopped, and refuses BAD. threads: where it ran."""

    on_device = False
    inlines = True
    warm_seconds = UNKNOWN_SECONDS
    lanes = 1
    threads: list[str] = field(default_factory=list)

    def buffer(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        return None

    def run(self, outputs: Sequence[str], inputs: Mapping[str, Array], run: Run) -> list[Array]:
        value = float(inputs["x"][0, 0])
        self.threads.append(threading.current_thread().name)
        if value == BAD:
            raise ModelInputError("refused")
        while value == SLOW:
            if run.stopped:
                raise ModelFailedError("stopped")
        return [2 * inputs["x"]]

    def memory(self) -> None:
        return None

    def check(self) -> bool:
        return True


def unbroken(error: ModelBrokenError) -> None:
    raise AssertionError(error)


async def test_a_long_run_holds_the_loop_for_a_moment_only_and_the_next_ones_are_elsewhere() -> None:
    model = Model()
    thread = InferenceThread(cast(Engine, model), UNBATCHED, 10, Metrics(), unbroken)
    loop = asyncio.get_running_loop()

    async def ask(value: float, seconds: float = 60) -> float:
        (array,) = await thread.run(request(value), loop.time() + seconds)
        return float(array[0, 0])

    for _ in range(RUNS):
        thread._inline.ran(1e-5)
    assert [await ask(value) for value in (1, 2)] == [2, 4]
    here = threading.current_thread().name
    assert model.threads == [here, here]
    with pytest.raises(ModelInputError):
        await ask(BAD)
    assert model.threads[2:] == [here, "inference"]
    for _ in range(20):  # on a busy machine it may look like one that others hold up
        model.threads.clear()
        with pytest.raises(TimeoutError):
            await ask(SLOW, 0.5)
        assert await ask(3) == 6
        assert model.threads[:2] == [here, "inference"]
        if model.threads[2:] == ["inference"]:
            break
    else:
        raise AssertionError("the loop never rests from runs")
