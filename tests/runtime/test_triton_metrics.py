"""The model's figures under Triton's names, as its documentation lists them."""

import re

import pytest
from tailbound_runtime.triton_metrics import NAMES, Figures, exposition

from tests.runtime.process import NAME, Server

# docs/user_guide/metrics.md of Triton: the counters of inference requests, and the gauge of those that wait.
DOCUMENTED = {
    "nv_inference_request_success",
    "nv_inference_request_failure",
    "nv_inference_count",
    "nv_inference_exec_count",
    "nv_inference_request_duration_us",
    "nv_inference_queue_duration_us",
    "nv_inference_compute_input_duration_us",
    "nv_inference_compute_infer_duration_us",
    "nv_inference_compute_output_duration_us",
    "nv_inference_pending_request_count",
}
Samples = dict[tuple[str, str], float]
_SAMPLE = re.compile(r"^(nv_\w+)\{([^}]*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def scraped(server: Server) -> Samples:
    """By name and reason; each has the labels of the model."""
    found: Samples = {}
    for name, labels, value in _SAMPLE.findall(server.client.get("/metrics").text):
        named = dict(_LABEL.findall(labels))
        assert (named["model"], named["version"]) == (NAME, "1")
        found[name, named.get("reason", "")] = float(value)
    return found


def test_the_documented_names_are_exported_and_count_requests_rows_and_microseconds(
    arithmetic: Server,
) -> None:
    rows = {"datatype": "FP32", "shape": [3, 4], "data": [1.0] * 12}
    body = {"inputs": [{"name": "a", **rows}, {"name": "b", **rows}]}
    before = scraped(arithmetic)
    assert {name for name, _ in before} == set(NAMES) == DOCUMENTED
    bad: dict[str, object] = {"inputs": []}
    for sent in (body, body, bad):
        arithmetic.infer(sent)
    grown = {key: value - before[key] for key, value in scraped(arithmetic).items()}
    assert grown["nv_inference_request_success", ""] == 2
    assert grown["nv_inference_request_failure", "OTHER"] == 1
    assert grown["nv_inference_count", ""] == 6
    assert 1 <= grown["nv_inference_exec_count", ""] <= 2
    for part in ("request", "compute_infer"):
        assert 0 < grown[f"nv_inference_{part}_duration_us", ""] < 60e6
    assert grown["nv_inference_pending_request_count", ""] == 0


@pytest.mark.parametrize(
    ("code", "reason"),
    [(400, "OTHER"), (499, "CANCELED"), (503, "REJECTED"), (504, "REJECTED"), (500, "BACKEND")],
)
def test_failures_have_the_reasons_of_triton(code: int, reason: str) -> None:
    figures = [Figures({"model": name}, dict.fromkeys(NAMES, 0), {200: 9, code: 2}) for name in ('a"b', "c")]
    text = exposition(figures).decode()
    assert f'nv_inference_request_failure{{model="a\\"b",reason="{reason}"}} 2\n' in text
    assert text.count("} 2\n") == 2
    assert all(text.count(f"# TYPE {name} ") == 1 for name in NAMES)
