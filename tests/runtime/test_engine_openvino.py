"""The server on OpenVINO answers what OpenVINO itself does, from IR and from ONNX, alone and in batches."""

import json
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.runtime import engine_packages, models
from tests.runtime.engine_packages import Rows, ask, check_refusals, output_of
from tests.runtime.process import COMMAND, environment, serving

ROWS = 12
# Writes the IR of an ONNX file, and what OpenVINO answers to the rows, each alone.
REFERENCE = """
import sys, numpy
sys.modules["openvino_telemetry"] = None
import openvino
core = openvino.Core()
model = core.read_model(sys.argv[1])
openvino.save_model(model, sys.argv[2], compress_to_fp16=False)
compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
rows = numpy.load(sys.argv[3])
answers = [list(compiled({"x": row[None]}).values()) for row in rows]
numpy.savez(sys.argv[4], *[numpy.concatenate(each) for each in zip(*answers)])
"""


def perceptron(path: Path) -> Path:
    """probabilities and label of rows of four FP32, through one hidden layer."""
    dice = np.random.default_rng(1)

    def weights(name: str, *shape: int) -> Any:
        return helper.make_tensor(name, TensorProto.FLOAT, shape, dice.standard_normal(shape).ravel())

    nodes = [
        helper.make_node("Constant", [], ["w1"], value=weights("a", 4, 32)),
        helper.make_node("Constant", [], ["w2"], value=weights("b", 32, 3)),
        helper.make_node("MatMul", ["x", "w1"], ["h"]),
        helper.make_node("Tanh", ["h"], ["t"]),
        helper.make_node("MatMul", ["t", "w2"], ["z"]),
        helper.make_node("Softmax", ["z"], ["probabilities"], axis=1),
        helper.make_node("ArgMax", ["probabilities"], ["label"], axis=1, keepdims=0),
    ]
    outputs = [
        models.tensor("probabilities", TensorProto.FLOAT, ["n", 3]),
        models.tensor("label", TensorProto.INT64, ["n"]),
    ]
    return models.save(path, nodes, [models.tensor("x", TensorProto.FLOAT, ["n", 4])], outputs)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Rows, Mapping[str, Any]]:
    """A folder with model.onnx, model.xml and model.bin, rows for it, and OpenVINO's answers."""
    folder = tmp_path_factory.mktemp("openvino")
    rows = np.random.default_rng(0).standard_normal((ROWS, 4)).astype(np.float32)
    np.save(folder / "rows.npy", rows)
    files = [perceptron(folder / "model.onnx"), folder / "model.xml", folder / "rows.npy", folder / "out.npz"]
    output_of(REFERENCE, *map(str, files))
    answers = np.load(folder / "out.npz")
    return folder, rows, {"probabilities": answers["arr_0"], "label": answers["arr_1"]}


@pytest.mark.parametrize(
    ("file", "model_format", "batching"),
    [("model.xml", "openvino", "none"), ("model.onnx", "onnx", "dynamic")],
)
def test_every_output_is_the_librarys_own(
    made: Any, tmp_path: Path, file: str, model_format: str, batching: str
) -> None:
    folder, rows, expected = made
    how = {"model_format": model_format, "engine": "openvino", "batching_mode": batching}
    env = {**engine_packages.path(), "HOME": str(tmp_path)}
    with serving(folder / file, env=env, batching_max_size="8", **how) as server:
        described = server.client.get("/v2/models/m").json()
        assert described["platform"] == f"openvino_{model_format}"
        assert described["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
        with ThreadPoolExecutor(ROWS) as pool:
            alone = list(pool.map(lambda row: ask(server, row[None]), rows))
        together = ask(server, rows[:8])
        for name, array in expected.items():
            # Sums of FP32 are ordered by the number of rows.
            assert np.allclose(np.concatenate([each[name] for each in alone]), array, rtol=0, atol=1e-6)
            assert np.allclose(together[name], array[:8], rtol=0, atol=1e-6)
        refused = server.infer(
            {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1] * 3}]}
        )
        assert refused.status_code == 400
        assert "shape [1, 3] does not fit the model's [-1, 4]" in refused.text
        assert server.metric('nv_inference_request_success{model="m",version="1"}') == ROWS + 1
    loaded = next(line for line in server.lines if line["event"] == "model loaded")
    assert (loaded["engine"], loaded["provider"]) == ("openvino", "CPU")
    assert list(tmp_path.iterdir()) == [], "telemetry writes into the home folder"


def test_a_run_is_stopped_when_its_caller_has_left(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "x"], ["p0"])]
    for step in range(200):
        nodes.append(helper.make_node("Softmax", [f"p{step}"], [f"s{step}"], axis=1))
        nodes.append(helper.make_node("MatMul", [f"s{step}", "x"], [f"p{step + 1}"]))
    square = [models.tensor(name, TensorProto.FLOAT, ["n", "n"]) for name in ("x", "p200")]
    model = models.save(tmp_path / "long.onnx", nodes, square[:1], square[1:])
    how = {"engine": "openvino", "request_timeout_seconds": "0.5"}
    with serving(model, env=engine_packages.path(), **how) as server:
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [600, 600], "data": [0.001] * 360_000}]}
        assert server.infer(body).status_code == 504
        body["inputs"][0].update(shape=[1, 1], data=[1.0])
        assert server.infer(body).status_code == 200, "the run of the request before goes on"


def test_what_cannot_be_served_is_refused_with_the_remedy(tmp_path: Path) -> None:
    contents = {"alone.xml": b"<net/>", "page.xml": b"<html></html>", "pickle.xml": b"\x80\x04\x95"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "page.bin").touch()
    (tmp_path / "old.openvino").write_bytes(b"<net/>")
    (tmp_path / "broken.bin").touch()
    broken = tmp_path / "broken.xml"
    broken.write_bytes(b"this is no model" * 100)
    said = {
        tmp_path / "alone.xml": "has no alone.bin beside it, which holds its weights",
        tmp_path / "page.xml": "is no OpenVINO IR: it is an HTML page",
        tmp_path / "pickle.xml": "is no OpenVINO IR: it is a pickle, which runs code of its author",
        tmp_path / "old.openvino": "set spec.model.path to the .xml",
        broken: f"OpenVINO 2026.4.1 cannot load {broken}: ",
    }
    check_refusals("openvino", said)


def test_texts_which_would_crash_its_process_are_refused(tmp_path: Path) -> None:
    model = models.identity(tmp_path / "texts.onnx", TensorProto.STRING)
    env = {**environment(model, engine="openvino"), **engine_packages.path()}
    ended = subprocess.run(COMMAND, env=env, stdout=subprocess.PIPE, text=True, check=False)
    error = json.loads(ended.stdout.splitlines()[-1])["error"]
    assert "input 'x' of the model has type string, which this server cannot carry on OpenVINO" in error
