"""The log of one inference request in so many."""

import json
from pathlib import Path

import pytest
import structlog
from tailbound_runtime.request_log import RequestLog

from tests.runtime import models
from tests.runtime.process import serving


@pytest.mark.parametrize(("every", "logged"), [(0, []), (1, [0, 1, 2, 3, 4]), (3, [0, 3])])
def test_one_request_in_so_many_is_logged(every: int, logged: list[int]) -> None:
    log = RequestLog(every)
    with structlog.testing.capture_logs() as lines:
        for number in range(5):
            log.answered("http", 200, 0.001, number)
    assert [each["body_bytes"] for each in lines] == logged


def test_a_line_has_metadata_and_no_contents(tmp_path: Path) -> None:
    row = {"datatype": "FP32", "shape": [1, 4], "data": [1234.5] * 4}
    body = {"id": "private-id", "inputs": [{"name": "a", **row}, {"name": "b", **row}]}
    with serving(models.arithmetic(tmp_path / "m.onnx"), request_log_every="2") as server:
        bad: dict[str, object] = {"inputs": []}
        for sent in (body, body, bad):
            server.infer(sent)
        first, second = server.wait_for("request"), server.wait_for("request")
    assert (first["protocol"], first["code"], second["code"]) == ("http", 200, 400)
    assert first["body_bytes"] > 0
    assert first["seconds"] > 0
    text = json.dumps(first)
    assert "private-id" not in text
    assert "1234.5" not in text
