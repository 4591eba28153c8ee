"""Spans of requests, as a real server sends them to a collector over HTTP."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tailbound_runtime.config import ConfigError
from tailbound_runtime.tracing import tracer_of

from tests.runtime import models
from tests.runtime.process import Server, eventually, rpc_address, serving

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
ROW = {"datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
BODY = {"inputs": [{"name": "a", **ROW}, {"name": "b", **ROW}]}
QUEUED = ["receive", "decode", "queue", "batch", "execute", "encode", "send"]
AT_ONCE = ["receive", "decode", "execute", "encode", "send"]


@contextmanager
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """Its address, and what it got."""
    got: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers["content-encoding"] == "gzip":
                body = gzip.decompress(body)
            got.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", got
        finally:
            server.shutdown()
            thread.join()


def spans_of(got: list[ExportTraceServiceRequest]) -> list[Any]:
    return [s for one in got for r in one.resource_spans for scope in r.scope_spans for s in scope.spans]


def names_of(got: list[ExportTraceServiceRequest], trace: str) -> list[str]:
    return sorted(each.name for each in spans_of(got) if each.trace_id.hex() == trace)


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


def traces_until(stages: list[str], server: Server, got: list[ExportTraceServiceRequest]) -> list[str]:
    """Those of requests up to one that has these stages: a busy machine may make any run a long one."""
    traces: list[str] = []

    def stages_are_those() -> bool:
        traces.append(f"{len(traces) + 1:032x}")
        traced = {"traceparent": f"00-{traces[-1]}-{PARENT}-01"}
        assert server.infer(BODY, headers=traced).status_code == 200
        eventually(lambda: "send" in names_of(got, traces[-1]))  # the last one
        return names_of(got, traces[-1]) == sorted(["infer m", *stages])

    eventually(stages_are_those)
    return traces


@pytest.mark.parametrize(("mode", "stages"), [("none", AT_ONCE), ("dynamic", QUEUED)])
def test_each_stage_is_a_span_below_that_of_the_request_in_the_trace_of_its_caller(
    tmp_path: Path, mode: str, stages: list[str]
) -> None:
    with collector() as (address, got):
        env = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": address,
            "OTEL_SERVICE_NAME": "mine",
            "OTEL_BSP_SCHEDULE_DELAY": "20",
        }
        model = models.arithmetic(tmp_path / "m.onnx")
        with serving(model, env=env, tracing="on", batching_mode=mode, batching_max_size="4") as server:
            unsampled = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
            traces = traces_until(stages, server, got)
            assert server.infer(BODY, headers=unsampled).status_code == 200
            assert server.infer({"inputs": []}, headers={"traceparent": "nonsense"}).status_code == 400
            assert server.infer(BODY).status_code == 200
            assert server.client.get("/v2/health/live").status_code == 200
        spans = spans_of(got)  # the server has ended, and has sent what was left
    requests = [each for each in spans if each.name == "infer m"]
    assert sorted(attributes(each)["http.response.status_code"] for each in requests) == [
        *[200] * (len(traces) + 1),
        400,
    ]
    assert len({each.trace_id for each in requests}) == len(traces) + 2
    (first,) = [each for each in requests if each.trace_id.hex() == traces[-1]]
    assert first.parent_span_id.hex() == PARENT
    parts = {each.name: each for each in spans if each.parent_span_id == first.span_id}
    assert sorted(parts) == sorted(stages)
    assert {each.trace_id for each in parts.values()} == {first.trace_id}
    ends = 0
    for each in map(parts.__getitem__, stages):
        assert ends <= each.start_time_unix_nano + 100_000  # the clock is read anew for each
        assert each.start_time_unix_nano <= each.end_time_unix_nano
        ends = each.end_time_unix_nano
    resource = got[0].resource_spans[0].resource
    assert {each.value.string_value for each in resource.attributes if each.key == "service.name"} == {"mine"}


def test_calls_over_grpc_are_spans_too(tmp_path: Path) -> None:
    with collector() as (address, got):
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": address}
        with (
            serving(models.arithmetic(tmp_path / "m.onnx"), env=env, tracing="on", grpc_port="0") as server,
            grpc.insecure_channel(rpc_address(server)) as channel,
        ):
            infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            message = b"\n\x01m" + b"".join(
                b"*\x0d\n\x01%c\x12\x04FP32\x1a\x02\x01\x04" % name for name in b"ab"
            )
            raw = (b":\x10" + bytes(16)) * 2
            infer(message + raw, metadata=(("traceparent", f"00-{TRACE}-{PARENT}-01"),))
            with pytest.raises(grpc.RpcError):
                infer(message)
    requests = [each for each in spans_of(got) if each.name == "infer m"]
    assert sorted(attributes(each)["rpc.grpc.status_code"] for each in requests) == [0, 3]
    (first,) = [each for each in requests if each.trace_id.hex() == TRACE]
    assert (first.parent_span_id.hex(), attributes(first)["rpc.method"]) == (PARENT, "ModelInfer")
    parts = [each.name for each in spans_of(got) if each.parent_span_id == first.span_id]
    assert sorted(parts) in (sorted(AT_ONCE), sorted(QUEUED)), "a busy machine may make the run a long one"


def test_a_large_body_has_all_stages_too(tmp_path: Path) -> None:
    rows = 20_000
    row = {"datatype": "FP32", "shape": [rows, 4], "data": [1.5] * 4 * rows}
    with collector() as (address, got):
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": address}
        with serving(models.arithmetic(tmp_path / "m.onnx"), env=env, tracing="on") as server:
            assert server.infer({"inputs": [{"name": "a", **row}, {"name": "b", **row}]}).status_code == 200
    assert {each.name for each in spans_of(got)} == {"infer m", *QUEUED}


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER is 'zipkin': set it to otlp or console"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc': set it to http"),
        ({"OTEL_BSP_MAX_QUEUE_SIZE": "-1"}, "OTEL_BSP_MAX_QUEUE_SIZE cannot be used: max_queue_size must be"),
        ({"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "x"}, "COUNT_LIMIT must be a non-negative integer but got x"),
    ],
)
def test_what_cannot_be_done_is_said(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], said: str
) -> None:
    for name, value in environment.items():  # the SDK reads those of the process
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=said):
        tracer_of(environment)
