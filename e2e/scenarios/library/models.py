"""Tiny ONNX models whose answers tell which of them replied: y = slope * x + offset."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper

INPUT = "x"
OUTPUT = "y"


@dataclass(frozen=True)
class Model:
    """A model file and the name it has in the store."""

    name: str
    content: bytes

    @property
    def sha256(self) -> str:
        """What `spec.model.sha256` has to say."""
        return hashlib.sha256(self.content).hexdigest()

    def expected(self, values: Sequence[float]) -> list[float]:
        """What onnxruntime itself answers, without any server around it."""
        session = onnxruntime.InferenceSession(self.content, providers=["CPUExecutionProvider"])
        (result,) = session.run([OUTPUT], {INPUT: numpy.asarray([values], dtype=numpy.float32)})
        return [float(value) for value in result[0]]


def file_of(name: str, graph: onnx.GraphProto) -> Model:
    """The file that holds this graph; its bytes depend on nothing else."""
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    return Model(name=f"{name}.onnx", content=model.SerializeToString(deterministic=True))


def affine(name: str, slope: float, offset: float = 0.0, source: str = INPUT) -> Model:
    """A model of rows of any length, whose input is named `source`; nothing else is in its bytes."""
    graph = helper.make_graph(
        nodes=[
            helper.make_node("Mul", [source, "slope"], ["product"]),
            helper.make_node("Add", ["product", "offset"], [OUTPUT]),
        ],
        name="affine",
        inputs=[helper.make_tensor_value_info(source, TensorProto.FLOAT, ["batch", "width"])],
        outputs=[helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", "width"])],
        initializer=[
            helper.make_tensor("slope", TensorProto.FLOAT, [1], [slope]),
            helper.make_tensor("offset", TensorProto.FLOAT, [1], [offset]),
        ],
    )
    return file_of(name, graph)


def corrupt(name: str) -> Model:
    """A file that no runtime can load, though its digest is as declared."""
    return Model(name=f"{name}.onnx", content=b"this is no model\n" * 64)


def exhausted(name: str) -> Model:
    """A model that does y = x for three runs, as many as it is warmed up with; the next dozen fail.

    Where a number that it draws for each run is large, it asks for a shape that is none. The generator is
    seeded, and what it draws is the same each time that the model is loaded.
    """
    most = helper.make_tensor("most", TensorProto.FLOAT, [1], [0.3])
    graph = helper.make_graph(
        nodes=[
            helper.make_node("RandomUniform", [], ["drawn"], shape=[1], seed=867.0),
            helper.make_node("Constant", [], ["most"], value=most),
            helper.make_node("Greater", ["drawn", "most"], ["too_large"]),
            helper.make_node("Cast", ["too_large"], ["more"], to=TensorProto.INT64),
            helper.make_node("Shape", [INPUT], ["right"]),
            helper.make_node("Add", ["right", "more"], ["shape"]),
            helper.make_node("Reshape", [INPUT, "shape"], [OUTPUT]),
        ],
        name="exhausted",
        inputs=[helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["batch", "width"])],
        outputs=[helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", "width"])],
    )
    return file_of(name, graph)


def infer_body(values: Sequence[float]) -> dict[str, object]:
    """An Open Inference Protocol v2 request for one row."""
    return {
        "inputs": [{"name": INPUT, "datatype": "FP32", "shape": [1, len(values)], "data": list(values)}],
    }
