"""`tailbound-runtime audit MODEL`: whether a model can be served here, and what it needs.

The exit status is 0 if it can be served, and 1 if not.
"""

import argparse
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import onnxruntime as ort
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_opkernel_def

from tailbound_runtime.devices import CPU
from tailbound_runtime.errors import ModelLoadError
from tailbound_runtime.graph import OWN_DOMAIN, Activations, Graph, GraphTensor, Operator
from tailbound_runtime.session import Session, advice, available_providers
from tailbound_runtime.tensors import BY_ONNX_TYPE

_MEBIBYTE: Final = 2**20
_NAMED: Final = 12
"""Operators that the text names."""
_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGT]i?|k)?")
_FACTORS: Final = {
    unit + suffix: base**power
    for power, unit in enumerate("KMGT", start=1)
    for suffix, base in (("", 1000), ("i", 1024))
} | {"k": 1000, "": 1}
Kernels = Mapping[str, Sequence[tuple[str, str, int, int]]]
"""By provider: domain, operator, and the first and last version of each kernel."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes.

    process: of this server before a model is loaded
    loading: the most while the model is loaded: ONNX Runtime holds the file and what it makes of it
    serving: with one run
    """

    process: int
    weights: int
    activations: Activations
    limit: int | None

    @property
    def loading(self) -> int:
        return self.process + 2 * self.weights

    @property
    def serving(self) -> int:
        return self.process + self.weights + self.activations.size_bytes

    @property
    def fits(self) -> bool:
        """Whether both are below the limit, if there is one."""
        return self.limit is None or max(self.loading, self.serving) <= self.limit


@dataclass(frozen=True)
class Audit:
    """What was found.

    lacks: by provider, the operators that it has no kernel for
    errors: why the model cannot be served, each with what to do
    """

    path: str
    ir_version: int
    opsets: Mapping[str, int]
    operators: tuple[Operator, ...]
    inputs: tuple[GraphTensor, ...]
    outputs: tuple[GraphTensor, ...]
    memory: MemoryEstimate
    lacks: Mapping[str, tuple[str, ...]]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]


def main(arguments: Sequence[str], out: Callable[[str], object] = print) -> int:
    """Audit a model, and print what was found. The exit status."""
    given = _parser().parse_args(arguments)
    process = _process_bytes()
    try:
        graph = Graph(given.model)
    except ModelLoadError as error:
        if not given.json:
            raise
        out(json.dumps({"served": False, "errors": [str(error)]}))
        return 1
    activations = graph.activations(given.rows, given.free_size, dict(given.size))
    memory = MemoryEstimate(process, graph.weight_bytes, activations, given.memory)
    found = audited(given.model, graph, memory, kernels(), available_providers())
    out(json.dumps(as_json(found), indent=2) if given.json else text(found))
    return 1 if found.errors else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tailbound-runtime audit", description="Says whether an ONNX model can be served here."
    )
    parser.add_argument("model", type=Path, help="the ONNX file")
    parser.add_argument("--memory", type=quantity, help="what a pod may have, for example 512Mi")
    parser.add_argument("--rows", type=int, default=1, help="of one run (%(default)s)")
    parser.add_argument("--free-size", type=int, default=128, help="of other free dimensions (%(default)s)")
    parser.add_argument(
        "--size", type=_named_size, action="append", default=[], help="NAME=N: of one free dimension"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def quantity(text: str) -> int:
    """Bytes, written as Kubernetes does."""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no amount of memory: write for example 512Mi or 2G")
    return int(float(found[1]) * _FACTORS[found[2] or ""])


def _named_size(text: str) -> tuple[str, int]:
    name, _, size = text.rpartition("=")
    if not name or not size.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} names no size: write for example sequence=128")
    return name, int(size)


def audited(
    path: Path, graph: Graph, memory: MemoryEstimate, known: Kernels, providers: Sequence[str]
) -> Audit:
    """What is to be said about a model. It is loaded if nothing speaks against it before."""
    operators = graph.operators
    lacks = {name: tuple(map(str, _lacking(operators, known[name]))) for name in providers if name in known}
    errors = [*_unservable(graph), *_no_kernel(lacks), *_too_large(memory)]
    if not errors:
        errors += _not_loaded(path)
    warnings = (*_without_json(graph), *_moved(lacks), *_unsized(memory))
    return Audit(
        path=str(path),
        ir_version=graph.ir_version,
        opsets=graph.opsets,
        operators=operators,
        inputs=graph.inputs,
        outputs=graph.outputs,
        memory=memory,
        lacks=lacks,
        errors=tuple(errors),
        warnings=warnings,
    )


def kernels() -> Kernels:
    """The kernels of every provider that this build of ONNX Runtime has."""
    found: dict[str, list[tuple[str, str, int, int]]] = {}
    for each in get_all_opkernel_def():
        first, last = each.version_range
        found.setdefault(each.provider, []).append((each.domain or OWN_DOMAIN, each.op_name, first, last))
    return found


def _lacking(
    operators: Sequence[Operator], kernels_of: Sequence[tuple[str, str, int, int]]
) -> Iterator[Operator]:
    """The operators that a provider has no kernel for, and which no other operators make up."""
    for each in operators:
        versions = [
            (first, last)
            for domain, name, first, last in kernels_of
            if (domain, name) == (each.domain, each.name)
        ]
        fits = any(each.since is None or first <= each.since <= last for first, last in versions)
        if not fits and not each.decomposes:
            yield each


def _unservable(graph: Graph) -> Iterator[str]:
    """Inputs and outputs that no request can carry."""
    for side, tensors in (("input", graph.inputs), ("output", graph.outputs)):
        for each in tensors:
            if each.kind not in BY_ONNX_TYPE:
                yield (
                    f"{side} {each.name} has type {each.kind}, which requests cannot carry: "
                    f"{advice(each.kind)}"
                )
    if not graph.outputs:
        yield "the model has no outputs, so that there is nothing to answer: export it with one"


def _no_kernel(lacks: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Operators that no provider has."""
    nowhere = set.intersection(*(set(names) for names in lacks.values())) if lacks else set[str]()
    for name in sorted(nowhere):
        yield (
            f"operator {name} has no kernel in ONNX Runtime {ort.__version__} for the opset of the model: "
            "export the model with another opset, or without this operator"
        )


def _too_large(memory: MemoryEstimate) -> Iterator[str]:
    if not memory.fits and memory.limit is not None:
        most = max(memory.loading, memory.serving)
        yield (
            f"it needs about {_mebibytes(most)}, and the limit is {_mebibytes(memory.limit)}: set "
            "spec.resources.memory higher, or make the model smaller (tailbound-runtime optimize)"
        )


def _not_loaded(path: Path) -> list[str]:
    try:
        Session.load(path, len(os.sched_getaffinity(0)), [CPU])
    except ModelLoadError as error:
        return [str(error)]
    return []


def _without_json(graph: Graph) -> Iterator[str]:
    for side, tensors in (("input", graph.inputs), ("output", graph.outputs)):
        for each in tensors:
            if each.kind in BY_ONNX_TYPE and not BY_ONNX_TYPE[each.kind].elements:
                yield (
                    f"{side} {each.name} has type {each.kind}, which JSON has no form for: clients must use "
                    "binary tensors or gRPC; a Cast to FP32 in the model lets them use JSON as well"
                )


def _moved(lacks: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    for provider, names in lacks.items():
        if names and provider != CPU:
            yield (
                f"{provider} has no kernel for {', '.join(names)}: these run on the CPU, and tensors are "
                "copied to it and back each time"
            )


def _unsized(memory: MemoryEstimate) -> Iterator[str]:
    if memory.activations.unsized:
        yield (
            f"the sizes of {memory.activations.unsized} tensors depend on the values in a request: the "
            "estimate of activations leaves them out"
        )


def as_json(found: Audit) -> dict[str, Any]:
    """The audit as one object."""
    memory = found.memory
    return {
        **asdict(found),
        "served": not found.errors,
        "memory": {
            **asdict(memory),
            "loading": memory.loading,
            "serving": memory.serving,
            "fits": memory.fits,
        },
        "freeDimensions": _free(found),
    }


def text(found: Audit) -> str:
    """The audit for people."""
    memory = found.memory
    nodes = sum(each.nodes for each in found.operators)
    named = ", ".join(f"{each} {each.nodes}" for each in found.operators[:_NAMED])
    more = len(found.operators) - _NAMED
    taken = ", ".join(f"{name}={size}" for name, size in memory.activations.sizes.items())
    sizes = f" with {taken}" if taken else ""
    limit = f"; the limit is {_mebibytes(memory.limit)}" if memory.limit is not None else ""
    rows = [
        (found.path, "cannot be served" if found.errors else "can be served"),
        ("format", f"IR {found.ir_version}, " + ", ".join(f"{k} {v}" for k, v in found.opsets.items())),
        ("operators", f"{nodes} nodes: {named}" + (f" and {more} more kinds" if more > 0 else "")),
        *(("input", str(each)) for each in found.inputs),
        *(("output", str(each)) for each in found.outputs),
        ("free", ", ".join(_free(found)) or "no dimension"),
        ("weights", _mebibytes(memory.weights)),
        ("activations", f"about {_mebibytes(memory.activations.size_bytes)}{sizes}"),
        (
            "memory",
            f"about {_mebibytes(memory.loading)} while it is loaded, {_mebibytes(memory.serving)} while it "
            f"serves (the server itself: {_mebibytes(memory.process)}){limit}",
        ),
        *(
            (name, "lacks " + ", ".join(lacking) if lacking else "has every operator")
            for name, lacking in found.lacks.items()
        ),
        *(("error", each) for each in found.errors),
        *(("warning", each) for each in found.warnings),
    ]
    return "\n".join(f"{name}: {value}" for name, value in rows)


def _free(found: Audit) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for each in found.inputs for name in each.free))


def _process_bytes() -> int:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _mebibytes(size: int) -> str:
    return f"{size / _MEBIBYTE:.1f} MiB"
