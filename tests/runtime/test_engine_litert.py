"""The server on LiteRT answers what LiteRT itself does, alone and in batches, by the signature's names."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from tests.runtime import engine_packages
from tests.runtime.engine_packages import ask, check_refusals, output_of
from tests.runtime.process import serving

ROWS = 12
# Writes a model of two layers with two outputs, and LiteRT's answers to each row alone.
MAKE = """
import sys, flatbuffers, numpy
from ai_edge_litert import schema_py_generated as s
from ai_edge_litert.interpreter import Interpreter
dice = numpy.random.default_rng(1)
def made(kind, **values):
    one = kind()
    for name, value in values.items(): setattr(one, name, value)
    return one
model = made(s.ModelT, version=3, buffers=[s.BufferT()], operatorCodes=[])
def tensor(name, columns, weights=None):
    if weights is None:
        return made(s.TensorT, name=name, shape=[1, columns], shapeSignature=[-1, columns], buffer=0)
    data = numpy.frombuffer(weights.astype(numpy.float32).tobytes(), numpy.uint8)
    model.buffers.append(made(s.BufferT, data=data))
    return made(s.TensorT, name=name, shape=list(weights.shape), buffer=len(model.buffers) - 1)
for code in (s.BuiltinOperator.FULLY_CONNECTED, s.BuiltinOperator.SOFTMAX):
    model.operatorCodes.append(made(s.OperatorCodeT, builtinCode=code, deprecatedBuiltinCode=code, version=1))
full, soft = s.BuiltinOptions.FullyConnectedOptions, s.BuiltinOptions.SoftmaxOptions
relu = made(s.FullyConnectedOptionsT, fusedActivationFunction=s.ActivationFunctionType.RELU)
def node(code, inputs, output, kind, options):
    return made(s.OperatorT, opcodeIndex=code, inputs=inputs, outputs=[output], builtinOptionsType=kind,
                builtinOptions=options)
graph = made(
    s.SubGraphT, name="main", inputs=[0], outputs=[5, 4],
    tensors=[tensor("in", 4), tensor("a", 0, dice.standard_normal((32, 4))), tensor("h", 32),
             tensor("b", 0, dice.standard_normal((3, 32))), tensor("z", 3), tensor("p", 3)],
    operators=[node(0, [0, 1, -1], 2, full, relu), node(0, [2, 3, -1], 4, full, s.FullyConnectedOptionsT()),
               node(1, [4], 5, soft, made(s.SoftmaxOptionsT, beta=1.0))])
model.subgraphs = [graph]
def named(**numbers):
    return [made(s.TensorMapT, name=name, tensorIndex=number) for name, number in numbers.items()]
model.signatureDefs = [made(s.SignatureDefT, signatureKey="serving_default", subgraphIndex=0,
                            inputs=named(x=0), outputs=named(probabilities=5, logits=4))]
builder = flatbuffers.Builder(1024)
builder.Finish(model.Pack(builder), b"TFL3")
open(sys.argv[1], "wb").write(builder.Output())
rows = numpy.load(sys.argv[2])
interpreter = Interpreter(sys.argv[1], num_threads=1)
interpreter.allocate_tensors()
answers = {"probabilities": [], "logits": []}
for row in rows:
    interpreter.set_tensor(0, row[None])
    interpreter.invoke()
    answers["probabilities"].append(interpreter.get_tensor(5)[0])
    answers["logits"].append(interpreter.get_tensor(4)[0])
numpy.savez(sys.argv[3], **answers)
"""


def test_every_output_is_the_librarys_own_alone_and_batched(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((ROWS, 4)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    model = tmp_path / "model.tflite"
    output_of(MAKE, str(model), str(tmp_path / "rows.npy"), str(tmp_path / "out.npz"))
    expected = np.load(tmp_path / "out.npz")
    how = {"model_format": "tflite", "batching_mode": "dynamic", "batching_max_size": "8"}
    with serving(model, env=engine_packages.path(), cpu_limit="2", **how) as server:
        described = server.client.get("/v2/models/m").json()
        assert described["platform"] == "litert_tflite"
        assert described["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
        with ThreadPoolExecutor(ROWS) as pool:
            alone = list(pool.map(lambda row: ask(server, row[None]), rows))
        together = ask(server, rows[:8])
        assert set(together) == {"probabilities", "logits"}
        for name, array in expected.items():
            # Sums of FP32 are ordered by the number of rows.
            assert np.allclose(np.concatenate([each[name] for each in alone]), array, rtol=0, atol=1e-5)
            assert np.allclose(together[name], array[:8], rtol=0, atol=1e-5)
        narrow = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 1, 1]}
        assert server.infer({"inputs": [narrow]}).status_code == 400
        assert ask(server, rows[:0])["logits"].shape == (0, 3)
        mode = server.client.get("/v2/models/m/config").json()
        assert mode["max_batch_size"] == 8, "the row check found that rows mix"
    loaded = next(line for line in server.lines if line["event"] == "model loaded")
    assert (loaded["engine"], loaded["provider"]) == ("litert", "CPU")
    truncated = tmp_path / "truncated.tflite"
    truncated.write_bytes(model.read_bytes()[:100])
    other, page = tmp_path / "other.tflite", tmp_path / "page.tflite"
    other.write_bytes(b"this is no model")
    page.write_bytes(b"<!doctype html>")
    said = {truncated: "cannot load", other: "has at offset 4 'TFL3'", page: "it is an HTML page"}
    check_refusals("litert", {**said, tmp_path / "none.tflite": "cannot be read: No such file"})
