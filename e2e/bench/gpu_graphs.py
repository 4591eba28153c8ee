"""The two graphs of `e2e.bench.gpu`, in FP16 with random weights: what they compute has no meaning.

| name | is of the class of | takes of a request | gives |
|---|---|---|---|
| resnet | ResNet-50 | uint8 [n, 3, 224, 224], normalised in the graph | FP16 [n, 1000] |
| bert | BERT-base, 12 layers | int64 [n, 128] | FP16 [n, 768] |
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

IMAGE: Final = (3, 224, 224)
TOKENS: Final = 128
WORDS: Final = 30522
WIDTH: Final = 768
HEADS: Final = 12
LAYERS: Final = 12
STAGES: Final = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # width, blocks, stride
CALM: Final = 0.2  # of a branch that is added to what goes around it, so that sums stay small

Array = np.ndarray[Any, Any]


class _Graph:
    """Nodes in the order of their making."""

    def __init__(self) -> None:
        self._dice = np.random.default_rng(5)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node; the name of its output."""
        name = f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def constant(self, array: Array) -> str:
        """A weight; its name."""
        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(array, name))
        return name

    def random(self, *shape: int, spread: float) -> str:
        """A random weight in FP16; its name."""
        return self.constant((self._dice.standard_normal(shape, np.float32) * spread).astype(np.float16))

    def write(self, path: Path, one: tuple[int, int, Sequence[int]], out: str, width: int) -> Path:
        """Write a model with one input (its type and its shape without rows) and one output."""
        _, kind, shape = one
        self._nodes.append(helper.make_node("Identity", [out], ["y"]))
        graph = helper.make_graph(
            self._nodes,
            path.stem,
            [helper.make_tensor_value_info("x", kind, ["n", *shape])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT16, ["n", width])],
            self._weights,
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        path.write_bytes(made.SerializeToString())
        return path


def resnet(path: Path) -> Path:
    """Write the image model."""
    graph = _Graph()

    def convolved(value: str, into: int, size: int, stride: int, width: int, gain: float = 1.0) -> str:
        weights = graph.random(into, width, size, size, spread=gain * (2 / (width * size * size)) ** 0.5)
        bias = graph.constant(np.zeros(into, np.float16))
        pads = [size // 2] * 4
        return graph.add(
            "Conv", value, weights, bias, kernel_shape=[size, size], strides=[stride, stride], pads=pads
        )

    value = graph.add("Cast", "x", to=TensorProto.FLOAT16)
    for kind, numbers in (("Sub", (123.7, 116.3, 103.5)), ("Div", (58.4, 57.1, 57.4))):
        value = graph.add(kind, value, graph.constant(np.array(numbers, np.float16).reshape(1, 3, 1, 1)))
    value = graph.add("Relu", convolved(value, 64, 7, 2, 3))
    value = graph.add("MaxPool", value, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    width = 64
    for inner, blocks, first in STAGES:
        for block in range(blocks):
            stride = first if block == 0 else 1
            branch = graph.add("Relu", convolved(value, inner, 1, 1, width))
            branch = graph.add("Relu", convolved(branch, inner, 3, stride, inner))
            branch = convolved(branch, 4 * inner, 1, 1, inner, CALM)
            around = convolved(value, 4 * inner, 1, stride, width) if block == 0 else value
            value = graph.add("Relu", graph.add("Add", branch, around))
            width = 4 * inner
    value = graph.add("Flatten", graph.add("GlobalAveragePool", value))
    out = graph.add("MatMul", value, graph.random(width, 1000, spread=width**-0.5))
    return graph.write(path, (0, TensorProto.UINT8, IMAGE), out, 1000)


def bert(path: Path) -> Path:
    """Write the text model."""
    graph = _Graph()
    side = WIDTH // HEADS

    def dense(value: str, width: int, into: int, gain: float = 1.0) -> str:
        product = graph.add("MatMul", value, graph.random(width, into, spread=gain * width**-0.5))
        return graph.add("Add", product, graph.constant(np.zeros(into, np.float16)))

    def normal(value: str) -> str:
        ones, zeros = graph.constant(np.ones(WIDTH, np.float16)), graph.constant(np.zeros(WIDTH, np.float16))
        return graph.add("LayerNormalization", value, ones, zeros, axis=-1, epsilon=1e-5)

    apart = graph.constant(np.array([0, 0, HEADS, side], np.int64))
    joined = graph.constant(np.array([0, 0, WIDTH], np.int64))
    scale = graph.constant(np.array(side**-0.5, np.float16))

    def heads(value: str, order: Sequence[int]) -> str:
        return graph.add("Transpose", graph.add("Reshape", dense(value, WIDTH, WIDTH), apart), perm=order)

    value = graph.add("Gather", graph.random(WORDS, WIDTH, spread=1.0), "x")
    value = normal(graph.add("Add", value, graph.random(TOKENS, WIDTH, spread=1.0)))
    for _ in range(LAYERS):
        scores = graph.add("MatMul", heads(value, (0, 2, 1, 3)), heads(value, (0, 2, 3, 1)))
        shares = graph.add("Softmax", graph.add("Mul", scores, scale), axis=-1)
        mixed = graph.add("MatMul", shares, heads(value, (0, 2, 1, 3)))
        mixed = graph.add("Reshape", graph.add("Transpose", mixed, perm=(0, 2, 1, 3)), joined)
        value = normal(graph.add("Add", value, dense(mixed, WIDTH, WIDTH)))
        inner = graph.add("Gelu", dense(value, WIDTH, 4 * WIDTH))
        value = normal(graph.add("Add", value, dense(inner, 4 * WIDTH, WIDTH)))
    first = graph.add("Gather", value, graph.constant(np.array(0, np.int64)), axis=1)
    out = graph.add("Tanh", dense(first, WIDTH, WIDTH))
    return graph.write(path, (0, TensorProto.INT64, (TOKENS,)), out, WIDTH)


def row(name: str) -> Array:
    """One row for this graph."""
    dice = np.random.default_rng(6)
    if name == "resnet":
        return dice.integers(0, 256, (1, *IMAGE), np.uint8)
    return dice.integers(0, WORDS, (1, TOKENS), np.int64)
