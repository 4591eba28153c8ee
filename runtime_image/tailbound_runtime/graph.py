"""What an ONNX file says of its model, without running it. Needs the package onnx, which serving does not.

The memory of activations is estimated: each tensor lives from the node that makes it to the last one that
reads it, and the most that lives at once counts. ONNX Runtime joins nodes and reuses buffers, so that it may
take less; what loops and branches hold inside is not counted.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, shape_inference

from tailbound_runtime.errors import ModelLoadError
from tailbound_runtime.mistaken import what_it_is

OWN_DOMAIN: Final = "ai.onnx"
_LARGE_BYTES: Final = 64 * 1024  # a constant of a shape, which the inference of shapes needs, is smaller


@dataclass(frozen=True)
class Operator:
    """One kind of node.

    since: the version of the operator that the opset means; None if ONNX does not know the operator
    decomposes: ONNX defines it by other operators, so that no kernel of its own is needed
    """

    domain: str
    name: str
    since: int | None
    decomposes: bool
    nodes: int

    def __str__(self) -> str:
        """The name with the domain, unless that is ONNX's own."""
        return self.name if self.domain == OWN_DOMAIN else f"{self.domain}.{self.name}"


@dataclass(frozen=True)
class GraphTensor:
    """One input or output. `kind` is ONNX Runtime's name of its type; a dimension is a size, a name or None.

    dimensions: None where the number of dimensions is free
    """

    name: str
    kind: str
    dimensions: tuple[int | str | None, ...] | None

    def __str__(self) -> str:
        """Type and dimensions, for people."""
        sizes = ["..."] if self.dimensions is None else [str(size or "?") for size in self.dimensions]
        return f"{self.name} {self.kind}[{', '.join(sizes)}]"

    @property
    def free(self) -> tuple[str, ...]:
        """The dimensions of every size: their names, or their positions."""
        sizes = enumerate(self.dimensions or ())
        return tuple(size or f"dimension {place}" for place, size in sizes if not isinstance(size, int))


@dataclass(frozen=True)
class Activations:
    """The most bytes that live at once.

    sizes: what the free dimensions were taken to be
    unsized: tensors whose size is not known before a run; they are not in the bytes
    """

    size_bytes: int
    sizes: Mapping[str, int]
    unsized: int


class Graph:
    """A model file. Raises ModelLoadError if it is none."""

    def __init__(self, path: Path) -> None:
        try:
            self._model = onnx.load(str(path), load_external_data=False)
        except Exception as error:  # protobuf's errors share no narrower base
            found = what_it_is(path) or " ".join(str(error).split()) or "it is not protobuf"
            raise ModelLoadError(f"{path} is no ONNX model: {found}") from error
        self.ir_version: int = self._model.ir_version
        self.opsets = {each.domain or OWN_DOMAIN: each.version for each in self._model.opset_import}
        if not self._model.graph.node or not self.opsets:
            raise ModelLoadError(f"{path} is no ONNX model: {what_it_is(path) or 'it has no nodes'}")
        graph = self._model.graph
        stored = {each.name for each in graph.initializer}
        self.inputs = tuple(_tensor(each) for each in graph.input if each.name not in stored)
        self.outputs = tuple(_tensor(each) for each in graph.output)
        self.weight_bytes = sum(map(_tensor_bytes, _weights(graph)))

    @property
    def operators(self) -> tuple[Operator, ...]:
        """The kinds of nodes, the most frequent ones first, with those inside of functions of the model."""
        local = {(each.domain, each.name): each for each in self._model.functions}
        counted: Counter[tuple[str, str]] = Counter()
        for node in _nodes(self._model.graph.node):
            if (node.domain, node.op_type) not in local:
                counted[node.domain or OWN_DOMAIN, node.op_type] += 1
        for function in local.values():
            for node in _nodes(function.node):
                if (node.domain, node.op_type) not in local:
                    counted[node.domain or OWN_DOMAIN, node.op_type] += 1
        return tuple(self._operator(*kind, nodes) for kind, nodes in counted.most_common())

    def _operator(self, domain: str, name: str, nodes: int) -> Operator:
        short = "" if domain == OWN_DOMAIN else domain
        try:
            schema: Any = onnx.defs.get_schema(name, self.opsets.get(domain, 1), short)
        except onnx.defs.SchemaError:
            return Operator(domain, name, None, decomposes=False, nodes=nodes)
        decomposes = schema.has_function or schema.has_context_dependent_function
        return Operator(domain, name, schema.since_version, decomposes, nodes)

    def activations(self, rows: int, free_size: int, sizes: Mapping[str, int]) -> Activations:
        """The estimate for so many rows; `free_size` is that of other free dimensions without a size here.

        The weights are dropped from memory before.
        """
        graph, taken = self._model.graph, dict(sizes)
        for weight in graph.initializer:
            if _tensor_bytes(weight) > _LARGE_BYTES:
                weight.ClearField("raw_data")
                weight.ClearField("float_data")
        del graph.value_info[:]
        for value in graph.output:
            value.type.tensor_type.ClearField("shape")
        known = {each.name for each in self.inputs}
        for value in graph.input:
            if value.name in known:
                _fix(value, rows, free_size, taken)
        try:
            inferred = shape_inference.infer_shapes(self._model, data_prop=True).graph
        except Exception:  # its errors share no narrower base
            inferred = graph
        return _most_alive(inferred, taken)


def _fix(value: Any, rows: int, free_size: int, taken: dict[str, int]) -> None:
    """Give every free dimension of an input its size, and remember the sizes of names."""
    for place, size in enumerate(value.type.tensor_type.shape.dim):
        if size.HasField("dim_value") and size.dim_value >= 0:
            continue
        name = size.dim_param or f"{value.name}[{place}]"
        size.dim_value = taken.setdefault(name, rows if place == 0 else free_size)


def _most_alive(graph: Any, taken: Mapping[str, int]) -> Activations:
    stored = {each.name for each in graph.initializer}
    values = (*graph.input, *graph.value_info, *graph.output)
    known = {each.name: size for each in values if (size := _value_bytes(each)) is not None}
    kept = stored | {each.name for each in (*graph.input, *graph.output)}
    last = {name: place for place, node in enumerate(graph.node) for name in _reads(node)}
    alive = sum(known.get(each.name, 0) for each in graph.input if each.name not in stored)
    most, unsized = alive, 0
    for place, node in enumerate(graph.node):
        made = [name for name in node.output if name]
        unsized += sum(name not in known for name in made)
        alive += sum(known.get(name, 0) for name in made)
        most = max(most, alive)
        done = {name for name in (*_reads(node), *made) if last.get(name, place) == place}
        alive -= sum(known.get(name, 0) for name in done - kept)
    return Activations(most, dict(taken), unsized)


def _reads(node: Any) -> Iterator[str]:
    """What a node reads, the nodes inside of it included."""
    yield from node.input
    for attribute in node.attribute:
        for inner in _graphs(attribute):
            for each in inner.node:
                yield from _reads(each)


def _graphs(attribute: Any) -> Iterable[Any]:
    return (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs)


def _nodes(nodes: Sequence[Any]) -> Iterator[Any]:
    """The nodes, and those inside of them."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for inner in _graphs(attribute):
                yield from _nodes(inner.node)


def _weights(graph: Any) -> Iterator[Any]:
    """The tensors that the file brings, those in constants and inner graphs included."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            for inner in _graphs(attribute):
                yield from _weights(inner)


def _tensor_bytes(tensor: Any) -> int:
    return int(math.prod(tensor.dims)) * _item_bytes(tensor.data_type)


def _value_bytes(value: Any) -> int | None:
    """The size of a tensor; None if it is not known."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape") or not all(size.HasField("dim_value") for size in tensor.shape.dim):
        return None
    return int(math.prod(size.dim_value for size in tensor.shape.dim)) * _item_bytes(tensor.elem_type)


def _item_bytes(kind: int) -> int:
    try:
        return int(np.dtype(helper.tensor_dtype_to_np_dtype(kind)).itemsize)
    except (KeyError, TypeError, ValueError):
        return 4


def _tensor(value: Any) -> GraphTensor:
    kind, tensor = _kind(value.type), value.type.tensor_type
    if value.type.WhichOneof("value") != "tensor_type" or not tensor.HasField("shape"):
        return GraphTensor(value.name, kind, None)
    sizes = tuple(
        size.dim_value if size.HasField("dim_value") and size.dim_value >= 0 else size.dim_param or None
        for size in tensor.shape.dim
    )
    return GraphTensor(value.name, kind, sizes)


def _kind(kind: Any) -> str:
    """ONNX Runtime's name of a type."""
    match kind.WhichOneof("value"):
        case "tensor_type":
            return f"tensor({_element(kind.tensor_type.elem_type)})"
        case "sparse_tensor_type":
            return f"sparse_tensor({_element(kind.sparse_tensor_type.elem_type)})"
        case "sequence_type":
            return f"seq({_kind(kind.sequence_type.elem_type)})"
        case "optional_type":
            return f"optional({_kind(kind.optional_type.elem_type)})"
        case "map_type":
            return f"map({_element(kind.map_type.key_type)},{_kind(kind.map_type.value_type)})"
        case other:
            return str(other)


def _element(kind: int) -> str:
    return str(TensorProto.DataType.Name(kind)).lower()
