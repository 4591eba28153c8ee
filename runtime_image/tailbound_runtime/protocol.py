"""Open Inference Protocol v2 over HTTP: what a request means for one model, and how an answer looks.

A body is JSON, or, where the header Inference-Header-Content-Length says how long that is, JSON and then the
binary tensors of the inputs in their order. With 0 there is no JSON: the body is the only input of the model.
Unknown members and parameters are ignored, as the protocol's extensions require.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tailbound_runtime import binary, json_body, json_data
from tailbound_runtime.batch import rows_of
from tailbound_runtime.binary import Reserve
from tailbound_runtime.engine import TensorSpec
from tailbound_runtime.errors import ApiError
from tailbound_runtime.json_data import LongData
from tailbound_runtime.scheduling import scheduling_of
from tailbound_runtime.signature import InferRequest, Signature
from tailbound_runtime.tensors import Array, as_written, parse_shape

_LONG_OUTPUT: Final = json_data.PIECE // 4  # elements

Body = bytes | bytearray | memoryview
"""A view only with binary tensors."""


@dataclass(slots=True, eq=False)
class Answer:
    """The body of a successful answer, in parts.

    json_length: bytes of JSON before the binary tensors; None without any
    """

    parts: Sequence[bytes | memoryview]
    json_length: int | None


def parse_infer(body: Body, json_length: int | None, signature: Signature, reserve: Reserve) -> InferRequest:
    """Raises ApiError that names what is wrong, and what `reserve` raises."""
    if json_length == 0:
        return _raw(body, signature)
    if json_length is not None and json_length > len(body):
        raise ApiError(
            400,
            f"Inference-Header-Content-Length is {json_length}, but the body has {len(body)} bytes only",
        )
    request = json_body.parse(_own(body) if json_length is None else bytes(body[:json_length]))
    identity = request.get("id")
    if identity is not None and not isinstance(identity, str):
        raise ApiError(400, f"'id' must be a string, not {orjson.dumps(identity).decode()[:40]}")
    parameters = _parameters("the request", request)
    scheduling = scheduling_of(parameters)
    tail = None if json_length is None else memoryview(body)[json_length:]
    inputs = _inputs(request.get("inputs"), signature.inputs, tail, reserve)
    outputs, in_binary = _outputs(
        request.get("outputs"), signature.outputs, parameters.get("binary_data_output") is True
    )
    return InferRequest(
        id=identity or None,
        inputs=inputs,
        outputs=outputs,
        rows=rows_of(inputs, signature.inputs, signature.batching),
        binary=in_binary,
        priority=scheduling.priority,
        timeout_seconds=scheduling.timeout_seconds,
    )


def _own(body: Body) -> bytes | bytearray:
    return bytes(body) if isinstance(body, memoryview) else body


def is_long(request: InferRequest, signature: Signature, arrays: Sequence[Array]) -> bool:
    """Whether it takes noticeable time to write this answer."""
    size = 0
    for array in arrays:
        size += array.size
    if size <= _LONG_OUTPUT:
        return False
    slow = (
        array.size
        for name, array in zip(request.outputs, arrays, strict=True)
        if name not in request.binary or signature.outputs[name].datatype.is_text
    )
    return sum(slow) > _LONG_OUTPUT


def infer_response(request: InferRequest, signature: Signature, arrays: Sequence[Array]) -> Answer:
    """The successful answer."""
    answer: dict[str, Any] = {"model_name": signature.name, "model_version": signature.version}
    if request.id is not None:
        answer["id"] = request.id
    outputs: list[dict[str, Any]] = []
    tail: list[bytes | memoryview] = []
    for name, array in zip(request.outputs, arrays, strict=True):
        datatype = signature.outputs[name].datatype
        output: dict[str, Any] = {"name": name, "datatype": datatype.name, "shape": array.shape}
        if name in request.binary:
            tail.append(binary.to_bytes(datatype, array))
            output["parameters"] = {"binary_data_size": len(tail[-1])}
        elif array.size > _LONG_OUTPUT:
            output["data"] = orjson.Fragment(json_data.encode_long(datatype, array))
        else:
            output["data"] = json_data.encode(datatype, array)
        outputs.append(output)
    answer["outputs"] = outputs
    head = orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
    return Answer((head, *tail), len(head) if request.binary else None)


def _raw(body: Body, signature: Signature) -> InferRequest:
    """The whole body as the only input: one row, and at most one other free size, which its length gives."""
    if len(signature.inputs) != 1:
        raise ApiError(
            400,
            "Inference-Header-Content-Length is 0, which sends the only input of a model as the whole body, "
            f"but this model takes {_names(signature.inputs)}",
        )
    (spec,) = signature.inputs.values()
    where = f"input {spec.name!r}"
    if spec.datatype.is_text:
        element = binary.text(where, 0, bytes(body))
        array = json_data.decode(where, spec.datatype, (1,) * len(spec.shape), [element])
    else:
        array = binary.from_bytes(where, spec.datatype, _raw_shape(where, spec, len(body)), memoryview(body))
    inputs = {spec.name: array}
    rows = rows_of(inputs, signature.inputs, signature.batching)
    outputs = tuple(signature.outputs)
    return InferRequest(None, inputs, outputs, rows, frozenset(outputs))


def _raw_shape(where: str, spec: TensorSpec, size: int) -> tuple[int, ...]:
    shape = tuple(1 if axis == 0 and one == -1 else one for axis, one in enumerate(spec.shape))
    free = shape.count(-1)
    if free > 1:
        raise ApiError(
            400, f"{where} has shape {list(spec.shape)}, which a raw body does not tell: send 'shape' in JSON"
        )
    known = math.prod(one for one in shape if one != -1) * spec.datatype.item_bytes
    return tuple(size // max(1, known) if one == -1 else one for one in shape)


def _parameters(where: str, holder: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = holder.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise ApiError(400, f"{where}: 'parameters' must be an object")
    if "shared_memory_region" in parameters:
        raise ApiError(400, f"{where}: this server has no shared memory: send the tensor itself")
    return parameters


def _entries(member: str, value: object) -> list[tuple[str, Mapping[str, Any]]]:
    """The named objects of `inputs` or `outputs`, in order; no name twice."""
    if not isinstance(value, list):
        raise ApiError(400, f"'{member}' must be a list of objects with a 'name'")
    entries: dict[str, Mapping[str, Any]] = {}
    for index, entry in enumerate(value):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise ApiError(400, f"'{member}'[{index}] must be an object with a 'name'")
        if entry["name"] in entries:
            raise ApiError(400, f"'{member}'[{index}]: {entry['name']!r} is there twice")
        entries[entry["name"]] = entry
    return list(entries.items())


def _inputs(
    value: object, specs: Mapping[str, TensorSpec], tail: memoryview | None, reserve: Reserve
) -> dict[str, Array]:
    if value is None:
        raise ApiError(400, f"'inputs' is missing: this model takes {_names(specs)}")
    arrays: dict[str, Array] = {}
    at = 0
    for index, (name, entry) in enumerate(_entries("inputs", value)):
        spec = specs.get(name)
        if spec is None:
            raise ApiError(400, f"the model has no input {name!r}: it takes {_names(specs)}")
        size = _binary_size(f"'inputs'[{index}]", entry)
        shape = _shape(spec, entry)
        if size is None:
            arrays[name] = _from_json(spec, shape, entry, reserve)
        else:
            arrays[name] = from_tail(spec, shape, _part(spec, tail, at, size), reserve)
            at += size
    missing = [name for name in specs if name not in arrays]
    if missing:
        raise ApiError(400, f"input {missing[0]!r} is missing: this model takes {_names(specs)}")
    check_symbols(specs, arrays)
    if tail is not None and at != len(tail):
        raise ApiError(
            400,
            f"{len(tail)} bytes follow the JSON, but the inputs' 'binary_data_size' sum up to {at}",
        )
    return arrays


def check_symbols(specs: Mapping[str, TensorSpec], arrays: Mapping[str, Array]) -> None:
    """Raises ApiError 400 unless sizes that the model calls by one name are equal."""
    seen: dict[str, tuple[str, int]] = {}
    for name, array in arrays.items():
        for symbol, size in zip(specs[name].symbols, array.shape, strict=False):
            if symbol is None:
                continue
            first, known = seen.setdefault(symbol, (name, size))
            if known != size:
                raise ApiError(
                    400,
                    f"input {name!r} has shape {list(array.shape)}, but its size {symbol!r} is {known} in "
                    f"input {first!r}, and the model wants one size for both",
                )


def _binary_size(where: str, entry: Mapping[str, Any]) -> int | None:
    """What the input says of its binary tensor; None if it has none."""
    size = _parameters(where, entry).get("binary_data_size")
    if size is None:
        return None
    if type(size) is not int or size < 0:
        raise ApiError(400, f"{where}: 'binary_data_size' is {as_written(size)}, which is no number of bytes")
    if "data" in entry:
        raise ApiError(400, f"{where} has both 'data' and 'binary_data_size': send one")
    return size


def _shape(spec: TensorSpec, entry: Mapping[str, Any]) -> tuple[int, ...]:
    """The input's shape, once it and its datatype are found to be the model's."""
    where = f"input {spec.name!r}"
    datatype = entry.get("datatype")
    if datatype != spec.datatype.name:
        found = f"{datatype!r}" if isinstance(datatype, str) else "missing or no string"
        raise ApiError(400, f"{where}: 'datatype' is {found}, but the model takes {spec.datatype.name!r}")
    if "shape" not in entry:
        raise ApiError(
            400, f"{where}: 'shape' is missing; the model takes {list(spec.shape)}, -1 being any size"
        )
    shape = parse_shape(where, entry["shape"])
    spec.check(where, shape)
    return shape


def _part(spec: TensorSpec, tail: memoryview | None, at: int, size: int) -> memoryview:
    if tail is None:
        raise ApiError(
            400,
            f"input {spec.name!r} is a binary tensor, but the header Inference-Header-Content-Length, which "
            "says where the JSON ends, is missing",
        )
    if at + size > len(tail):
        raise ApiError(
            400,
            f"input {spec.name!r}: 'binary_data_size' is {size}, but only {len(tail) - at} bytes are left",
        )
    return tail[at : at + size]


def from_tail(spec: TensorSpec, shape: tuple[int, ...], raw: memoryview, reserve: Reserve) -> Array:
    """The tensor whose bytes these are. Raises ApiError 400, and what `reserve` raises."""
    if spec.datatype.is_text:
        reserve(len(raw) // binary.LENGTH_BYTES * binary.TEXT_BYTES)
    return binary.from_bytes(f"input {spec.name!r}", spec.datatype, shape, raw)


def _from_json(spec: TensorSpec, shape: tuple[int, ...], entry: Mapping[str, Any], reserve: Reserve) -> Array:
    where = f"input {spec.name!r}"
    if "data" not in entry:
        raise ApiError(400, f"{where}: 'data' is missing: send it, or a binary tensor")
    data = entry["data"]
    if isinstance(data, LongData):
        most = min(math.prod(shape), data.end - data.start)
        reserve(most * (binary.TEXT_BYTES if spec.datatype.is_text else spec.datatype.item_bytes))
    return json_data.decode(where, spec.datatype, shape, data)


def _outputs(
    value: object, specs: Mapping[str, TensorSpec], in_binary: bool
) -> tuple[tuple[str, ...], frozenset[str]]:
    """The outputs to send, and those of them to send as binary tensors; none named means all."""
    binary_of: dict[str, bool] = {}
    for index, (name, entry) in enumerate(_entries("outputs", [] if value is None else value)):
        if name not in specs:
            raise ApiError(400, f"the model has no output {name!r}: it gives {_names(specs)}")
        asked = _parameters(f"'outputs'[{index}]", entry).get("binary_data", in_binary)
        binary_of[name] = asked is True
    names = binary_of or dict.fromkeys(specs, in_binary)
    for name, wanted in names.items():
        if not wanted and not specs[name].datatype.elements:
            raise ApiError(
                400,
                f"output {name!r} has datatype {specs[name].datatype.name}, which has no JSON form in this "
                "protocol: ask for it with the parameter 'binary_data', or name the outputs that you need",
            )
    return tuple(names), frozenset(name for name, wanted in names.items() if wanted)


def _names(specs: Mapping[str, TensorSpec]) -> str:
    return ", ".join(repr(name) for name in specs)
