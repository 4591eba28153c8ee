"""The engines: which of them runs a model's format, what package each needs, and how it is loaded.

An engine's module is imported when it loads a model: its package may not be there, and is large.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final

from tailbound_runtime.engine import Engine, Order
from tailbound_runtime.errors import ModelLoadError

DEFAULT_ENGINE: Final = "onnxruntime"


@dataclass(frozen=True)
class Kind:
    """One engine.

    name: as in TAILBOUND_ENGINE
    title: for people
    module: below this package; its `load` takes an Order and raises ModelLoadError
    extra: the optional packages of `tailbound-runtime` that it needs; None: they are always there
    formats: that it runs, by the names of TAILBOUND_MODEL_FORMAT
    """

    name: str
    title: str
    module: str
    extra: str | None
    formats: tuple[str, ...]


KINDS: Final = (
    Kind(DEFAULT_ENGINE, "ONNX Runtime", "onnx_runtime", None, ("onnx",)),
    Kind("openvino", "OpenVINO", "open_vino", "openvino", ("openvino", "onnx")),
    Kind("litert", "LiteRT", "lite_rt", "litert", ("tflite",)),
    Kind("xgboost", "XGBoost", "xg_boost", "xgboost", ("xgboost",)),
    Kind("lightgbm", "LightGBM", "light_gbm", "lightgbm", ("lightgbm",)),
    Kind("sklearn", "scikit-learn", "sk_learn", "sklearn", ("skops",)),
    Kind("tensorflow", "TensorFlow", "tensor_flow", "tensorflow", ("savedmodel",)),
    Kind("torch", "PyTorch", "torch_export", "torch", ("pt2",)),
    Kind("jax", "JAX", "jax_export", "jax", ("jax",)),
    Kind("executorch", "ExecuTorch", "execu_torch", "executorch", ("executorch",)),
    Kind("mlx", "MLX", "mlx_function", "mlx", ("mlx",)),
)
"""All engines; the first one of those that run a format is its default."""

FORMATS: Final = tuple(dict.fromkeys(one for kind in KINDS for one in kind.formats))

_PICKLE: Final = (
    "its files are pickles, which run code of their author when they are read, so that this runtime reads "
    "none: convert the model as docs/engines.md says, and set spec.model.format to what it is then"
)
_TORCHSCRIPT: Final = (
    "its files are programs of their author, or pickles, which run and may write files while they are "
    "loaded: export the model with torch.export.save, and set spec.model.format to pt2, or to ONNX"
)
_TVM: Final = (
    "a compiled TVM module is machine code of its author: serve the file that it was compiled from, such as "
    "ONNX, or write a ServingRuntime with a server of your own that has the module"
)
_COREML: Final = (
    "Core ML predicts only on macOS, and nothing runs its files on Linux: export the model that it was "
    "converted from to ONNX or TensorFlow Lite"
)
REFUSED_FORMATS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("sklearn", "pickle", "joblib"), _PICKLE),
    "torchscript": _TORCHSCRIPT,
    "tvm": _TVM,
    "coreml": _COREML,
}
"""Formats that are known and not served, with the reason and the remedy."""
REFUSED_SUFFIXES: Final[Mapping[str, str]] = {
    **dict.fromkeys((".pkl", ".pickle", ".joblib"), _PICKLE),
    **dict.fromkeys((".pt", ".pth"), _TORCHSCRIPT),
    ".so": _TVM,
    **dict.fromkeys((".mlmodel", ".mlpackage"), _COREML),
}
"""How their files are named."""

SUFFIXES: Final[Mapping[str, str]] = {
    ".onnx": "onnx",
    ".xml": "openvino",
    ".tflite": "tflite",
    ".json": "xgboost",
    ".ubj": "xgboost",
    ".txt": "lightgbm",
    ".skops": "skops",
    ".pb": "savedmodel",
    ".pt2": "pt2",
    ".jax": "jax",
    ".pte": "executorch",
    ".mlxfn": "mlx",
}
"""How files of the formats are named."""


def format_of(path: Path) -> str:
    """The format of a model, from its file's name. Raises ModelLoadError."""
    suffix = path.suffix.lower()
    if suffix in REFUSED_SUFFIXES:
        raise ModelLoadError(f"{path}: {REFUSED_SUFFIXES[suffix]}")
    if path.is_dir():  # a repository folder
        return "onnx"
    if suffix not in SUFFIXES:
        known = ", ".join(f"{name} ({ending})" for ending, name in SUFFIXES.items())
        raise ModelLoadError(
            f"the name of {path} says no format that this runtime serves: {known}; --format names one"
        )
    return SUFFIXES[suffix]


def kinds_of(model_format: str) -> tuple[Kind, ...]:
    """The engines that run this format, the default one first; none if it is unknown."""
    return tuple(kind for kind in KINDS if model_format in kind.formats)


def load(kind: Kind, order: Order) -> Engine:
    """The loaded model. Raises ModelLoadError, also if the engine's packages are not installed."""
    # OpenMP reads it when it is loaded: threads that spin use up the CPU quota, and hold up short runs most.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        module = import_module(f"{__name__}.{kind.module}")
    except (ImportError, OSError) as error:  # the second one: of a library that a package needs
        raise _missing(kind, order, error) from error
    loader: Callable[[Order], Engine] = module.load
    try:
        return loader(order)
    except ImportError as error:  # in a process that the engine has begun
        raise _missing(kind, order, error) from error


def _missing(kind: Kind, order: Order, error: Exception) -> ModelLoadError:
    return ModelLoadError(
        f"format {order.format} needs {kind.title}, which cannot be imported here ({error}): "
        f"pip install 'tailbound-runtime[{kind.extra}]', or build the image with "
        f"--build-arg ENGINES={kind.extra}"
    )
