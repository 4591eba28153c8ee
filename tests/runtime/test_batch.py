"""What one run takes, and how tensors become one and come apart, without a model, a thread or a clock."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailbound_runtime.batch import Batching, Mode, Staging, join, rows_of, split, to_take
from tailbound_runtime.batchable import check_shapes
from tailbound_runtime.engine import TensorSpec
from tailbound_runtime.errors import ApiError, ModelFailedError, ModelLoadError
from tailbound_runtime.gather import LEAST_BYTES, gathered
from tailbound_runtime.tensors import BY_ONNX_TYPE, Array

FP32 = BY_ONNX_TYPE["tensor(float)"]
NONE = Batching(Mode.NONE, 1, (), 0)


def dynamic(max_size: int = 8, preferred: tuple[int, ...] = (), delay: float = 0) -> Batching:
    return Batching(Mode.DYNAMIC, max_size, preferred, delay)


def static(max_size: int = 8, delay: float = 0) -> Batching:
    return Batching(Mode.STATIC, max_size, (), delay)


def specs(**shapes: tuple[int, ...]) -> Mapping[str, TensorSpec]:
    return {name: TensorSpec(name, FP32, shape) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("batching", "waiting", "waited", "taken"),
    [
        pytest.param(NONE, [1, 1, 1], 0, 1, id="none: the oldest"),
        pytest.param(NONE, [100], 0, 1, id="none: however large"),
        pytest.param(dynamic(), [1, 1, 1], 0, 3, id="no delay: all"),
        pytest.param(dynamic(), [0, 0], 0, 2, id="no delay: empty ones too"),
        pytest.param(dynamic(), [3, 3, 3], 0, 2, id="no delay: as many as fit"),
        pytest.param(dynamic(), [8, 1], 0, 1, id="no delay: one may be full"),
        pytest.param(dynamic(delay=1), [1, 1], 0.5, 0, id="delay not over: none"),
        pytest.param(dynamic(delay=1), [1, 1], 1.0, 2, id="delay over: all"),
        pytest.param(dynamic(delay=1), [4, 4, 1], 0, 2, id="delay not over, but full"),
        pytest.param(dynamic(delay=1), [4, 3, 4], 0, 2, id="delay not over, but the next does not fit"),
        pytest.param(dynamic(preferred=(2, 4), delay=1), [1] * 3, 0, 2, id="preferred at once"),
        pytest.param(dynamic(preferred=(2, 4), delay=1), [1] * 7, 0, 4, id="the largest preferred"),
        pytest.param(dynamic(preferred=(2, 4), delay=1), [1] * 9, 0, 8, id="full is preferred"),
        pytest.param(dynamic(preferred=(2,)), [2, 7], 0, 1, id="preferred before what does not fit"),
        pytest.param(dynamic(preferred=(4,), delay=1), [3, 3], 0, 0, id="preferred not met exactly"),
        pytest.param(dynamic(preferred=(4,), delay=1), [3, 3], 2, 2, id="preferred not met in time"),
        pytest.param(static(delay=1), [1] * 7, 0, 0, id="static waits"),
        pytest.param(static(delay=1), [1] * 8, 0, 8, id="static is full"),
        pytest.param(static(delay=1), [1] * 7, 1, 7, id="static runs after the delay"),
    ],
)
def test_the_next_run_takes(batching: Batching, waiting: list[int], waited: float, taken: int) -> None:
    assert to_take(waiting, waited, batching) == taken


@given(
    st.lists(st.integers(0, 8), min_size=1, max_size=20),
    st.sets(st.integers(1, 8)),
    st.floats(0, 2),
    st.floats(0, 1),
)
def test_a_run_is_never_too_large_and_never_empty_once_the_delay_is_over(
    waiting: list[int], preferred: set[int], waited: float, delay: float
) -> None:
    taken = to_take(waiting, waited, dynamic(8, tuple(sorted(preferred)), delay))
    assert sum(waiting[:taken]) <= 8
    assert taken > 0 or waited < delay


@pytest.mark.parametrize(
    ("batching", "sizes"),
    [
        (NONE, (1,)),
        (dynamic(8), (1, 8)),
        (dynamic(8, (2, 4, 8)), (1, 2, 4, 8)),
        (dynamic(1), (1,)),
        (static(8), (8,)),
    ],
)
def test_the_model_is_warmed_up_with_the_sizes_that_count(batching: Batching, sizes: tuple[int, ...]) -> None:
    assert batching.sizes() == sizes


@pytest.mark.parametrize(
    ("batching", "shapes", "rows"),
    [
        (NONE, {"a": (3, 4)}, 3),
        (dynamic(), {"a": (3, 4), "b": (3,)}, 3),
        (dynamic(), {"a": (0, 4)}, 0),
        (static(), {"a": (8,)}, 8),
    ],
)
def test_rows_of_a_request(batching: Batching, shapes: dict[str, tuple[int, ...]], rows: int) -> None:
    inputs = {name: np.zeros(shape) for name, shape in shapes.items()}
    free = specs(**{name: (-1, *shape[1:]) for name, shape in shapes.items()})
    assert rows_of(inputs, free, batching) == rows


@pytest.mark.parametrize("spec", [{"a": (3, 4)}, {"a": ()}, {}])
def test_without_batching_a_request_of_a_fixed_size_is_one_row(spec: dict[str, tuple[int, ...]]) -> None:
    inputs = {name: np.zeros(shape) for name, shape in spec.items()}
    assert rows_of(inputs, specs(**spec), NONE) == 1


@pytest.mark.parametrize(
    ("batching", "shapes", "said"),
    [
        (dynamic(), {"a": (2, 1), "b": (3, 1)}, "input 'b' has 3 rows, but input 'a' has 2"),
        (dynamic(), {"a": (9, 1)}, "the request has 9 rows, but this service takes at most 8 at once"),
        (static(), {"a": (0, 1)}, "the request has no rows"),
    ],
)
def test_what_fits_into_no_batch_is_the_clients_fault(
    batching: Batching, shapes: dict[str, tuple[int, ...]], said: str
) -> None:
    inputs = {name: np.zeros(shape) for name, shape in shapes.items()}
    with pytest.raises(ApiError, match=said) as refused:
        rows_of(inputs, specs(**dict.fromkeys(shapes, (-1, 1))), batching)
    assert refused.value.status == 400


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.integers(0, 4))
def test_what_was_joined_comes_apart_as_it_was(rows: list[int], padding: int) -> None:
    ends = np.cumsum(rows)
    requests = [
        {"x": np.arange(end - size, end, dtype=np.float32).reshape(size, 1)}
        for end, size in zip(ends, rows, strict=True)
    ]
    padding = padding if sum(rows) else 0
    joined = join(requests, padding)["x"]
    assert len(joined) == sum(rows) + padding
    for request, (answer,) in zip(requests, split([joined], rows, padding), strict=True):
        assert np.array_equal(answer, request["x"])


def test_batches_are_filled_up_with_rows_that_the_model_has_to_take_anyway() -> None:
    joined = join([{"x": np.array([[1.0], [2.0]])}], 2)
    assert joined["x"].tolist() == [[1], [2], [2], [2]]


@pytest.mark.parametrize("shape", [(), (3,), (1, 4)])
def test_outputs_without_the_rows_of_the_batch_are_nobodys(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelFailedError, match="they cannot be assigned"):
        split([np.zeros(shape)], [2, 2], 0)


@pytest.mark.parametrize(
    ("batching", "inputs", "outputs", "said"),
    [
        (dynamic(), {"x": ()}, {"y": (-1,)}, "input 'x' of the model has no first dimension that is known"),
        (dynamic(), {"x": (-1,)}, {"y": ()}, "output 'y' of the model has no first dimension that is known"),
        (
            dynamic(),
            {"x": (3, 2)},
            {"y": (-1,)},
            "the first dimension of input 'x' of the model is fixed at 3, so that requests of other sizes "
            "cannot share a run, but spec.batching.mode is dynamic: export the model with a free first "
            "dimension, or set spec.batching.mode to none, or to static with maxBatchSize 3",
        ),
        (
            dynamic(),
            {"x": (-1, 2)},
            {"y": (1,)},
            "the first dimension of output 'y' of the model is fixed at 1",
        ),
        (
            static(8),
            {"x": (4, 2)},
            {"y": (4,)},
            "fixed at 4, but spec.batching is static with maxBatchSize 8: set maxBatchSize to 4",
        ),
        (dynamic(), {}, {"y": (-1,)}, "the model has no inputs"),
    ],
)
def test_a_model_that_cannot_be_batched_says_why(
    batching: Batching,
    inputs: dict[str, tuple[int, ...]],
    outputs: dict[str, tuple[int, ...]],
    said: str,
) -> None:
    with pytest.raises(ModelLoadError) as refused:
        check_shapes(specs(**inputs), specs(**outputs), batching)
    assert said in str(refused.value)


@pytest.mark.parametrize("batching", [dynamic(), static(8)], ids=["dynamic", "static"])
def test_batches_have_no_more_rows_than_the_model_has_room_for(batching: Batching) -> None:
    x = TensorSpec("x", FP32, (-1, 4), (), most_rows=batching.max_size - 1)
    with pytest.raises(
        ModelLoadError, match=f"'x' of the model has room for {x.most_rows} rows, .* set it to"
    ):
        check_shapes({"x": x}, specs(y=(-1,)), batching)
    check_shapes({"x": replace(x, most_rows=batching.max_size)}, specs(y=(-1,)), batching)


@pytest.mark.parametrize(
    ("batching", "shape"),
    [(NONE, ()), (NONE, (3, 2)), (dynamic(), (-1, 2)), (static(), (-1, 2)), (static(8), (8, 2))],
)
def test_a_model_that_can_be_batched_or_need_not_is_taken(batching: Batching, shape: tuple[int, ...]) -> None:
    check_shapes(specs(x=shape), specs(y=shape), batching)


@pytest.mark.parametrize(
    ("rows", "run"), [(0, 0), (1, 1), (3, 3), (5, 6), (7, 8), (9, 12), (17, 20), (20, 20)]
)
def test_on_a_device_runs_have_few_sizes_and_little_filling(rows: int, run: int) -> None:
    batching = Batching(Mode.DYNAMIC, 20, (), 0).on_device()
    assert batching.sizes() == (1, 2, 3, 4, 6, 8, 12, 16, 20)
    assert rows + batching.padding(rows) == run


def test_where_a_change_of_size_costs_much_all_runs_have_one() -> None:
    batching = Batching(Mode.DYNAMIC, 20, (), 0).on_device().of_one_size()
    assert (batching.sizes(), batching.padding(3)) == ((20,), 17)


@pytest.mark.parametrize(("lengths", "padding"), [((2, 1), 0), ((1, 2), 3), ((3, 0), 2)])
def test_staged_inputs_are_the_joined_ones_in_memory_that_is_used_again(
    lengths: tuple[int, ...], padding: int
) -> None:
    made: list[Array] = []

    def buffer(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        made.append(np.empty(shape, dtype))
        return made[-1]

    staging = Staging(Batching(Mode.DYNAMIC, 8, (), 0), buffer)
    for value in (1.0, 2.0):
        requests = [{"x": np.full((rows, 5), value + n, np.float32)} for n, rows in enumerate(lengths)]
        staged = join(requests, padding, staging)["x"]
        assert np.array_equal(staged, join(requests, padding)["x"])
        assert np.shares_memory(staged, made[0])
    assert len(made) == 1


@pytest.mark.parametrize("rows", [1, 1000], ids=["small", "large"])
def test_pieces_are_gathered_as_they_are_or_not_at_all(rows: int) -> None:
    pieces = [np.full((rows, 4), number, np.int32) for number in range(30)]
    place = np.empty((30 * rows, 4), np.int32)
    done = gathered(place, pieces)
    assert done == (place.nbytes >= LEAST_BYTES)
    assert not done or (place == np.concatenate(pieces)).all()
