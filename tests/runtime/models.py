"""Small generated ONNX models, and one real one."""

from collections.abc import Sequence
from pathlib import Path

import magika
import numpy as np
import onnx
from onnx import TensorProto, helper

Dims = Sequence[int | str] | None


def tensor(name: str, kind: int, dims: Dims) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, dims)


def save(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
) -> Path:
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())
    return path


def identity(path: Path, kind: int, dims: Dims = ("n", 2)) -> Path:
    """y = x of one type."""
    return save(
        path,
        [helper.make_node("Identity", ["x"], ["y"])],
        [tensor("x", kind, dims)],
        [tensor("y", kind, dims)],
    )


def arithmetic(path: Path) -> Path:
    """sum = a + b and product = a * b, both FP32 [n, 4]."""
    dims = ("n", 4)
    return save(
        path,
        [helper.make_node("Add", ["a", "b"], ["sum"]), helper.make_node("Mul", ["a", "b"], ["product"])],
        [tensor("a", TensorProto.FLOAT, dims), tensor("b", TensorProto.FLOAT, dims)],
        [tensor("sum", TensorProto.FLOAT, dims), tensor("product", TensorProto.FLOAT, dims)],
    )


def unary(path: Path, operator: str) -> Path:
    """y = operator(x), FP32 [n]."""
    return save(
        path,
        [helper.make_node(operator, ["x"], ["y"])],
        [tensor("x", TensorProto.FLOAT, ["n"])],
        [tensor("y", TensorProto.FLOAT, ["n"])],
    )


def scaled(path: Path) -> Path:
    """y = x * factor, where factor is a scalar."""
    return save(
        path,
        [helper.make_node("Mul", ["x", "factor"], ["y"])],
        [tensor("x", TensorProto.FLOAT, ["n"]), tensor("factor", TensorProto.FLOAT, [])],
        [tensor("y", TensorProto.FLOAT, ["n"])],
    )


def reshaping(path: Path) -> Path:
    """y = x in the shape `wanted`, where a 0 stands for the size that x has there."""
    return save(
        path,
        [helper.make_node("Reshape", ["x", "wanted"], ["y"])],
        [tensor("x", TensorProto.FLOAT, ["n", 2]), tensor("wanted", TensorProto.INT64, [2])],
        [tensor("y", TensorProto.FLOAT, ["a", "b"])],
    )


def lookup(path: Path) -> Path:
    """y = rows of a table of three by index; an index beyond it makes ONNX Runtime refuse the input."""
    table = helper.make_tensor("table", TensorProto.FLOAT, [3], [10.0, 20.0, 30.0])
    return save(
        path,
        [
            helper.make_node("Constant", [], ["t"], value=table),
            helper.make_node("Gather", ["t", "i"], ["y"]),
        ],
        [tensor("i", TensorProto.INT64, ["n"])],
        [tensor("y", TensorProto.FLOAT, ["n"])],
    )


def large_table(path: Path) -> int:
    """y = rows of a table by index, whose 2.25 GiB are in a file beside; the index of its last row.

    The first row is 0 to 3, the last one 4 to 7, and between them are zeros, which take no disk.
    """
    rows = 9 * 2**24
    weights = path.with_suffix(".bin")
    with weights.open("wb") as file:
        file.write(np.arange(4, dtype=np.float32).tobytes())
        file.seek((rows - 1) * 16)
        file.write(np.arange(4, 8, dtype=np.float32).tobytes())
    table = onnx.TensorProto(name="table", data_type=TensorProto.FLOAT, dims=[rows, 4])
    table.data_location = TensorProto.EXTERNAL
    table.external_data.add(key="location", value=weights.name)
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "i"], ["y"])],
        "g",
        [tensor("i", TensorProto.INT64, ["n"])],
        [tensor("y", TensorProto.FLOAT, ["n", 4])],
        [table],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return rows - 1


def counting(path: Path) -> Path:
    """done = `rounds`, after as many rounds of a 256 x 256 matrix product: as slow as one asks."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["m_in", "m_in"], ["product"]),
            helper.make_node("Softmax", ["product"], ["m_out"], axis=1),
            helper.make_node("Identity", ["go_in"], ["go_out"]),
        ],
        "body",
        [
            tensor("i", TensorProto.INT64, []),
            tensor("go_in", TensorProto.BOOL, []),
            tensor("m_in", TensorProto.FLOAT, [256, 256]),
        ],
        [tensor("go_out", TensorProto.BOOL, []), tensor("m_out", TensorProto.FLOAT, [256, 256])],
    )
    shape = helper.make_tensor("shape", TensorProto.INT64, [2], [256, 256])
    return save(
        path,
        [
            helper.make_node("Constant", [], ["s"], value=shape),
            helper.make_node("ConstantOfShape", ["s"], ["start"]),
            helper.make_node(
                "Constant", [], ["go"], value=helper.make_tensor("g", TensorProto.BOOL, [], [True])
            ),
            helper.make_node("Squeeze", ["rounds"], ["trips"]),
            helper.make_node("Loop", ["trips", "go", "start"], ["end"], body=body),
            helper.make_node("Identity", ["rounds"], ["done"]),
        ],
        [tensor("rounds", TensorProto.INT64, [1])],
        [tensor("done", TensorProto.INT64, [1]), tensor("end", TensorProto.FLOAT, [256, 256])],
    )


def sequence(path: Path) -> Path:
    """A model whose output is no tensor."""
    return save(
        path,
        [helper.make_node("SequenceConstruct", ["x"], ["y"])],
        [tensor("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, ["n"])],
    )


def magika_model() -> Path:
    """Recognises file types: bytes int32[N, 2048] -> target_label float32[N, 214]."""
    return next(Path(magika.__file__).parent.rglob("*.onnx"))
