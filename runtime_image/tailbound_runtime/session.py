"""The model behind ONNX Runtime. The only module that knows ONNX Runtime, and the place for device use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import onnxruntime as ort
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from tailbound_runtime.errors import ModelBrokenError, ModelFailedError, ModelInputError, ModelLoadError
from tailbound_runtime.tensors import BY_ONNX_TYPE, Array, Datatype

CPU: Final = "CPUExecutionProvider"
CUDA: Final = "CUDAExecutionProvider"

ERRORS_ONLY: Final = 3  # ONNX Runtime's severity; its lines are not JSON
WARM_UP_RUNS: Final = 3  # the first run allocates, the second plans memory, the third is as later ones are


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of the model. shape: -1 where the size is free."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]

    def admits(self, shape: tuple[int, ...]) -> bool:
        """Whether a tensor of `shape` may go in.

        ONNX Runtime reports a scalar and an unknown rank alike, as (): then the model itself must judge.
        """
        if not self.shape:
            return True
        return len(shape) == len(self.shape) and all(
            wanted in (-1, size) for wanted, size in zip(self.shape, shape, strict=True)
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
        """Whether it was told to stop."""
        return bool(self._options.terminate)

    def stop(self) -> None:
        """Make the running inference return soon, with an error. It stops between two nodes of the graph."""
        self._options.terminate = True


class Session:
    """A loaded model."""

    def __init__(self, session: ort.InferenceSession) -> None:
        self._session = session
        self.inputs: Mapping[str, TensorSpec] = _specs("input", session.get_inputs())
        self.outputs: Mapping[str, TensorSpec] = _specs("output", session.get_outputs())
        self.provider: str = session.get_providers()[0]
        self._proven: int | None = None

    @classmethod
    def load(cls, path: Path, cpu_limit: int, providers: Sequence[str]) -> Self:
        """Load a model file, to run on the first of `providers`.

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
        try:
            # Its fallback would move to the CPU, now or when the device fails later, and tell nobody.
            session = cls(
                ort.InferenceSession(path, options, providers=list(providers), enable_fallback=False)
            )
        except ModelLoadError:
            raise
        except Exception as error:  # ONNX Runtime's errors share no narrower base
            raise ModelLoadError(
                f"ONNX Runtime {ort.__version__} cannot load {path}: {_text(error)}"
            ) from error
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
            return self._session.run(outputs, inputs, run.options)  # type: ignore[no-any-return]
        except InvalidArgument as error:
            raise ModelInputError(_text(error)) from error
        except Exception as error:  # as above
            raise ModelFailedError(_text(error)) from error

    def warm_up(self, rows: int) -> list[Array]:
        """Run on zeros: so many rows, and 1 for every other free size; what the model answered.

        Raises ModelInputError or ModelFailedError.
        """
        answer = [self._on_zeros(rows) for _ in range(WARM_UP_RUNS)][-1]
        self._proven = rows
        return answer

    def check(self) -> None:
        """Raises ModelBrokenError if it fails on what it was warmed up with: then it will on everything.

        CUDA, for one, does not get over an error that a kernel had, whoever's it was.
        """
        if self._proven is None:
            return
        try:
            self._on_zeros(self._proven)
        except (ModelInputError, ModelFailedError) as error:
            raise ModelBrokenError(
                f"the model ran on {self.provider}, and fails even on zeros now, so that this container ends "
                f"to be started anew; if that comes again, look at the device and its driver: {error}"
            ) from error

    def _on_zeros(self, rows: int) -> list[Array]:
        inputs = {spec.name: _zeros(spec, rows) for spec in self.inputs.values()}
        return self.run(list(self.outputs), inputs, Run())


def choose_providers(available: Sequence[str], device_visible: bool) -> list[str]:
    """CUDA before CPU, if this build has it and a device is there; else CPU alone."""
    return [CUDA, CPU] if device_visible and CUDA in available else [CPU]


def available_providers() -> list[str]:
    """What this build of ONNX Runtime contains."""
    return list(ort.get_available_providers())


def nvidia_device_visible(dev: Path = Path("/dev")) -> bool:
    """Whether the container was given an NVIDIA device."""
    return any(dev.glob("nvidia[0-9]*"))


def _specs(kind: str, nodes: Sequence[Any]) -> dict[str, TensorSpec]:
    specs = {}
    for node in nodes:
        datatype = BY_ONNX_TYPE.get(node.type)
        if datatype is None:
            raise ModelLoadError(
                f"{kind} {node.name!r} of the model has type {node.type}, which this server cannot carry: "
                "export the model with plain tensors only (from scikit-learn: with the option zipmap=False)"
            )
        shape = tuple(size if isinstance(size, int) else -1 for size in node.shape)
        specs[node.name] = TensorSpec(node.name, datatype, shape)
    return specs


def _zeros(spec: TensorSpec, rows: int) -> Array:
    free = (rows, *(1 for _ in spec.shape[1:]))
    shape = tuple(one if size == -1 else size for one, size in zip(free, spec.shape, strict=False))
    if spec.datatype.numpy is np.object_:
        return np.full(shape, "", dtype=np.object_)
    return np.zeros(shape, dtype=spec.datatype.numpy)


def _text(error: Exception) -> str:
    return " ".join(str(error).split())
