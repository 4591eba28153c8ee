"""`tailbound-runtime bench`: what it measures and how it says so."""

import re
import sys
from pathlib import Path
from typing import TextIO

import pytest
from onnx import TensorProto
from tailbound_runtime import __main__, logs
from tailbound_runtime.measure import Cell, main, table

from tests.runtime import models


def test_a_table_names_throughput_and_quantiles_and_marks_the_best() -> None:
    slow = Cell(rows=1, callers=1, run_seconds=[0.01] * 98 + [0.02, 0.05], seconds=1.0)
    fast = Cell(rows=4, callers=2, run_seconds=[0.02] * 100, seconds=1.0)
    head, first, second = table([slow, fast]).splitlines()
    assert head.split() == ["rows", "callers", "rows/s", "P50", "ms", "P99", "ms"]
    assert first.split() == ["1", "1", "100.0", "10.000", "20.000", "█" * 10]
    assert second.split() == ["4", "2", "400.0", "20.000", "20.000", "█" * 40, "best"]


@pytest.mark.parametrize(
    ("make", "rows"),
    [
        pytest.param(models.arithmetic, ["1", "2", "4"], id="free-rows"),
        pytest.param(models.scaled, ["1"], id="a-scalar-too"),
        pytest.param(lambda path: models.identity(path, TensorProto.BFLOAT16), ["1", "2", "4"], id="bf16"),
        pytest.param(lambda path: models.identity(path, TensorProto.FLOAT, (3, 2)), ["1"], id="fixed-shape"),
    ],
)
def test_each_size_of_a_run_is_measured_if_the_model_leaves_it_free(
    tmp_path: Path, make: object, rows: list[str]
) -> None:
    assert callable(make)
    said: list[str] = []
    arguments = [str(make(tmp_path / "m.onnx")), "--seconds", "0.01", "--max-batch-size", "4"]
    assert main([*arguments, "--callers", "2", "--threads", "1"], said.append) == 0
    assert "CPUExecutionProvider" in said[0]
    lines = [re.findall(r"\S+", line) for line in said[1].splitlines()[1:]]
    assert [line[:2] for line in lines] == [[size, callers] for size in rows for callers in ("1", "2")]


@pytest.mark.parametrize("command", ["bench", "audit", "optimize --to fp16 --data none.npz"])
def test_what_is_wrong_goes_to_standard_error(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logged_to: list[TextIO] = []
    monkeypatch.setattr(logs, "configure", logged_to.append)
    (tmp_path / "m.onnx").write_bytes(b"<html>")
    name, *options = command.split()
    assert __main__.main([name, str(tmp_path / "m.onnx"), *options]) == 1
    said = capsys.readouterr()
    assert (said.out, logged_to) == ("", [sys.stderr])
    assert said.err.startswith("error: ") and "it is an HTML page" in said.err
