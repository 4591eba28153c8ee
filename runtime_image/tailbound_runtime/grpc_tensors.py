"""Open Inference Protocol v2 over gRPC: what a request means for one model, and how an answer looks.

Tensors come as `raw_input_contents`, one for each input, or in each input's `contents`; never both. The
answer has its tensors as the request has. FP16 and BF16 have no `contents`, and are always raw.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError

from tailbound_runtime import binary
from tailbound_runtime.batch import rows_of
from tailbound_runtime.binary import Reserve
from tailbound_runtime.engine import TensorSpec
from tailbound_runtime.errors import ApiError
from tailbound_runtime.grpc_message import Asked, no_message
from tailbound_runtime.inference_pb2 import (
    InferParameter,
    InferTensorContents,
    ModelInferRequest,
    ModelInferResponse,
)
from tailbound_runtime.protocol import check_symbols
from tailbound_runtime.scheduling import scheduling_of
from tailbound_runtime.signature import InferRequest, Signature
from tailbound_runtime.tensors import Array, Datatype, reshaped

_CONTENTS: Final[Mapping[str, str]] = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
_STEP: Final = 2**14  # elements that are copied while no other thread runs


def message_of(asked: Asked) -> ModelInferRequest:
    """The message without its raw tensors. Raises ApiError."""
    try:
        return ModelInferRequest.FromString(asked.rest)
    except DecodeError:
        raise no_message() from None


def parse(
    message: ModelInferRequest, raw: Sequence[bytes | memoryview], signature: Signature, reserve: Reserve
) -> InferRequest:
    """Raises ApiError that names what is wrong, and what `reserve` raises."""
    if raw and len(raw) != len(message.inputs):
        raise ApiError(400, f"there are {len(message.inputs)} inputs, but {len(raw)} raw_input_contents")
    arrays: dict[str, Array] = {}
    for index, tensor in enumerate(message.inputs):
        spec = signature.inputs.get(tensor.name)
        if spec is None:
            raise ApiError(
                400, f"the model has no input {tensor.name!r}: it takes {', '.join(signature.inputs)}"
            )
        if tensor.name in arrays:
            raise ApiError(400, f"input {tensor.name!r} is there twice")
        arrays[tensor.name] = _tensor(spec, tensor, memoryview(raw[index]) if raw else None, reserve)
    missing = [name for name in signature.inputs if name not in arrays]
    if missing:
        raise ApiError(400, f"input {missing[0]!r} is missing")
    check_symbols(signature.inputs, arrays)
    scheduling = scheduling_of({name: _value(one) for name, one in message.parameters.items()})
    outputs = _outputs([output.name for output in message.outputs], signature)
    return InferRequest(
        id=message.id or None,
        inputs=arrays,
        outputs=outputs,
        rows=rows_of(arrays, signature.inputs, signature.batching),
        binary=frozenset(outputs) if raw else frozenset(),
        priority=scheduling.priority,
        timeout_seconds=scheduling.timeout_seconds,
    )


def response(
    request: InferRequest, signature: Signature, arrays: Sequence[Array]
) -> tuple[ModelInferResponse, list[bytes | memoryview]]:
    """The successful answer, and the raw tensors that belong to it."""
    answer = ModelInferResponse(
        model_name=signature.name, model_version=signature.version, id=request.id or ""
    )
    datatypes = {name: signature.outputs[name].datatype for name in request.outputs}
    in_raw = bool(request.binary) or any(one.name not in _CONTENTS for one in datatypes.values())
    raw: list[bytes | memoryview] = []
    for name, array in zip(request.outputs, arrays, strict=True):
        datatype = datatypes[name]
        output = answer.outputs.add(name=name, datatype=datatype.name, shape=array.shape)
        if in_raw:
            raw.append(binary.to_bytes(datatype, array))
        else:
            flat = array.ravel().tolist()
            elements = [one.encode() if isinstance(one, str) else one for one in flat]
            getattr(output.contents, _CONTENTS[datatype.name]).extend(elements)
    return answer, raw


def _outputs(names: Sequence[str], signature: Signature) -> tuple[str, ...]:
    for name in names:
        if name not in signature.outputs:
            raise ApiError(400, f"the model has no output {name!r}: it gives {', '.join(signature.outputs)}")
    if len(set(names)) < len(names):
        raise ApiError(400, "an output is named twice")
    return tuple(names or signature.outputs)


def _value(parameter: InferParameter) -> object:
    kind = parameter.WhichOneof("parameter_choice")
    return None if kind is None else getattr(parameter, kind)


def _tensor(
    spec: TensorSpec,
    tensor: ModelInferRequest.InferInputTensor,
    raw: memoryview | None,
    reserve: Reserve,
) -> Array:
    where = f"input {spec.name!r}"
    if tensor.datatype != spec.datatype.name:
        raise ApiError(
            400,
            f"{where}: 'datatype' is {tensor.datatype!r}, but the model takes {spec.datatype.name!r}",
        )
    shape = tuple(tensor.shape)
    if any(size < 0 for size in shape):
        raise ApiError(400, f"{where}: shape {list(shape)} has a negative size")
    spec.check(where, shape)
    if "shared_memory_region" in tensor.parameters:
        raise ApiError(400, f"{where}: this server has no shared memory: send the tensor itself")
    if raw is None:
        return _from_contents(where, spec.datatype, shape, tensor.contents, reserve)
    if tensor.HasField("contents"):
        raise ApiError(400, f"{where} has 'contents', but there are raw_input_contents: send one of both")
    if spec.datatype.is_text:
        reserve(len(raw) * binary.TEXT_BYTES // binary.LENGTH_BYTES)
    return binary.from_bytes(where, spec.datatype, shape, raw)


def _from_contents(
    where: str, datatype: Datatype, shape: tuple[int, ...], contents: InferTensorContents, reserve: Reserve
) -> Array:
    field = _CONTENTS.get(datatype.name)
    if field is None:
        raise ApiError(400, f"{where}: {datatype.name} tensors have no 'contents': send raw_input_contents")
    others = [one.name for one, _ in contents.ListFields() if one.name != field]
    if others:
        raise ApiError(400, f"{where}: {datatype.name} elements belong in {field}, but {others[0]} has some")
    elements = getattr(contents, field)
    wanted = math.prod(shape)
    if len(elements) != wanted:
        raise ApiError(
            400, f"{where}: {field} has {len(elements)} elements, but shape {list(shape)} means {wanted}"
        )
    reserve(wanted * (binary.TEXT_BYTES if datatype.is_text else datatype.item_bytes))
    array = np.empty(wanted, datatype.numpy)
    for start in range(0, wanted, _STEP):
        part: list[Any] = elements[start : start + _STEP]
        try:
            if datatype.is_text:
                part = [binary.text(where, start + index, element) for index, element in enumerate(part)]
            array[start : start + len(part)] = part
        except OverflowError:
            raise ApiError(
                400, f"{where}: an element of {field} is not {datatype.described}, as {datatype.name} means"
            ) from None
    return reshaped(where, array, shape)
