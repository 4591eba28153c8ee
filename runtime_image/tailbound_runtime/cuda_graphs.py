"""CUDA graphs: the kernels of a run on a GPU, recorded once for each shape of its inputs.

What libraries prepare for a shape, as cuDNN does for convolutions, is prepared before the recording, and not
again when runs of other shapes come between.

All recordings of a model compute on one stream, one after the other. Each place has a stream for its copies,
and tensors of its own: the tensors of one run are copied while that of another place computes.
"""

import ctypes
import queue
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tailbound_runtime.devices import Cuda
from tailbound_runtime.errors import MemoryShortError, ModelFailedError
from tailbound_runtime.tensors import Array

_NON_BLOCKING: Final = 1  # cudaStreamNonBlocking
_EVENT_FLAGS: Final = 3  # cudaEventBlockingSync | cudaEventDisableTiming
_RELAXED: Final = 2  # cudaStreamCaptureModeRelaxed: other threads may use the device meanwhile
_TO_DEVICE: Final = 1
_TO_HOST: Final = 2
_OUT_OF_MEMORY: Final = 2


@dataclass(frozen=True)
class Output:
    """A tensor on the device that a run writes."""

    address: int
    shape: tuple[int, ...]
    dtype: Any


@dataclass(frozen=True)
class Bound:
    """A run on tensors at fixed addresses of the device.

    inputs, outputs: by name
    enqueue: puts the run on the stream, and does not wait for it; keeps the tensors as long as it is there
    """

    inputs: Mapping[str, int]
    outputs: Mapping[str, Output]
    enqueue: Callable[[], None]


class Runtime:
    """CUDA's runtime library, for one device."""

    def __init__(self, version: str, device: int) -> None:
        """Raises OSError if the library of this version is not there."""
        name = f"libcudart.so.{version.partition('.')[0]}"
        self._quick, self._slow = ctypes.PyDLL(name), ctypes.CDLL(name)
        self._quick.cudaGetErrorString.restype = ctypes.c_char_p
        self._device = device
        self.cuda = Cuda(version, device)

    def use(self) -> None:
        """What this thread calls is for this device."""
        self.call("cudaSetDevice", self._device)

    def call(self, function: str, *arguments: object) -> None:
        """A function that returns at once. Raises MemoryShortError and other ModelFailedErrors."""
        self._check(function, getattr(self._quick, function)(*arguments))

    def wait(self, function: str, *arguments: object) -> None:
        """Call a function that may take long: other threads have the interpreter meanwhile."""
        self._check(function, getattr(self._slow, function)(*arguments))

    def made(self, function: str, *arguments: object) -> ctypes.c_void_p:
        """What a function makes, whose first argument says where to."""
        it = ctypes.c_void_p()
        self.call(function, ctypes.byref(it), *arguments)
        return it

    def _check(self, function: str, error: int) -> None:
        if not error:
            return
        text = f"{function}: {self._quick.cudaGetErrorString(error).decode()}"
        self._quick.cudaGetLastError()  # else the next call would return it again
        raise MemoryShortError(text) if error == _OUT_OF_MEMORY else ModelFailedError(text)


class _Recording:
    """One run's kernels, and the pinned memory that its outputs are copied to."""

    def __init__(self, graph: ctypes.c_void_p, bound: Bound, cuda: Cuda) -> None:
        self.graph = graph
        self.bound = bound
        self.answers = {name: cuda.pinned(each.shape, each.dtype) for name, each in bound.outputs.items()}


class _Place:
    """What one run at a time has for itself."""

    def __init__(self, runtime: Runtime, ends: ExitStack) -> None:
        """`ends` gets what destroys it."""
        self.copies = _stream(runtime, ends)
        self.copied = _event(runtime, ends)
        self.computed = _event(runtime, ends)
        self.recordings: dict[Hashable, _Recording] = {}


def _stream(runtime: Runtime, ends: ExitStack) -> ctypes.c_void_p:
    stream = runtime.made("cudaStreamCreateWithFlags", _NON_BLOCKING)
    ends.callback(runtime.call, "cudaStreamDestroy", stream)
    return stream


def _event(runtime: Runtime, ends: ExitStack) -> ctypes.c_void_p:
    event = runtime.made("cudaEventCreateWithFlags", _EVENT_FLAGS)
    ends.callback(runtime.call, "cudaEventDestroy", event)
    return event


class Graphs:
    """The recordings of one model; any thread may run them.

    The recordings have to go before the session that they are of, and the streams after it: it may still use
    them as it ends.

    stream: that computes; its address
    lock: of the stream: a caller that puts a run on it, other than a recording, holds it
    """

    def __init__(self, runtime: Runtime, places: int) -> None:
        """Raises ModelFailedError, and leaves nothing on the device then."""
        runtime.use()
        self._runtime = runtime
        with ExitStack() as ends:
            self._stream = _stream(runtime, ends)
            self._places = [_Place(runtime, ends) for _ in range(places)]
            self._ends = ends.pop_all()
        self._free: queue.SimpleQueue[_Place] = queue.SimpleQueue()
        for place in self._places:
            self._free.put(place)
        self.stream = self._stream.value or 0
        self.lock = threading.Lock()

    def has(self, shapes: Hashable) -> bool:
        """Whether runs of these shapes are recorded."""
        return all(shapes in place.recordings for place in self._places)

    def record(self, shapes: Hashable, inputs: Mapping[str, Array], make: Callable[[], Bound]) -> None:
        """Record a run of these inputs, on tensors that `make` makes for each place.

        Raises ModelFailedError, and what `enqueue` raises: then `forget` what is there of it.
        """
        for place in self._places:
            self._runtime.use()
            bound = make()
            for name, array in inputs.items():
                self._copy(bound.inputs[name], array.ctypes.data, array.nbytes, _TO_DEVICE, self._stream)
            with self.lock:
                bound.enqueue()  # which takes the memory that the run needs
                self._runtime.wait("cudaStreamSynchronize", self._stream)
                graph = self._recorded(bound.enqueue)
            recording = _Recording(graph, bound, self._runtime.cuda)
            weakref.finalize(recording, self._runtime.call, "cudaGraphExecDestroy", graph).atexit = False
            place.recordings[shapes] = recording

    def forget(self, shapes: Hashable) -> None:
        """Runs of these shapes are not recorded any more."""
        for place in self._places:
            place.recordings.pop(shapes, None)

    def forget_all(self) -> None:
        """No runs are recorded any more."""
        for place in self._places:
            place.recordings.clear()

    def end(self) -> None:
        """Destroy the streams, once there are no recordings, and nothing else that computes on them."""
        with suppress(ModelFailedError):  # of a device that answers nothing any more
            self._runtime.use()
            self._ends.close()

    def _recorded(self, enqueue: Callable[[], None]) -> ctypes.c_void_p:
        self._runtime.call("cudaStreamBeginCapture", self._stream, ctypes.c_int(_RELAXED))
        graph = ctypes.c_void_p()
        try:
            enqueue()
        finally:  # also after a failure, or the stream would stay unusable
            self._runtime.call("cudaStreamEndCapture", self._stream, ctypes.byref(graph))
        try:
            return self._runtime.made("cudaGraphInstantiate", graph, ctypes.c_ulonglong(0))
        finally:
            self._runtime.call("cudaGraphDestroy", graph)

    def run(self, shapes: Hashable, outputs: Sequence[str], inputs: Mapping[str, Array]) -> list[Array]:
        """These outputs of a run that is recorded. Raises ModelFailedError."""
        place = self._free.get()
        try:
            self._runtime.use()
            return self._run(place, place.recordings[shapes], outputs, inputs)
        finally:
            self._free.put(place)

    def _run(
        self, place: _Place, recording: _Recording, outputs: Sequence[str], inputs: Mapping[str, Array]
    ) -> list[Array]:
        call, bound = self._runtime.call, recording.bound
        arrays = {name: np.ascontiguousarray(array) for name, array in inputs.items()}
        for name, array in arrays.items():
            self._copy(bound.inputs[name], array.ctypes.data, array.nbytes, _TO_DEVICE, place.copies)
        call("cudaEventRecord", place.copied, place.copies)
        with self.lock:
            call("cudaStreamWaitEvent", self._stream, place.copied, ctypes.c_uint(0))
            call("cudaGraphLaunch", recording.graph, self._stream)
            call("cudaEventRecord", place.computed, self._stream)
        call("cudaStreamWaitEvent", place.copies, place.computed, ctypes.c_uint(0))
        for name in outputs:
            answer = recording.answers[name]
            self._copy(answer.ctypes.data, bound.outputs[name].address, answer.nbytes, _TO_HOST, place.copies)
        call("cudaEventRecord", place.copied, place.copies)
        self._runtime.wait("cudaEventSynchronize", place.copied)
        return [recording.answers[name].copy() for name in outputs]

    def _copy(self, to: int, of: int, size: int, kind: int, stream: ctypes.c_void_p) -> None:
        # From memory that is not pinned it returns once the copy is made.
        self._runtime.wait(
            "cudaMemcpyAsync",
            *(ctypes.c_void_p(to), ctypes.c_void_p(of), ctypes.c_size_t(size)),
            *(ctypes.c_int(kind), stream),
        )
