"""The model behind ONNX Runtime: the engine, and the only module that knows ONNX Runtime."""

import ctypes
import math
import traceback
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import structlog
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from tailbound_runtime.batchable import alike
from tailbound_runtime.cuda_graphs import Bound, Graphs, Output, Runtime
from tailbound_runtime.devices import (
    CPU,
    CUDA,
    GRAPHS_OPTION,
    Cuda,
    Memory,
    asks_for_graphs,
    is_out_of_memory,
    with_options,
)
from tailbound_runtime.engine import Loaded, Run, TensorSpec, one_line
from tailbound_runtime.errors import MemoryShortError, ModelFailedError, ModelInputError, ModelLoadError
from tailbound_runtime.mistaken import what_it_is
from tailbound_runtime.onnx_shapes import only_rows_are_free
from tailbound_runtime.tensors import BF16, BY_ONNX_TYPE, Array

PLATFORM: Final = "onnxruntime_onnx"
ERRORS_ONLY: Final = 3  # ONNX Runtime's severity; its lines are not JSON
_ONNX_BFLOAT16: Final = 16  # onnx.TensorProto.BFLOAT16
DEVICE_LANES: Final = 2
_NO_GRAPH: Final = ("gpu_graph_id", "-1")  # of ONNX Runtime's own; ours are recorded around its runs
_NO_WAIT: Final = ("disable_synchronize_execution_providers", "1")

log = structlog.get_logger(__name__)


class Session(Loaded):
    """A model on ONNX Runtime."""

    def __init__(self, session: ort.InferenceSession, device: int = 0, graphs: Graphs | None = None) -> None:
        self._session = session
        # The checks of `session.run` are done already, and take a sixth of the time of a short run.
        self._compute = session._sess.run
        self._device = device
        self._graphs = graphs
        if graphs is not None:
            # In this order: the tensors of the recordings are the session's, which computes on their stream.
            weakref.finalize(self, graphs.forget_all).atexit = False
            weakref.finalize(session._sess, graphs.end).atexit = False
        provider: str = session.get_providers()[0]
        super().__init__(
            _specs("input", session.get_inputs()),
            _specs("output", session.get_outputs()),
            PLATFORM,
            provider,
            on_device=provider != CPU,
            inlines=True,
            lanes=1 if provider == CPU else DEVICE_LANES,
        )
        used = {spec.datatype for spec in (*self.inputs.values(), *self.outputs.values())}
        self._has_bits = BF16 in used
        self._cuda = _cuda(device) if provider == CUDA else None
        self._binds = provider == CUDA and not any(datatype.is_text for datatype in used)
        self._records = self._binds and not self._has_bits
        # No bound method of its own is kept: in such a cycle the model would outlive its unloading.
        self._is_plain = graphs is None and not self._has_bits and not self._binds

    @classmethod
    def load(
        cls,
        path: Path,
        cpu_limit: int,
        providers: Sequence[str],
        device_options: Mapping[str, str] | None = None,
        memory_limit: int | None = None,
        few_sizes: bool = False,
    ) -> Self:
        """Load a model file, to run on the first of `providers`; options and limit are those of a device.

        few_sizes: whether runs have few numbers of rows
        Raises ModelLoadError with the reason in one sentence. A device that cannot be used is one: on the CPU
        the model would keep no promise about its latency.
        """
        if providers[0] == CUDA:
            ort.preload_dlls()  # from the packages beside it; prints those that it cannot find
        options = ort.SessionOptions()
        options.intra_op_num_threads = cpu_limit
        options.log_severity_level = ERRORS_ONLY
        # Idle threads that spin use up the container's CPU quota; the throttling lands on the tail latency.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        given = device_options or {}
        try:
            loaded, graphs = _opened(path, options, providers, given, memory_limit, few_sizes)
            session = cls(loaded, _device(given), graphs)
        except ModelLoadError:
            raise
        except Exception as error:  # as above
            raise ModelLoadError(_why_not_loaded(path, one_line(error), memory_limit)) from error
        if session.provider != providers[0]:
            raise ModelLoadError(
                f"this container was given a device, but ONNX Runtime {ort.__version__} cannot use it: "
                f"the node needs a driver for CUDA {ort.cuda_version}, and the image CUDA's and cuDNN's "
                "libraries; the lines above say what is missing"
            )
        return session

    def _infer(self, outputs: Sequence[str], inputs: Mapping[str, Array], run: Run) -> list[Array]:
        options = run.kept
        if options is None:
            options = run.kept = ort.RunOptions()
            run.begins(partial(setattr, options, "terminate", True))
        try:
            if self._is_plain:
                computed: list[Array] = self._compute(outputs, inputs, options)
                return computed
            return self._run_in_turn(outputs, inputs, options)
        except InvalidArgument as error:
            raise ModelInputError(one_line(error)) from error
        except Exception as error:  # ONNX Runtime's errors share no narrower base
            text = one_line(error)
            raise MemoryShortError(text) if is_out_of_memory(text) else ModelFailedError(text) from error

    def _run_in_turn(self, outputs: Sequence[str], inputs: Mapping[str, Array], options: Any) -> list[Array]:
        if self._graphs is None:
            return self._run_alone(outputs, inputs, options)
        shapes = _shapes(inputs)
        if self._graphs.has(shapes):
            return self._graphs.run(shapes, outputs, inputs)
        options.add_run_config_entry(*_NO_GRAPH)
        with self._graphs.lock:
            return self._run_alone(outputs, inputs, options)

    def _run_alone(self, outputs: Sequence[str], inputs: Mapping[str, Array], options: Any) -> list[Array]:
        if self._has_bits:
            return self._run_with_bits(outputs, inputs, options)
        if not self._binds:
            computed: list[Array] = self._compute(outputs, inputs, options)
            return computed
        binding = self._session.io_binding()
        for name, array in inputs.items():
            binding.bind_cpu_input(name, np.ascontiguousarray(array))
        for name in outputs:
            binding.bind_output(name, "cpu")
        self._session.run_with_iobinding(binding, options)
        copied: list[Array] = binding.copy_outputs_to_cpu()
        return copied

    def _run_with_bits(
        self, outputs: Sequence[str], inputs: Mapping[str, Array], options: Any
    ) -> list[Array]:
        values = {name: _value(self.inputs[name], array) for name, array in inputs.items()}
        answers = self._session.run_with_ort_values(outputs, values, options)
        return [
            _bits(answer) if self.outputs[name].datatype is BF16 else answer.numpy()
            for name, answer in zip(outputs, answers, strict=True)
        ]

    def warm_up(self, rows: int) -> list[Array]:
        """Run on zeros, and record runs of these shapes, if they are to be CUDA graphs."""
        answer = super().warm_up(rows)
        graphs, inputs = self._graphs, self._proven
        if graphs is None or inputs is None or not self._records or graphs.has(_shapes(inputs)):
            return answer
        try:
            why_not = self._recorded(graphs, inputs, answer)
        except Exception as error:  # of ONNX Runtime or CUDA
            why_not = one_line(error)
        if why_not is None:
            return super().warm_up(rows)
        graphs.forget(_shapes(inputs))
        log.warning(
            f"runs of {rows} rows are no CUDA graph, and wait for each other: if that is so for all, set "
            f'{GRAPHS_OPTION} to "0" in TAILBOUND_DEVICE_OPTIONS',
            error=why_not,
        )
        return answer

    def _recorded(self, graphs: Graphs, inputs: Mapping[str, Array], answer: Sequence[Array]) -> str | None:
        """Record these runs; why the recording must not be used, if it does not answer like the model."""
        graphs.record(_shapes(inputs), inputs, lambda: self._bound(inputs, answer))
        again = graphs.run(_shapes(inputs), list(self.outputs), inputs)
        return None if all(map(alike, again, answer)) else "it does not answer as the model does"

    def _bound(self, inputs: Mapping[str, Array], answer: Sequence[Array]) -> Bound:
        """A run on tensors of its own on the device, in memory that counts for the session's limit."""
        binding, options = self._session.io_binding(), ort.RunOptions()
        for entry in (_NO_GRAPH, _NO_WAIT):
            options.add_run_config_entry(*entry)
        places, outputs = {}, {}
        for name, array in inputs.items():
            value = self._on_device(array)
            binding.bind_ortvalue_input(name, value)
            places[name] = value.data_ptr()
        for name, array in zip(self.outputs, answer, strict=True):
            value = self._on_device(array)
            binding.bind_ortvalue_output(name, value)
            outputs[name] = Output(value.data_ptr(), array.shape, array.dtype)
        return Bound(places, outputs, partial(self._session.run_with_iobinding, binding, options))

    def _on_device(self, array: Array) -> ort.OrtValue:
        """A tensor like this array, whose values are anything yet."""
        return self._session.create_ortvalue_from_shape_and_type(
            array.shape, array.dtype, "cuda", self._device
        )

    def memory(self) -> Memory | None:
        """The device's memory; None on the CPU, and if the device does not answer."""
        return None if self._cuda is None else self._cuda.memory()

    def buffer(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array | None:
        """Pinned memory for inputs; None on the CPU, where any array is as good."""
        return None if self._cuda is None else self._cuda.pinned(shape, dtype)


def _opened(
    path: Path,
    options: ort.SessionOptions,
    providers: Sequence[str],
    given: Mapping[str, str],
    memory_limit: int | None,
    few_sizes: bool,
) -> tuple[ort.InferenceSession, Graphs | None]:
    """The session, and what records its runs as CUDA graphs. Raises errors of ONNX Runtime and CUDA.

    | enable_cuda_graph of the device's options | a run on CUDA | CUDA graphs |
    |---|---|---|
    | "1" | (any) | yes; an error if the model has none |
    | "0" | (any) | no |
    | absent | has few sizes, and these are of rows only | yes, unless the model has none |
    | absent | has any size | no: few runs would be of a shape that is recorded |
    """

    def opened(stream: int | None) -> ort.InferenceSession:
        placed = with_options(providers, given, memory_limit, stream)
        # Its fallback would move to the CPU, now or when the device fails later, without a word.
        return ort.InferenceSession(path, options, providers=placed, enable_fallback=False)

    asked = asks_for_graphs(given)
    if providers[0] == CUDA and (asked or (asked is None and few_sizes and only_rows_are_free(path))):
        try:
            return recordable(opened, Runtime(ort.cuda_version, _device(given)))
        except Exception as error:  # a model may have nodes on the CPU, or loops; other causes come again
            if asked:
                raise
            log.info("runs are no CUDA graphs", error=one_line(error))
    return opened(None), None


def _device(given: Mapping[str, str]) -> int:
    return int(given.get("device_id", 0))


def _shapes(inputs: Mapping[str, Array]) -> Hashable:
    return tuple((name, inputs[name].shape) for name in sorted(inputs))


def recordable(
    opened: Callable[[int], ort.InferenceSession], runtime: Runtime
) -> tuple[ort.InferenceSession, Graphs]:
    """A session whose runs can be recorded, and what records them. Raises what `opened` does: then no stream
    is left.
    """
    graphs = Graphs(runtime, DEVICE_LANES)
    try:
        return opened(graphs.stream), graphs
    except Exception as error:
        # They hold the session that failed, which may still use the streams as it ends.
        traceback.clear_frames(error.__traceback__)
        graphs.end()
        raise


def available_providers() -> list[str]:
    """What this build of ONNX Runtime contains."""
    return list(ort.get_available_providers())


def _cuda(device: int) -> Cuda | None:
    try:
        return Cuda(ort.cuda_version, device)
    except OSError:
        return None  # linked into ONNX Runtime: it serves all the same


def _why_not_loaded(path: Path, error: str, memory_limit: int | None) -> str:
    if is_out_of_memory(error):
        limit = "" if memory_limit is None else f" within TAILBOUND_DEVICE_MEMORY_LIMIT={memory_limit} bytes"
        return f"{path} does not fit into the memory of its device{limit}: {error}"
    found = what_it_is(path)
    reason = f"{path} is no ONNX model: {found}" if found else f"cannot load {path}: {error}"
    return f"ONNX Runtime {ort.__version__} {reason}"


def _specs(kind: str, nodes: Sequence[Any]) -> list[TensorSpec]:
    specs = []
    for node in nodes:
        datatype = BY_ONNX_TYPE.get(node.type)
        if datatype is None:
            raise ModelLoadError(
                f"{kind} {node.name!r} of the model has type {node.type}, which this server cannot carry: "
                f"{advice(node.type)}"
            )
        shape = tuple(size if isinstance(size, int) else -1 for size in node.shape)
        symbols = tuple(_symbol(size) for size in node.shape)
        specs.append(TensorSpec(node.name, datatype, shape, symbols))
    return specs


def advice(onnx_type: str) -> str:
    """What to do about an input or output of a type that cannot be served."""
    if onnx_type.startswith("optional("):
        return "requests always have all inputs: export the model without this one, or with it required"
    if onnx_type.startswith("tensor("):
        return "put a Cast from FP32 or FP16, or to it, between this and the rest of the graph"
    return "export the model with plain tensors only (from scikit-learn: with the option zipmap=False)"


def _symbol(size: object) -> str | None:
    return size if isinstance(size, str) and size.isidentifier() else None


def _value(spec: TensorSpec, array: Array) -> ort.OrtValue:
    if spec.datatype is not BF16:
        return ort.OrtValue.ortvalue_from_numpy(array)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ascontiguousarray(array), _ONNX_BFLOAT16)


def _bits(value: ort.OrtValue) -> Array:
    """A copy of the bits of a BF16 tensor, which ONNX Runtime has no array for."""
    shape = tuple(value.shape())
    if value.device_name() != "cpu":
        raise ModelFailedError("an output in BF16 stays on the device: cast it to FP32 in the model")
    size = math.prod(shape)
    if not size:
        return np.empty(shape, np.uint16)
    there = (ctypes.c_uint16 * size).from_address(value.data_ptr())
    return np.frombuffer(there, np.uint16).copy().reshape(shape)
