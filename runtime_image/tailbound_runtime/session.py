"""The model behind ONNX Runtime: the engine, and the only module that knows ONNX Runtime."""

import ctypes
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from tailbound_runtime.devices import CPU, CUDA, Cuda, Memory, is_out_of_memory, with_options
from tailbound_runtime.errors import (
    ApiError,
    MemoryShortError,
    ModelBrokenError,
    ModelFailedError,
    ModelInputError,
    ModelLoadError,
)
from tailbound_runtime.mistaken import what_it_is
from tailbound_runtime.tensors import BF16, BY_ONNX_TYPE, Array, Datatype

ERRORS_ONLY: Final = 3  # ONNX Runtime's severity; its lines are not JSON
MOST_PROOF_BYTES: Final = 2**20  # of tensors that are kept to show that the model still works
_ONNX_BFLOAT16: Final = 16  # onnx.TensorProto.BFLOAT16
UNKNOWN_SECONDS: Final = 0.1
DEVICE_LANES: Final = 2
WARM_UP_RUNS: Final = 3  # the first run allocates, the second plans memory, the third is as later ones are


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of the model.

    shape: -1 where the size is free
    symbols: the model's names of the free sizes, None where it has none; sizes of one name are equal
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    symbols: tuple[str | None, ...] = ()

    def admits(self, shape: tuple[int, ...]) -> bool:
        """Whether a tensor of `shape` may go in.

        ONNX Runtime reports a scalar and an unknown rank alike, as (): then the model itself must judge.
        """
        if not self.shape:
            return True
        return len(shape) == len(self.shape) and all(
            wanted in (-1, size) for wanted, size in zip(self.shape, shape, strict=True)
        )

    def check(self, where: str, shape: tuple[int, ...]) -> None:
        """Raises ApiError 400 unless a tensor of `shape` may go in."""
        if not self.admits(shape):
            raise ApiError(
                400,
                f"{where}: shape {list(shape)} does not fit the model's {list(self.shape)}, "
                "-1 being any size",
            )


class Run:
    """One inference that another thread may stop."""

    def __init__(self) -> None:
        self._options = ort.RunOptions()

    @property
    def options(self) -> Any:
        return self._options

    @property
    def stopped(self) -> bool:
        """Whether it was asked to stop."""
        return bool(self._options.terminate)

    def stop(self) -> None:
        """Make the running inference return soon, with an error. It stops between two nodes of the graph."""
        self._options.terminate = True


class Session:
    """A loaded model.

    lanes: runs that are worth having at once
    first_seconds, warm_seconds: of the first and the last run of the last `warm_up`; many if there was none
    """

    def __init__(self, session: ort.InferenceSession, device: int = 0) -> None:
        self._session = session
        self.inputs: Mapping[str, TensorSpec] = _specs("input", session.get_inputs())
        self.outputs: Mapping[str, TensorSpec] = _specs("output", session.get_outputs())
        self._has_bits = any(
            spec.datatype is BF16 for spec in (*self.inputs.values(), *self.outputs.values())
        )
        self.provider: str = session.get_providers()[0]
        self.lanes = 1 if self.provider == CPU else DEVICE_LANES
        self.first_seconds = self.warm_seconds = UNKNOWN_SECONDS
        self._proven: Mapping[str, Array] | None = None
        self._cuda = _cuda(device) if self.provider == CUDA else None
        texts = any(spec.datatype.is_text for spec in (*self.inputs.values(), *self.outputs.values()))
        self._binds = self.provider == CUDA and not texts

    @classmethod
    def load(
        cls,
        path: Path,
        cpu_limit: int,
        providers: Sequence[str],
        device_options: Mapping[str, str] | None = None,
        memory_limit: int | None = None,
    ) -> Self:
        """Load a model file, to run on the first of `providers`; options and limit are those of a device.

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
        placed = with_options(providers, device_options or {}, memory_limit)
        try:
            # Its fallback would move to the CPU, now or when the device fails later, and tell nobody.
            loaded = ort.InferenceSession(path, options, providers=placed, enable_fallback=False)
            session = cls(loaded, int((device_options or {}).get("device_id", 0)))
        except ModelLoadError:
            raise
        except Exception as error:  # ONNX Runtime's errors share no narrower base
            raise ModelLoadError(_why_not_loaded(path, _text(error), memory_limit)) from error
        if session.provider != providers[0]:
            raise ModelLoadError(
                f"this container was given a device, but ONNX Runtime {ort.__version__} cannot use it: "
                f"the node needs a driver for CUDA {ort.cuda_version}, and the image CUDA's and cuDNN's "
                "libraries; the lines above say what is missing"
            )
        return session

    def run(self, outputs: Sequence[str], inputs: Mapping[str, Array], run: Run) -> list[Array]:
        """Infer. Raises ModelInputError or ModelFailedError."""
        try:
            answer = self._run(outputs, inputs, run)
        except InvalidArgument as error:
            raise ModelInputError(_text(error)) from error
        except Exception as error:  # as above
            text = _text(error)
            raise MemoryShortError(text) if is_out_of_memory(text) else ModelFailedError(text) from error
        if self._proven is None and sum(array.nbytes for array in inputs.values()) <= MOST_PROOF_BYTES:
            self._proven = {name: array.copy() for name, array in inputs.items()}
        return answer

    def _run(self, outputs: Sequence[str], inputs: Mapping[str, Array], run: Run) -> list[Array]:
        if self._has_bits:
            return self._run_with_bits(outputs, inputs, run)
        if not self._binds:
            computed: list[Array] = self._session.run(outputs, inputs, run.options)
            return computed
        binding = self._session.io_binding()
        for name, array in inputs.items():
            binding.bind_cpu_input(name, np.ascontiguousarray(array))
        for name in outputs:
            binding.bind_output(name, "cpu")
        self._session.run_with_iobinding(binding, run.options)
        copied: list[Array] = binding.copy_outputs_to_cpu()
        return copied

    def _run_with_bits(self, outputs: Sequence[str], inputs: Mapping[str, Array], run: Run) -> list[Array]:
        values = {name: _value(self.inputs[name], array) for name, array in inputs.items()}
        answers = self._session.run_with_ort_values(outputs, values, run.options)
        return [
            _bits(answer) if self.outputs[name].datatype is BF16 else answer.numpy()
            for name, answer in zip(outputs, answers, strict=True)
        ]

    def warm_up(self, rows: int) -> list[Array]:
        """Run on zeros: so many rows, and 1 for every other free size; what the model answered.

        Raises ModelInputError or ModelFailedError.
        """
        inputs = {spec.name: _zeros(spec, rows) for spec in self.inputs.values()}
        taken = []
        for _ in range(WARM_UP_RUNS):
            started = time.perf_counter()
            answer = self.run(list(self.outputs), inputs, Run())
            taken.append(time.perf_counter() - started)
        self.first_seconds, self.warm_seconds = taken[0], taken[-1]
        self._proven = inputs
        return answer

    def check(self) -> bool:
        """Whether it runs on what it ran on before; False if it never ran on anything.

        Raises ModelBrokenError if it fails on that: then it will on everything. CUDA, for one, answers
        nothing more after an error of a kernel, whichever request caused it. Raises MemoryShortError if it
        could not be tried.
        """
        if self._proven is None:
            return False
        try:
            self.run(list(self.outputs), self._proven, Run())
        except MemoryShortError:
            raise
        except (ModelInputError, ModelFailedError) as error:
            raise ModelBrokenError(
                f"the model ran on {self.provider}, and fails even on zeros now, so that this container ends "
                f"to be started anew; if that comes again, look at the device and its driver: {error}"
            ) from error
        return True

    def memory(self) -> Memory | None:
        """The device's memory; None on the CPU, and if the device does not answer."""
        return None if self._cuda is None else self._cuda.memory()

    def buffer(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array | None:
        """Pinned memory for inputs; None on the CPU, where any array is as good."""
        return None if self._cuda is None else self._cuda.pinned(shape, dtype)


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


def _specs(kind: str, nodes: Sequence[Any]) -> dict[str, TensorSpec]:
    specs = {}
    for node in nodes:
        datatype = BY_ONNX_TYPE.get(node.type)
        if datatype is None:
            raise ModelLoadError(
                f"{kind} {node.name!r} of the model has type {node.type}, which this server cannot carry: "
                f"{advice(node.type)}"
            )
        shape = tuple(size if isinstance(size, int) else -1 for size in node.shape)
        symbols = tuple(_symbol(size) for size in node.shape)
        specs[node.name] = TensorSpec(node.name, datatype, shape, symbols)
    if kind == "output" and not specs:
        raise ModelLoadError(
            "the model has no outputs, so that there is nothing to answer: export it with one"
        )
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


def _zeros(spec: TensorSpec, rows: int) -> Array:
    free = (rows, *(1 for _ in spec.shape[1:]))
    shape = tuple(one if size == -1 else size for one, size in zip(free, spec.shape, strict=False))
    if spec.datatype.numpy is np.object_:
        return np.full(shape, "", dtype=np.object_)
    return np.zeros(shape, dtype=spec.datatype.numpy)


def _text(error: Exception) -> str:
    return " ".join(str(error).split())
