"""The inputs and outputs of a model, as servers of the Open Inference Protocol state them in its metadata."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tailbound.objects.fields import Object, children, text
from tailbound.objects.unknown import Unknown

ANY_SIZE: Final = -1
"""A dimension of every size."""
_LONGEST_TEXT: Final = 32 * 1024
"""Characters of a signature that is stored: it is an annotation, and all of one object have 256 KiB."""


@dataclass(frozen=True)
class ModelTensor:
    """One input or output."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        """Type and shape, for people: FP32[any, 4]."""
        sizes = ("any" if size == ANY_SIZE else str(size) for size in self.shape)
        return f"{self.datatype}[{', '.join(sizes)}]"


@dataclass(frozen=True)
class ModelSignature:
    """The inputs and outputs of a model, each in the order in which its server lists them."""

    inputs: tuple[ModelTensor, ...]
    outputs: tuple[ModelTensor, ...]

    def text(self) -> str:
        """The signature as it is stored."""
        return json.dumps(
            {
                "inputs": [_listed(tensor) for tensor in self.inputs],
                "outputs": [_listed(tensor) for tensor in self.outputs],
            },
            separators=(",", ":"),
        )


def signature_in(metadata: object) -> ModelSignature | Unknown:
    """The signature in the answer to GET /v2/models/NAME, or what is wrong with it.

    Servers that do not know their model's tensors list none of them.
    """
    if not isinstance(metadata, Mapping):
        return Unknown("its server answers with no metadata of a model")
    inputs, outputs = _tensors(metadata, "inputs"), _tensors(metadata, "outputs")
    if isinstance(inputs, Unknown):
        return inputs
    if isinstance(outputs, Unknown):
        return outputs
    if not inputs or not outputs:
        return Unknown("the metadata of its server lists no inputs or no outputs")
    signature = ModelSignature(inputs, outputs)
    if len(signature.text()) > _LONGEST_TEXT:
        return Unknown(f"its inputs and outputs take more than {_LONGEST_TEXT} characters")
    return signature


def stored_signature(stored: str | None) -> ModelSignature | None:
    """The signature of this text; None where there is none, or not one that was written here."""
    if stored is None:
        return None
    try:
        found = signature_in(json.loads(stored))
    except ValueError:
        return None
    return found if isinstance(found, ModelSignature) else None


def _listed(tensor: ModelTensor) -> dict[str, object]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}


def _tensors(metadata: Object, side: str) -> tuple[ModelTensor, ...] | Unknown:
    listed = metadata.get(side)
    if not isinstance(listed, list):
        return Unknown(f"the metadata of its server has no list of {side}")
    found = [_tensor(each) for each in children(metadata, side)]
    tensors = tuple(each for each in found if each is not None)
    if len(tensors) != len(listed) or len({each.name for each in tensors}) != len(tensors):
        return Unknown(
            f"the metadata of its server lists {side} without a readable name, type or shape of their own"
        )
    return tensors


def _tensor(listed: Object) -> ModelTensor | None:
    name, datatype, shape = text(listed, "name"), text(listed, "datatype"), listed.get("shape")
    readable = name.isprintable() and datatype.isprintable()
    if not name or not datatype or not readable or not isinstance(shape, list):
        return None
    sizes = tuple(size for each in shape if (size := _size(each)) is not None)
    return ModelTensor(name, datatype, sizes) if len(sizes) == len(shape) else None


def _size(stated: object) -> int | None:
    """A dimension. JSON of protobuf has 64-bit integers as strings, and any negative number is any size."""
    try:
        size = int(stated) if isinstance(stated, int | str) and not isinstance(stated, bool) else None
    except ValueError:
        return None
    return max(size, ANY_SIZE) if size is not None else None
