"""Graphs of torch.export as a list of operations of ATen, each run in turn.

An operation is looked up by its name among those of ATen's dispatcher, which are torch's own, and numbers are
computed with a few functions; a graph with any other is refused.
"""

import math
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from tailbound_runtime.engines.pt2_archive import DTYPES
from tailbound_runtime.errors import ModelLoadError

_ATEN: Final = "torch.ops.aten."
_KNOWN: Final = frozenset(torch._C._dispatch_get_all_op_names())
# They map files, or read memory at places that the graph gives and that they do not check.
_REFUSED: Final = ("from_file", "_test", "_sparse", "_nested", "_unsafe_index", "_unsafe_masked")
_NUMBERS: Final[Mapping[str, Callable[..., Any]]] = {
    **{
        f"_operator.{name}": getattr(operator, name)
        for name in (
            *("add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "neg", "pos"),
            *("eq", "ne", "lt", "le", "gt", "ge", "and_", "or_", "lshift", "rshift"),
        )
    },
    "math.trunc": math.trunc,
    **{
        f"torch.sym_{name}": getattr(torch, f"sym_{name}")
        for name in ("int", "float", "max", "min", "not", "ite", "sqrt")
    },
}
_KEYWORD: Final = 2
_MEMORY_FORMATS: Final = {
    1: torch.contiguous_format,
    2: torch.channels_last,
    3: torch.channels_last_3d,
    4: torch.preserve_format,
}


@dataclass(frozen=True)
class Ref:
    """A value of the graph, by its name."""

    name: str


@dataclass(frozen=True)
class Node:
    """One operation.

    arguments, named: constants, Refs, and lists of these
    outputs: the names of its results; a list of names for one that is a list
    dead: values that nothing needs after it
    """

    function: Callable[..., Any]
    arguments: Sequence[Any]
    named: Mapping[str, Any]
    outputs: Sequence[Any]
    dead: Sequence[str]

    @property
    def names(self) -> list[str]:
        """The names of all results."""
        return [name for each in self.outputs for name in (each if isinstance(each, list) else [each])]

    def run(self, values: dict[str, Any]) -> None:
        """Compute, from and into `values`. Raises what torch raises."""
        arguments = [_resolved(each, values) for each in self.arguments]
        named = {name: _resolved(each, values) for name, each in self.named.items()}
        answer = self.function(*arguments, **named)
        several = len(self.outputs) > 1
        for name, value in zip(self.outputs, answer if several else [answer], strict=True):
            if isinstance(name, list):
                values.update(zip(name, value, strict=True))
            else:
                values[name] = value
        for name in self.dead:
            del values[name]


def nodes_of(graph: Mapping[str, Any], results: Sequence[str]) -> Sequence[Node]:
    """The nodes of a graph that has these results. Raises ModelLoadError."""
    needed = set(results)
    nodes: list[Node] = []
    for each in reversed(graph["nodes"]):
        function = _function(each["target"])
        inputs = [(given["name"], _argument(given["arg"]), given.get("kind")) for given in each["inputs"]]
        outputs = [_output(output) for output in each["outputs"]]
        used = {name for _, argument, _ in inputs for name in _names(argument)}
        made = {name for output in outputs for name in (output if isinstance(output, list) else [output])}
        dead = sorted((used | made) - needed)
        needed |= used | made
        positional = [argument for _, argument, kind in inputs if kind != _KEYWORD]
        named = {name: argument for name, argument, kind in inputs if kind == _KEYWORD}
        nodes.append(Node(function, positional, named, outputs, dead))
    return nodes[::-1]


def fault_of(nodes: Sequence[Node], kept: Collection[str]) -> str | None:
    """Why requests would see what others left: a node changes a kept value, or a view of one; None if not."""
    views = set(kept)
    for node in nodes:
        schema = getattr(node.function, "_schema", None)
        if schema is None:
            continue
        for place, argument in enumerate(schema.arguments):
            given = node.arguments[place] if place < len(node.arguments) else node.named.get(argument.name)
            if argument.alias_info is None or views.isdisjoint(_names(given)):
                continue
            if argument.alias_info.is_write:
                return (
                    f"the model changes its own weights or buffers ({schema.name}), so that requests would "
                    "see what others left: call eval() before the export, and leave other changes out"
                )
            views.update(node.names)
    return None


def _function(target: str) -> Callable[..., Any]:
    if target in _NUMBERS:
        return _NUMBERS[target]
    name, _, overload = target.removeprefix(_ATEN).partition(".")
    known = f"aten::{name}" if overload == "default" else f"aten::{name}.{overload}"
    if not target.startswith(_ATEN) or known not in _KNOWN or name.startswith(_REFUSED):
        raise ModelLoadError(
            f"the model has the operation {target}, which is none of ATen that this server runs: export it "
            "without, for example with run_decompositions(), or to ONNX"
        )
    function: Callable[..., Any] = getattr(getattr(torch.ops.aten, name), overload)
    return function


def _argument(written: Mapping[str, Any]) -> Any:
    """A constant, a Ref, or a list of these. Raises ModelLoadError."""
    ((kind, value),) = written.items()
    if kind in _READERS:
        return _READERS[kind](value)
    raise ModelLoadError(
        f"an operation of the model has an argument of kind {kind.removeprefix('as_')}, such as a graph for "
        "control flow, which this server does not run: export it without, or to ONNX"
    )


def _same(value: Any) -> Any:
    return value


def _ref(value: Mapping[str, Any]) -> Ref:
    return Ref(value["name"])


def _number(value: Mapping[str, Any]) -> Any:
    ((kind, found),) = value.items()
    return Ref(found) if kind == "as_name" else found


def _each(read: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    return lambda values: [read(value) for value in values]


def _device(value: Mapping[str, Any]) -> torch.device:
    if value["type"] != "cpu":
        raise ModelLoadError(f"the model makes tensors on {value['type']}: export it on the CPU")
    return torch.device("cpu")


def _layout(value: int) -> torch.layout:
    if value != 7:
        raise ModelLoadError("the model makes tensors that are not dense: export it with dense ones")
    return torch.strided


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "as_none": lambda _: None,
    **dict.fromkeys(
        ("as_int", "as_ints", "as_int_lists", "as_bool", "as_bools", "as_string", "as_strings"), _same
    ),
    "as_float": float,  # infinities and NaN are texts
    "as_floats": _each(float),
    "as_float_lists": _each(_each(float)),
    "as_complex": lambda value: complex(value["real"], value["imag"]),
    "as_tensor": _ref,
    "as_tensors": _each(_ref),
    "as_nested_tensors": _each(_each(_ref)),
    "as_optional_tensor": _argument,
    "as_optional_tensors": _each(_argument),
    **dict.fromkeys(("as_sym_int", "as_sym_float", "as_sym_bool"), _number),
    **dict.fromkeys(("as_sym_ints", "as_sym_floats", "as_sym_bools"), _each(_number)),
    "as_scalar_type": lambda value: DTYPES[value],
    "as_memory_format": lambda value: _MEMORY_FORMATS[value],
    "as_layout": _layout,
    "as_device": _device,
}
"""How arguments of each kind of the schema are read."""


def _output(written: Mapping[str, Any]) -> Any:
    """The name of a result, or a list of names."""
    argument = _argument(written)
    if isinstance(argument, list):
        return [each.name for each in argument]
    return argument.name if isinstance(argument, Ref) else ""


def _names(argument: Any) -> list[str]:
    if isinstance(argument, Ref):
        return [argument.name]
    return [name for each in argument for name in _names(each)] if isinstance(argument, list) else []


def _resolved(argument: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(argument, Ref):
        return values[argument.name]
    return [_resolved(each, values) for each in argument] if isinstance(argument, list) else argument
