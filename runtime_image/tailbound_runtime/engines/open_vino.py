"""OpenVINO IR and ONNX models on OpenVINO.

It computes in FP32 where the model says FP32: its own default is BF16 on CPUs that have it. A run is stopped
between two nodes of the graph. It is imported without its telemetry, which would send an event at each import
and write into the home folder.
"""

import sys
from collections.abc import Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final

import numpy as np

from tailbound_runtime.devices import choose_device, device_visible
from tailbound_runtime.engine import CPU, Engine, Loaded, Order, Run, TensorSpec, one_line
from tailbound_runtime.errors import ModelFailedError, ModelLoadError
from tailbound_runtime.mistaken import check_kind
from tailbound_runtime.tensors import BY_NAME, Array, Datatype

sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

import openvino as ov  # noqa: E402

# BF16 has no array of its own in OpenVINO's Python, and its text tensors crash the process.
_DATATYPES: Final[Mapping[str, Datatype]] = {
    "boolean": BY_NAME["BOOL"],
    "i8": BY_NAME["INT8"],
    "i16": BY_NAME["INT16"],
    "i32": BY_NAME["INT32"],
    "i64": BY_NAME["INT64"],
    "u8": BY_NAME["UINT8"],
    "u16": BY_NAME["UINT16"],
    "u32": BY_NAME["UINT32"],
    "u64": BY_NAME["UINT64"],
    "f16": BY_NAME["FP16"],
    "f32": BY_NAME["FP32"],
    "f64": BY_NAME["FP64"],
}


class OpenVino(Loaded):
    """A compiled model, with as many requests of its own kind as runs there were at once."""

    def __init__(self, compiled: Any, model_format: str, device: str) -> None:
        super().__init__(
            _specs("input", compiled.inputs),
            _specs("output", compiled.outputs),
            f"openvino_{model_format}",
            device,
            on_device=device != CPU,
            inlines=False,  # it computes in threads of its own
        )
        self._compiled = compiled
        self._places = {name: place for place, name in enumerate(self.outputs)}
        self._idle: SimpleQueue[Any] = SimpleQueue()

    def _infer(self, outputs: Sequence[str], inputs: Mapping[str, Array], run: Run) -> list[Array]:
        try:
            request = self._idle.get_nowait()
        except Empty:
            request = self._compiled.create_infer_request()
        given = {place: np.ascontiguousarray(inputs[name]) for place, name in enumerate(self.inputs)}
        try:
            # The request reads the arrays where they are, until its next run.
            request.start_async(given, share_inputs=True)
            run.begins(request.cancel)
            request.wait()
            return [np.array(request.get_output_tensor(self._places[name]).data) for name in outputs]
        except RuntimeError as error:
            raise ModelFailedError(_reason(error)) from error
        finally:
            run.ends()
            if not run.stopped:  # else it may still be cancelled
                self._idle.put(request)


def load(order: Order) -> Engine:
    """Load an IR (FILE.xml with FILE.bin beside it) or an ONNX file. Raises ModelLoadError."""
    core = ov.Core()
    device = choose_device("OpenVINO", core.available_devices, device_visible(), order.providers)
    if order.memory_limit is not None:
        raise ModelLoadError(
            f"TAILBOUND_DEVICE_MEMORY_LIMIT is {order.memory_limit}, and OpenVINO knows no limit: unset it"
        )
    _check_files(order)
    try:
        compiled = core.compile_model(core.read_model(order.path), device, _properties(order, device))
    except Exception as error:  # OpenVINO's errors share no narrower base
        raise ModelLoadError(f"OpenVINO {_version()} cannot load {order.path}: {_reason(error)}") from error
    return OpenVino(compiled, order.format, device)


def _version() -> str:
    version: str = ov.__version__
    return version.partition("-")[0]


def _properties(order: Order, device: str) -> Mapping[str, str]:
    if device != CPU:
        return {"INFERENCE_PRECISION_HINT": "f32", **order.device_options}
    return {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": str(order.threads),
        "NUM_STREAMS": "1",
        # A container's CPUs are a quota: pinned threads would all sit on the first cores of the node.
        "ENABLE_CPU_PINNING": "NO",
    }


def _check_files(order: Order) -> None:
    path = order.path
    if order.format != "openvino":
        check_kind(path, "ONNX model")
        return
    check_kind(path, "OpenVINO IR", besides=b"<?xml")
    if path.suffix != ".xml":
        raise ModelLoadError(
            f"{path} is no OpenVINO IR, which is FILE.xml with FILE.bin beside it: upload both into one "
            "folder or archive, and set spec.model.path to the .xml"
        )
    if path.is_file() and not path.with_suffix(".bin").is_file():
        raise ModelLoadError(
            f"{path} has no {path.with_suffix('.bin').name} beside it, which holds its weights: upload both "
            "into one folder or archive"
        )


def _specs(kind: str, ports: Sequence[Any]) -> list[TensorSpec]:
    specs = []
    for place, port in enumerate(ports):
        name = min(port.names, default=f"{kind}_{place}")
        written = port.element_type.get_type_name()
        datatype = _DATATYPES.get(written)
        if datatype is None:
            raise ModelLoadError(
                f"{kind} {name!r} of the model has type {written}, which this server cannot carry on "
                "OpenVINO: convert it to FP32 or FP16 in the model, or serve an ONNX file on ONNX Runtime"
            )
        shape = port.partial_shape
        sizes = () if shape.rank.is_dynamic else tuple(_size(dimension) for dimension in shape)
        specs.append(TensorSpec(name, datatype, sizes, tuple(None for _ in sizes)))
    return specs


def _size(dimension: Any) -> int:
    return int(dimension.get_length()) if dimension.is_static else -1


def _reason(error: Exception) -> str:
    """The error without the places in OpenVINO's source that it came by."""
    lines = [line for line in str(error).splitlines() if not line.startswith("Exception from ")]
    return " ".join(" ".join(lines).split()) or one_line(error)
