"""`tailbound-runtime audit`: what it finds in a model file, and whether the model can be served."""

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper
from tailbound_runtime import audit
from tailbound_runtime.graph import Graph

from tests.runtime import models
from tests.runtime.test_runtime_loading import float8, optional, without_outputs


def audited(path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    said: list[str] = []
    status = audit.main([str(path), "--json", *arguments], said.append)
    found: dict[str, Any] = json.loads(said[0])
    return status, found


def test_a_real_model_is_described_and_can_be_served() -> None:
    status, found = audited(models.magika_model(), "--memory", "1Gi", "--rows", "4")
    assert (status, found["served"], found["errors"]) == (0, True, [])
    assert found["inputs"] == [
        {"name": "bytes", "kind": "tensor(int32)", "dimensions": [found["freeDimensions"][0], 2048]}
    ]
    assert found["opsets"]["ai.onnx"] >= 13
    assert {each["name"] for each in found["operators"]} >= {"Conv", "Transpose"}
    assert found["lacks"] == {"CPUExecutionProvider": []}
    memory = found["memory"]
    assert memory["weights"] == pytest.approx(models.magika_model().stat().st_size, rel=0.1)
    assert memory["activations"]["sizes"] == {found["freeDimensions"][0]: 4}
    assert memory["process"] + memory["weights"] < memory["serving"] < memory["limit"] == 2**30


def test_activations_are_the_most_that_lives_at_once(tmp_path: Path) -> None:
    tensors = ("x", "a", "b", "c", "y")
    nodes = [helper.make_node("Relu", [source], [to]) for source, to in pairwise(tensors)]
    dims = ("n", 1000)
    x, y = (models.tensor(name, TensorProto.FLOAT, dims) for name in "xy")
    path = models.save(tmp_path / "m.onnx", nodes, [x], [y])
    found = Graph(path).activations(rows=3, free_size=1, sizes={})
    assert (found.size_bytes, found.unsized) == (3 * 3 * 4000, 0)  # x, and two neighbours
    assert Graph(path).activations(rows=3, free_size=1, sizes={"n": 2}).size_bytes == 3 * 2 * 4000


def unknown_operator(path: Path) -> Path:
    node = helper.make_node("Frobnicate", ["x"], ["y"], domain="acme")
    sides = [models.tensor("x", TensorProto.FLOAT, ["n"])], [models.tensor("y", TensorProto.FLOAT, ["n"])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    model = helper.make_model(helper.make_graph([node], "g", *sides), opset_imports=opsets, ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def unloadable(path: Path) -> Path:
    """Its attribute is wrong, which only loading shows."""
    node = helper.make_node("Concat", ["x"], ["y"], axis=7)
    sides = [models.tensor("x", TensorProto.FLOAT, ["n"])], [models.tensor("y", TensorProto.FLOAT, ["n"])]
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(helper.make_graph([node], "g", *sides), opset_imports=opsets, ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def page(path: Path) -> Path:
    path.write_text("<!doctype html><html>", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("make", "says"),
    [
        pytest.param(
            optional, r"input x has type optional\(tensor\(float\)\).*with it required", id="optional"
        ),
        pytest.param(float8, r"output y has type tensor\(float8e4m3fn\).*put a Cast", id="fp8"),
        pytest.param(without_outputs, "no outputs", id="no-outputs"),
        pytest.param(unknown_operator, "operator acme.Frobnicate has no kernel", id="unknown-operator"),
        pytest.param(unloadable, "cannot load", id="not-loadable"),
        pytest.param(page, "it is an HTML page", id="page"),
    ],
)
def test_what_cannot_be_served_says_why_and_what_to_do(
    tmp_path: Path, make: Callable[[Path], Path], says: str
) -> None:
    status, found = audited(make(tmp_path / "m.onnx"))
    assert (status, found["served"]) == (1, False)
    assert re.search(says, "; ".join(found["errors"])), found["errors"]


def test_a_limit_below_the_estimate_is_an_error_in_each_form(tmp_path: Path) -> None:
    path = models.arithmetic(tmp_path / "m.onnx")
    said: list[str] = []
    assert audit.main([str(path), "--memory", "20Mi"], said.append) == 1
    assert "m.onnx: cannot be served" in said[0]
    assert "the limit is 20.0 MiB: set spec.resources.memory higher" in said[0]
    assert audit.main([str(path), "--memory", "2G"], said.append) == 0
    assert "input: a tensor(float)[n, 4]" in said[1]
    with pytest.raises(SystemExit, match="2"):
        audit.main([str(path), "--memory", "much"], said.append)


def test_bf16_is_served_with_a_warning_about_json(tmp_path: Path) -> None:
    status, found = audited(models.identity(tmp_path / "m.onnx", TensorProto.BFLOAT16))
    assert status == 0
    assert "input x has type tensor(bfloat16), which JSON has no form for" in found["warnings"][0]
