"""TensorFlow SavedModels on TensorFlow.

A SavedModel is a program of operations, of which some read and write files: serve those of authors you trust.
It holds no Python. A run cannot be stopped.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from tailbound_runtime.engine import CPU, Engine, Loaded, Order, Run, TensorSpec, one_line
from tailbound_runtime.errors import MemoryShortError, ModelFailedError, ModelInputError, ModelLoadError
from tailbound_runtime.mistaken import check_kind
from tailbound_runtime.tensors import BY_DTYPE, BY_NAME, Array

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # its lines are not JSON; 2: errors only

import tensorflow as tf

FILE: Final = "saved_model.pb"
DEFAULT_SIGNATURE: Final = "serving_default"
_DATATYPES: Final = {
    tf.string: BY_NAME["BYTES"],
    **{tf.as_dtype(dtype): datatype for dtype, datatype in BY_DTYPE.items()},
}


class TensorFlow(Loaded):
    """One signature of a SavedModel."""

    def __init__(self, model: Any, signature: Any) -> None:
        self._model = model  # owns the variables
        self._signature = signature
        super().__init__(
            _specs("input", signature.structured_input_signature[1]),
            _specs("output", signature.structured_outputs),
            "tensorflow_savedmodel",
            CPU,
            inlines=False,  # it stops no run
        )

    def _infer(self, outputs: Sequence[str], inputs: Mapping[str, Array], run: Run) -> list[Array]:
        try:
            given = {name: tf.constant(array) for name, array in inputs.items()}
            answers = self._signature(**given)
            return [self._array(name, answers[name].numpy()) for name in outputs]
        except tf.errors.ResourceExhaustedError as error:
            raise MemoryShortError(one_line(error)) from error
        except (tf.errors.InvalidArgumentError, ValueError) as error:
            raise ModelInputError(one_line(error)) from error
        except tf.errors.OpError as error:
            raise ModelFailedError(one_line(error)) from error

    def _array(self, name: str, answer: Any) -> Array:
        array = np.asarray(answer)
        if not self.outputs[name].datatype.is_text:
            return array
        texts = [text.decode(errors="replace") for text in array.ravel().tolist()]
        return np.array(texts, np.object_).reshape(array.shape)


def load(order: Order) -> Engine:
    """Load the folder of a SavedModel, or the one that has this saved_model.pb. Raises ModelLoadError."""
    order.check_cpu_only("TensorFlow")
    folder = order.path.parent if order.path.name == FILE else order.path
    if not (folder / FILE).is_file():
        raise ModelLoadError(
            f"{order.path} is no SavedModel, which is a folder with {FILE} in it: upload the folder, or an "
            f"archive of it, and set spec.model.path to its {FILE}"
        )
    check_kind(folder / FILE, "SavedModel")
    try:
        tf.config.set_visible_devices([], "GPU")
        tf.config.threading.set_intra_op_parallelism_threads(order.threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        model = tf.saved_model.load(str(folder))
    except Exception as error:  # TensorFlow's errors share no narrower base
        version = tf.__version__
        raise ModelLoadError(f"TensorFlow {version} cannot load {folder}: {one_line(error)}") from error
    return TensorFlow(model, _signature(folder, model.signatures))


def _signature(folder: Path, signatures: Mapping[str, Any]) -> Any:
    names = sorted(signatures)
    if DEFAULT_SIGNATURE in names:
        return signatures[DEFAULT_SIGNATURE]
    if len(names) == 1:
        return signatures[names[0]]
    found = f"the signatures {', '.join(names)}" if names else "no signature"
    raise ModelLoadError(
        f"{folder} has {found}: save it with one named {DEFAULT_SIGNATURE}, as in "
        "tf.saved_model.save(model, folder, signatures=...)"
    )


def _specs(kind: str, tensors: Mapping[str, Any]) -> list[TensorSpec]:
    specs = []
    for name, tensor in sorted(tensors.items()):
        datatype = _DATATYPES.get(tensor.dtype)
        if datatype is None:
            raise ModelLoadError(
                f"{kind} {name!r} of the model has type {tensor.dtype.name}, which this server cannot carry "
                "on TensorFlow: cast it in the signature"
            )
        rank = tensor.shape.rank
        sizes = () if rank is None else tuple(-1 if size is None else int(size) for size in tensor.shape)
        specs.append(TensorSpec(name, datatype, sizes, tuple(None for _ in sizes)))
    return specs
