"""CUDA graphs, on a device of our own in place of CUDA's; and the sizes that an ONNX file leaves open."""

import ctypes
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from tailbound_runtime.cuda_graphs import Bound, Graphs, Output, Runtime
from tailbound_runtime.errors import MemoryShortError, ModelFailedError
from tailbound_runtime.onnx_shapes import only_rows_are_free
from tailbound_runtime.session import Session, recordable


class Device:
    """CUDA's runtime: it computes what is enqueued at once, or records it."""

    def __init__(self) -> None:
        self.cuda = SimpleNamespace(pinned=np.empty)
        self.capturing: list[Callable[[], None]] | None = None
        self.captured: list[list[Callable[[], None]]] = []
        self.ended: list[tuple[str, bool]] = []  # what was destroyed, and whether the session was there then
        self.session_is_there: Callable[[], bool] = lambda: False
        self.lock = threading.Lock()
        self.most_made: int | None = None
        self.number_made = 0

    def enqueue(self, work: Callable[[], None]) -> None:
        if self.capturing is None:
            work()
        else:
            self.capturing.append(work)

    def use(self) -> None:
        """There is one device."""

    def call(self, function: str, *arguments: Any) -> None:
        if function == "cudaStreamBeginCapture":
            assert self.capturing is None, "the capture before has not ended"
            self.capturing = []
        elif function == "cudaStreamEndCapture":
            assert self.capturing is not None
            self.captured.append(self.capturing)
            self.capturing = None
        elif function == "cudaGraphLaunch":
            with self.lock:
                for work in self.captured[arguments[0].value - 1]:
                    work()
        elif function in ("cudaGraphExecDestroy", "cudaStreamDestroy", "cudaEventDestroy"):
            self.ended.append((function, self.session_is_there()))

    def wait(self, function: str, *arguments: Any) -> None:
        if function == "cudaMemcpyAsync":
            ctypes.memmove(*arguments[:3])

    def made(self, function: str, *_: object) -> ctypes.c_void_p:
        if self.number_made == self.most_made:
            raise MemoryShortError(function)
        self.number_made += 1
        return ctypes.c_void_p(len(self.captured) or 1)


def doubling(device: Device, rows: int) -> Bound:
    """A run that doubles, on tensors of its own."""
    inputs, outputs = np.zeros((rows, 2)), np.zeros((rows, 2))

    def double() -> None:
        outputs[:] = 2 * inputs

    return Bound(
        {"x": inputs.ctypes.data},
        {"y": Output(outputs.ctypes.data, outputs.shape, outputs.dtype)},
        lambda: device.enqueue(double),
    )


def recorded(device: Device, *sizes: int) -> Graphs:
    graphs = Graphs(cast(Runtime, device), places=2)
    for rows in sizes:
        graphs.record(rows, {"x": np.ones((rows, 2))}, partial(doubling, device, rows))
    return graphs


def test_recordings_answer_each_run_with_its_own_whichever_threads_run_them() -> None:
    device = Device()
    graphs = recorded(device, 1, 3)
    assert [graphs.has(rows) for rows in (1, 2, 3)] == [True, False, True]

    def right(number: int) -> bool:
        rows = 1 if number % 3 else 3
        array = np.full((2, rows), number, float).T  # not contiguous
        (answer,) = graphs.run(rows, ["y"], {"x": array})
        return bool((answer == 2 * number).all()) and answer.shape == (rows, 2)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(right, range(200)))
    graphs.forget(3)
    assert not graphs.has(3)
    assert len(device.ended) == 2
    graphs.forget(1)
    assert len(device.ended) == 4


def test_a_run_that_cannot_be_recorded_leaves_the_stream_usable() -> None:
    device = Device()
    graphs = recorded(device, 1)

    def refuses() -> None:
        if device.capturing is not None:
            raise ModelFailedError("operation not permitted when stream is capturing")

    bound = doubling(device, 2)
    with pytest.raises(ModelFailedError, match="not permitted"):
        graphs.record(2, {"x": np.ones((2, 2))}, lambda: Bound(bound.inputs, bound.outputs, refuses))
    assert not graphs.has(2)
    assert not graphs.lock.locked()
    graphs.record(2, {"x": np.ones((2, 2))}, lambda: doubling(device, 2))
    assert (graphs.run(2, ["y"], {"x": np.full((2, 2), 7.0)})[0] == 14).all()


def test_a_session_that_is_dropped_ends_its_recordings_before_itself_and_its_streams_after(
    tmp_path: Path,
) -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in "xy")
    onnx.save(helper.make_model(helper.make_graph([node], "g", [x], [y]), ir_version=8), tmp_path / "m.onnx")
    device = Device()
    graphs = recorded(device, 1, 3)
    computes = ort.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    there = weakref.ref(computes._sess)
    session = Session(computes, graphs=graphs)
    device.session_is_there = lambda: there() is not None
    del computes, graphs
    assert not device.ended
    del session
    assert device.ended == [
        *[("cudaGraphExecDestroy", True)] * 4,
        *[*[("cudaEventDestroy", False)] * 2, ("cudaStreamDestroy", False)] * 2,
        ("cudaStreamDestroy", False),
    ]


def test_a_session_that_cannot_be_opened_leaves_no_streams_and_ends_before_them() -> None:
    device = Device()

    class Opening:
        """A session."""

    def opened(stream: int) -> Any:
        session = Opening()
        there = weakref.ref(session)
        device.session_is_there = lambda: there() is not None
        assert stream and device.session_is_there()
        raise RuntimeError("not all nodes are on the device")

    with pytest.raises(RuntimeError, match="not all nodes"):
        recordable(opened, cast(Runtime, device))
    assert device.ended == [
        *[*[("cudaEventDestroy", False)] * 2, ("cudaStreamDestroy", False)] * 2,
        ("cudaStreamDestroy", False),
    ]


@pytest.mark.parametrize("most", range(7))
def test_a_device_without_memory_for_all_streams_and_events_keeps_none(most: int) -> None:
    device = Device()
    device.most_made = most
    with pytest.raises(MemoryShortError):
        Graphs(cast(Runtime, device), places=2)
    assert len(device.ended) == most


@pytest.mark.parametrize(
    ("shapes", "only_rows"),
    [
        ({"x": ["n", 3, 224]}, True),
        ({"x": [8, 3], "z": ["n"]}, True),
        ({"x": ["n", "tokens"]}, False),
        ({"x": ["n", 3], "z": ["n", None]}, False),
        ({"x": []}, False),
        ({"x": None}, False),
        ({}, False),
    ],
    ids=str,
)
def test_sizes_that_a_file_leaves_open_are_read_from_it(
    tmp_path: Path, shapes: dict[str, list[Any] | None], only_rows: bool
) -> None:
    weight = numpy_helper.from_array(np.ones((300, 7), np.float32), "w")
    weights = [helper.make_tensor_value_info("w", TensorProto.FLOAT, ["open", "open"])]  # as old files have
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["open", "open"])]
    node = helper.make_node("Identity", ["w"], ["y"])
    graph = helper.make_graph([node], "g", [*weights, *inputs], outputs, [weight])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph), path)
    assert only_rows_are_free(path) is only_rows


@given(st.binary(max_size=60))
def test_a_file_that_is_no_model_says_nothing_of_its_sizes(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes.onnx"
    path.write_bytes(data)
    assert only_rows_are_free(path) in (False, True)


def test_no_file_says_nothing_of_its_sizes(tmp_path: Path) -> None:
    assert not only_rows_are_free(tmp_path)
    assert not only_rows_are_free(tmp_path / "none.onnx")
