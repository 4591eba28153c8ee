"""`tailbound-runtime optimize`: models that stay as good are written, others are refused with a report."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from tailbound_runtime import optimize
from tailbound_runtime.accuracy import Measure, agreements
from tailbound_runtime.errors import SamplesError

from tests.runtime import models


@pytest.fixture(scope="module")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = W2 · relu(W1 · x), of 16 numbers a row."""
    dice = np.random.default_rng(0)
    weights = {"w1": (16, 64), "w2": (64, 10)}
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w1"], ["h"]),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("MatMul", ["r", "w2"], ["y"]),
        ],
        "mlp",
        [models.tensor("x", TensorProto.FLOAT, ["n", 16])],
        [models.tensor("y", TensorProto.FLOAT, ["n", 10])],
        [
            numpy_helper.from_array(dice.standard_normal(shape).astype(np.float32) / 8, name)
            for name, shape in weights.items()
        ],
    )
    path = tmp_path_factory.mktemp("optimize") / "mlp.onnx"
    opset = [helper.make_opsetid("", 17)]
    path.write_bytes(helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString())
    return path


def samples(folder: Path, count: int = 700, **further: Any) -> str:
    dice = np.random.default_rng(1)
    path = folder / "samples.npz"
    np.savez(path, x=dice.standard_normal((count, 16)).astype(np.float32), **further)
    return str(path)


def run(mlp: Path, folder: Path, to: str, *further: str, data: str | None = None) -> tuple[int, str, Path]:
    said: list[str] = []
    output = folder / "out.onnx"
    arguments = [str(mlp), "--to", to, "--data", data or samples(folder), "--output", str(output), *further]
    return optimize.main(arguments, said.append), "\n".join(said), output


@pytest.mark.parametrize(("to", "calibrates"), [("fp16", 0), ("mixed", 0), ("int8", 560)])
def test_a_model_that_stays_as_good_is_written_with_its_report(
    mlp: Path, tmp_path: Path, to: str, calibrates: int
) -> None:
    status, said, output = run(mlp, tmp_path, to, "--tolerance", "0.1")
    assert status == 0, said
    session = onnxruntime.InferenceSession(output, providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].type == "tensor(float)"
    assert session.get_outputs()[0].type == "tensor(float)"
    report = json.loads((tmp_path / "out.onnx.report.json").read_text(encoding="utf-8"))
    assert (report["to"], report["refused"], report["tolerance"]) == (to, "", 0.1)
    assert (report["calibration_samples"], report["held_out_samples"]) == (calibrates, 140)
    assert report["agreement"][0]["loss"] <= 0.1
    assert output.stat().st_size == report["bytes_after"] < report["bytes_before"]


def test_a_model_that_answers_worse_is_refused_and_reported(mlp: Path, tmp_path: Path) -> None:
    wrong = np.full(700, 11, np.int64)  # no class that there is
    right = (
        onnxruntime.InferenceSession(mlp).run(None, {"x": np.load(samples(tmp_path))["x"]})[0].argmax(axis=1)
    )
    data = samples(tmp_path, label=right)
    status, said, output = run(mlp, tmp_path, "int8", "--tolerance", "0", "--label", "label", data=data)
    assert status == 1
    assert "not written: output y is off by" in said
    assert not output.exists()
    report = json.loads((tmp_path / "out.onnx.report.json").read_text(encoding="utf-8"))
    assert "the tolerance is 0" in report["refused"]
    assert report["agreement"][0]["measure"] == "labels"
    data = samples(tmp_path, label=wrong)
    assert run(mlp, tmp_path, "int8", "--tolerance", "0", "--label", "label", data=data)[0] == 0


@pytest.mark.parametrize(
    ("to", "arrays", "says"),
    [
        pytest.param("int8", {"x": np.zeros((620, 16), np.float32)}, "496 samples are left", id="too-few"),
        pytest.param(
            "fp16", {"x": np.zeros((400, 16), np.float32)}, "80 samples are held out", id="held-out"
        ),
        pytest.param("fp16", {"z": np.zeros((700, 16), np.float32)}, "has no array x: it has z", id="name"),
        pytest.param("fp16", {"x": np.zeros((700, 15), np.float32)}, "shape [15]", id="shape"),
        pytest.param("fp16", {"x": np.zeros((700, 16), np.complex64)}, "store it in that type", id="type"),
        pytest.param("fp16", {"x": np.float32(1)}, "has no rows", id="scalar"),
    ],
)
def test_samples_that_show_nothing_are_refused(
    mlp: Path, tmp_path: Path, to: str, arrays: dict[str, Any], says: str
) -> None:
    path = tmp_path / "samples.npz"
    np.savez(path, **arrays)
    with pytest.raises(SamplesError, match=re.escape(says)):
        run(mlp, tmp_path, to, data=str(path))
    assert not (tmp_path / "out.onnx").exists()


ROW = np.array([[1.0, 2.0], [3.0, 1.0]], np.float32)


@pytest.mark.parametrize(
    ("before", "after", "measure", "loss"),
    [
        pytest.param(ROW, ROW, Measure.TOP1, 0.0, id="same"),
        pytest.param(ROW, ROW[:, ::-1], Measure.TOP1, 1.0, id="all-other-classes"),
        pytest.param(ROW, np.array([[1.0, 2.0], [3.0, np.nan]]), Measure.TOP1, 0.5, id="a-nan-is-wrong"),
        pytest.param(ROW[:, :1], ROW[:, :1] * 1.1, Measure.ERROR, 0.1, id="numbers"),
        pytest.param(ROW[:, :1], ROW[:, :1] * np.inf, Measure.ERROR, 1.0, id="infinities"),
        pytest.param(np.array([1, 2]), np.array([1, 3]), Measure.EQUAL, 0.5, id="integers"),
        pytest.param(ROW, ROW[:1], Measure.EQUAL, 1.0, id="another-shape"),
    ],
)
def test_how_far_an_output_is_off(before: Any, after: Any, measure: Measure, loss: float) -> None:
    (found,) = agreements({"y": before}, {"y": after})
    assert found.measure is measure
    assert found.loss == pytest.approx(loss, rel=1e-3)
