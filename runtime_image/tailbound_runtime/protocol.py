"""Open Inference Protocol v2, JSON only: what a request means for one model, and how an answer looks.

Unknown members and parameters are ignored, as the protocol's extensions require: a client that asks for
binary outputs gets JSON, because this server does not list the binary extension.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tailbound_runtime.batch import Batching, rows_of
from tailbound_runtime.errors import ApiError
from tailbound_runtime.session import TensorSpec
from tailbound_runtime.tensors import Array, decode, encode, parse_shape

MODEL_VERSION: Final = "1"
PLATFORM: Final = "onnxruntime_onnx"


@dataclass(frozen=True)
class Signature:
    """What a model takes and gives, by name, and how its requests are batched.

    inputs: what one request may send
    """

    name: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    batching: Batching

    def metadata(self) -> bytes:
        """The body of GET /v2/models/NAME."""

        def described(specs: Mapping[str, TensorSpec]) -> list[dict[str, Any]]:
            return [{"name": s.name, "datatype": s.datatype.name, "shape": s.shape} for s in specs.values()]

        return orjson.dumps(
            {
                "name": self.name,
                "versions": [MODEL_VERSION],
                "platform": PLATFORM,
                "inputs": described(self.inputs),
                "outputs": described(self.outputs),
            }
        )


@dataclass(frozen=True)
class InferRequest:
    """A request that agrees with the signature.

    id: None if the client gave none
    rows: how much of a batch it makes up
    """

    id: str | None
    inputs: Mapping[str, Array]
    outputs: tuple[str, ...]
    rows: int


def parse_infer(body: bytes, signature: Signature) -> InferRequest:
    """Raises ApiError 400 that names what is wrong."""
    request = _object(body)
    identity = request.get("id")
    if identity is not None and not isinstance(identity, str):
        raise ApiError(400, f"'id' must be a string, not {orjson.dumps(identity).decode()[:40]}")
    _check_parameters("the request", request)
    inputs = _inputs(request.get("inputs"), signature.inputs)
    return InferRequest(
        id=identity or None,
        inputs=inputs,
        outputs=_outputs(request.get("outputs"), signature.outputs),
        rows=rows_of(inputs, signature.inputs, signature.batching),
    )


def infer_response(request: InferRequest, signature: Signature, arrays: Sequence[Array]) -> bytes:
    """The body of a successful answer. Raises ApiError if an output has no JSON form."""
    answer: dict[str, Any] = {"model_name": signature.name, "model_version": MODEL_VERSION}
    if request.id is not None:
        answer["id"] = request.id
    outputs = []
    for name, array in zip(request.outputs, arrays, strict=True):
        datatype = signature.outputs[name].datatype
        data = encode(name, datatype, array)
        outputs.append({"name": name, "datatype": datatype.name, "shape": array.shape, "data": data})
    answer["outputs"] = outputs
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)


def _object(body: bytes) -> dict[str, Any]:
    if not body:
        raise ApiError(400, "the request body is empty: send a JSON object with 'inputs'")
    try:
        request = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        hint = " (NaN and Infinity are not JSON)" if b"NaN" in body or b"Infinity" in body else ""
        raise ApiError(400, f"the request body is not JSON: {error}{hint}") from None
    if not isinstance(request, dict):
        raise ApiError(400, "the request body must be a JSON object with 'inputs'")
    return request


def _check_parameters(where: str, holder: Mapping[str, Any]) -> None:
    parameters = holder.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise ApiError(400, f"{where}: 'parameters' must be an object")


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
        _check_parameters(f"'{member}'[{index}]", entry)
        entries[entry["name"]] = entry
    return list(entries.items())


def _inputs(value: object, specs: Mapping[str, TensorSpec]) -> dict[str, Array]:
    if value is None:
        raise ApiError(400, f"'inputs' is missing: this model takes {_names(specs)}")
    arrays: dict[str, Array] = {}
    for name, entry in _entries("inputs", value):
        spec = specs.get(name)
        if spec is None:
            raise ApiError(400, f"the model has no input {name!r}: it takes {_names(specs)}")
        arrays[name] = _tensor(spec, entry)
    missing = [name for name in specs if name not in arrays]
    if missing:
        raise ApiError(400, f"input {missing[0]!r} is missing: this model takes {_names(specs)}")
    return arrays


def _tensor(spec: TensorSpec, entry: Mapping[str, Any]) -> Array:
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
    if not spec.admits(shape):
        raise ApiError(
            400,
            f"{where}: shape {list(shape)} does not fit the model's {list(spec.shape)}, -1 being any size",
        )
    if "data" not in entry:
        binary = "binary_data_size" in (entry.get("parameters") or {})
        reason = (
            "it is sent as a binary tensor, which this server does not take: send JSON"
            if binary
            else "send it"
        )
        raise ApiError(400, f"{where}: 'data' is missing: {reason}")
    return decode(where, spec.datatype, shape, entry["data"])


def _outputs(value: object, specs: Mapping[str, TensorSpec]) -> tuple[str, ...]:
    """The outputs to send; none named means all."""
    names = [name for name, _ in _entries("outputs", [] if value is None else value)]
    for name in names:
        if name not in specs:
            raise ApiError(400, f"the model has no output {name!r}: it gives {_names(specs)}")
    return tuple(names or specs)


def _names(specs: Mapping[str, TensorSpec]) -> str:
    return ", ".join(repr(name) for name in specs)
