"""The HTTP surface of a running server: paths, bodies, refusals."""

import json
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.runtime.process import NAME, Server

A = {"name": "a", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
B = {"name": "b", "datatype": "FP32", "shape": [1, 4], "data": [0.5, 0.25, 2, -1]}
SUM = {"name": "sum", "datatype": "FP32", "shape": [1, 4], "data": [1.5, 2.25, 5.0, 3.0]}
PRODUCT = {"name": "product", "datatype": "FP32", "shape": [1, 4], "data": [0.5, 0.5, 6.0, -4.0]}
SERVER = {
    "name": "tailbound-runtime",
    "version": "0.1.0",
    "extensions": ["binary_tensor_data", "model_configuration", "model_repository", "statistics"],
}
INFER = f"/v2/models/{NAME}/infer"


def refused(response: Any, status: int) -> str:
    """The message of an error answer, after checking its form."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert list(body) == ["error"]
    assert isinstance(body["error"], str)
    return str(body["error"])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v2", SERVER),
        ("/v2/", SERVER),
        ("/v2/health/live", {"live": True, "ready": True}),
        ("/v2/health/ready", {"live": True, "ready": True}),
        (f"/v2/models/{NAME}/ready", {"name": NAME, "ready": True}),
        (f"/v2/models/{NAME}/versions/1/ready", {"name": NAME, "ready": True}),
    ],
)
def test_health_and_server_metadata(arithmetic: Server, path: str, body: object) -> None:
    response = arithmetic.client.get(path)
    assert (response.status_code, response.json()) == (200, body)
    assert response.headers["content-type"] == "application/json"
    head = arithmetic.client.head(path)
    assert (head.status_code, head.content, head.headers["content-length"]) == (
        200,
        b"",
        response.headers["content-length"],
    )


@pytest.mark.parametrize("path", [f"/v2/models/{NAME}", f"/v2/models/{NAME}/versions/1"])
def test_model_metadata(arithmetic: Server, path: str) -> None:
    def spec(name: str) -> dict[str, object]:
        return {"name": name, "datatype": "FP32", "shape": [-1, 4]}

    assert arithmetic.client.get(path).json() == {
        "name": NAME,
        "versions": ["1"],
        "platform": "onnxruntime_onnx",
        "inputs": [spec("a"), spec("b")],
        "outputs": [spec("sum"), spec("product")],
    }


@pytest.mark.parametrize(
    ("method", "path", "said"),
    [
        ("GET", "/", "GET /v2 says"),
        ("GET", "/v1/models/m", "GET /v2 says"),
        ("GET", "/v2/health", "GET /v2 says"),
        ("GET", "/v2/models/other", f"it has model '{NAME}', version '1'"),
        ("GET", "/v2/models/other/ready", f"it has model '{NAME}'"),
        ("POST", "/v2/models/other/infer", f"it has model '{NAME}'"),
        ("GET", f"/v2/models/{NAME}/versions/2", "version '1'"),
        ("POST", f"/v2/models/{NAME}/versions/2/infer", "version '1'"),
        ("GET", f"/v2/models/{NAME}/", "version '1'"),
    ],
)
def test_an_unknown_path_is_a_404_that_says_what_there_is(
    arithmetic: Server, method: str, path: str, said: str
) -> None:
    message = refused(arithmetic.client.request(method, path), 404)
    assert path in message
    assert said in message


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", INFER, "POST"),
        ("PUT", INFER, "POST"),
        ("DELETE", INFER, "POST"),
        ("POST", "/v2", "GET"),
        ("POST", "/v2/health/ready", "GET"),
        ("POST", f"/v2/models/{NAME}", "GET"),
        ("POST", "/metrics", "GET"),
    ],
)
def test_a_wrong_method_is_a_405_with_allow(arithmetic: Server, method: str, path: str, allow: str) -> None:
    response = arithmetic.client.request(method, path)
    assert f"takes {allow}, not {method}" in refused(response, 405)
    assert response.headers["allow"] == allow


def test_all_outputs_come_when_none_is_named(arithmetic: Server) -> None:
    expected = {"model_name": NAME, "model_version": "1", "outputs": [SUM, PRODUCT]}
    choices: list[dict[str, object]] = [{}, {"outputs": []}, {"outputs": None}]
    for outputs in choices:
        assert arithmetic.infer({"inputs": [A, B], **outputs}).json() == expected


def test_the_version_path_infers_too(arithmetic: Server) -> None:
    response = arithmetic.client.post(f"/v2/models/{NAME}/versions/1/infer", json={"inputs": [A, B]})
    assert response.json()["outputs"] == [SUM, PRODUCT]


def test_named_outputs_come_in_the_order_named(arithmetic: Server) -> None:
    for names in (["product"], ["product", "sum"], ["sum", "product"]):
        response = arithmetic.infer({"inputs": [A, B], "outputs": [{"name": name} for name in names]})
        assert [output["name"] for output in response.json()["outputs"]] == names


def test_inputs_may_come_in_any_order_and_nested(arithmetic: Server) -> None:
    nested = {**A, "data": [[1, 2, 3, 4]]}
    assert arithmetic.infer({"inputs": [B, nested]}).json()["outputs"] == [SUM, PRODUCT]


def test_zero_rows_give_zero_rows(arithmetic: Server) -> None:
    none = {"shape": [0, 4], "data": []}
    response = arithmetic.infer({"inputs": [{**A, **none}, {**B, **none}]})
    assert response.json()["outputs"] == [{**SUM, **none}, {**PRODUCT, **none}]


@pytest.mark.parametrize(
    ("identity", "echoed"), [("a-1", {"id": "a-1"}), ("ü", {"id": "ü"}), ("", {}), (None, {})]
)
def test_an_id_is_echoed_only_if_given(arithmetic: Server, identity: object, echoed: dict[str, str]) -> None:
    body = arithmetic.infer({"id": identity, "inputs": [A, B]}).json()
    assert {key: value for key, value in body.items() if key == "id"} == echoed


def test_parameters_and_unknown_members_are_ignored(arithmetic: Server) -> None:
    body = {
        "inputs": [{**A, "parameters": {"content_type": "np"}}, {**B, "later": 1}],
        "outputs": [{"name": "sum", "parameters": {"classification": 2}}],
        "parameters": {"priority": 1},
        "later": {},
    }
    assert arithmetic.infer(body).json() == {"model_name": NAME, "model_version": "1", "outputs": [SUM]}


@pytest.mark.parametrize(
    "content_type", [None, "text/plain", "application/x-www-form-urlencoded", "nonsense"]
)
def test_the_content_type_does_not_matter(arithmetic: Server, content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    content = json.dumps({"inputs": [A, B]}).encode()
    assert arithmetic.client.post(INFER, content=content, headers=headers).status_code == 200


def test_a_chunked_body_is_read(arithmetic: Server) -> None:
    content = json.dumps({"inputs": [A, B]}).encode()
    parts = (content[i : i + 7] for i in range(0, len(content), 7))
    assert arithmetic.client.post(INFER, content=parts).json()["outputs"] == [SUM, PRODUCT]


def without(member: str) -> dict[str, object]:
    return {key: value for key, value in A.items() if key != member}


BAD_REQUESTS: list[tuple[str, object, str]] = [
    ("no inputs", {}, "'inputs' is missing: this model takes 'a', 'b'"),
    ("inputs no list", {"inputs": {"a": 1}}, "'inputs' must be a list"),
    ("an input no object", {"inputs": [1]}, "'inputs'[0] must be an object with a 'name'"),
    ("an input without name", {"inputs": [{"data": [1]}]}, "'inputs'[0] must be an object with a 'name'"),
    ("an input named by a number", {"inputs": [{**A, "name": 1}]}, "'inputs'[0] must be an object"),
    ("an unknown input", {"inputs": [A, B, {**A, "name": "c"}]}, "the model has no input 'c': it takes 'a'"),
    ("an input twice", {"inputs": [A, A, B]}, "'inputs'[1]: 'a' is there twice"),
    ("an input missing", {"inputs": [A]}, "input 'b' is missing: this model takes 'a', 'b'"),
    ("no inputs at all", {"inputs": []}, "input 'a' is missing"),
    ("an unknown output", {"inputs": [A, B], "outputs": [{"name": "z"}]}, "no output 'z': it gives 'sum'"),
    ("an output twice", {"inputs": [A, B], "outputs": [{"name": "sum"}] * 2}, "'sum' is there twice"),
    ("outputs no list", {"inputs": [A, B], "outputs": "sum"}, "'outputs' must be a list"),
    ("an output no object", {"inputs": [A, B], "outputs": ["sum"]}, "'outputs'[0] must be an object"),
    ("a number as id", {"id": 7, "inputs": [A, B]}, "'id' must be a string, not 7"),
    ("an object as id", {"id": {}, "inputs": [A, B]}, "'id' must be a string, not {}"),
    ("parameters no object", {"inputs": [A, B], "parameters": []}, "'parameters' must be an object"),
    ("an input's parameters", {"inputs": [{**A, "parameters": 1}, B]}, "'inputs'[0]: 'parameters' must be"),
    ("another datatype", {"inputs": [{**A, "datatype": "FP64"}, B]}, "is 'FP64', but the model takes 'FP32'"),
    ("lower case", {"inputs": [{**A, "datatype": "fp32"}, B]}, "'datatype' is 'fp32', but"),
    ("BF16", {"inputs": [{**A, "datatype": "BF16"}, B]}, "'datatype' is 'BF16', but"),
    ("no datatype", {"inputs": [without("datatype"), B]}, "'datatype' is missing"),
    ("no shape", {"inputs": [without("shape"), B]}, "'shape' is missing"),
    ("no data", {"inputs": [without("data"), B]}, "'data' is missing"),
    ("shape -1", {"inputs": [{**A, "shape": [-1, 4]}, B]}, "'shape'[0] is -1, which is no integer"),
    ("shape as text", {"inputs": [{**A, "shape": ["1", 4]}, B]}, "'shape'[0] is \"1\""),
    ("shape as float", {"inputs": [{**A, "shape": [1.0, 4]}, B]}, "'shape'[0] is 1.0"),
    ("shape as truth", {"inputs": [{**A, "shape": [True, 4]}, B]}, "'shape'[0] is true"),
    ("wrong width", {"inputs": [{**A, "shape": [1, 3], "data": [1, 2, 3]}, B]}, "[1, 3] does not fit"),
    ("wrong rank", {"inputs": [{**A, "shape": [4]}, B]}, "shape [4] does not fit the model's [-1, 4]"),
    ("overflowing shape", {"inputs": [{**A, "shape": [2**62, 4]}, B]}, f"means {2**64}"),
    ("shape beyond 63 bits", {"inputs": [{**A, "shape": [2**63, 4]}, B]}, "no integer from 0 to 2^63-1"),
    ("too little data", {"inputs": [{**A, "data": [1, 2, 3]}, B]}, "has 3 elements, but shape [1, 4]"),
    ("null", {"inputs": [{**A, "data": [1, None, 3, 4]}, B]}, "element 1 of 'data' (row-major) is null"),
    ("a list as body", [A, B], "must be a JSON object"),
    ("text as body", "hello", "must be a JSON object"),
    (
        "a binary input",
        {"inputs": [{**without("data"), "parameters": {"binary_data_size": 16}}, B]},
        "the header Inference-Header-Content-Length, which says where the JSON ends, is missing",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "said"), [(b, s) for _, b, s in BAD_REQUESTS], ids=[n for n, _, _ in BAD_REQUESTS]
)
def test_a_bad_request_is_a_400_that_names_what_is_wrong(arithmetic: Server, body: object, said: str) -> None:
    assert said in refused(arithmetic.infer(body), 400)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the request body is empty"),
        (b"{", "not JSON"),
        (b'{"inputs": [}', "not JSON"),
        (b"\xff\xfe{}", "not JSON"),
        (b'{"inputs": [{"name": "a", "data": [NaN]}]}', 'write the strings "NaN"'),
        (b'{"inputs": [{"name": "a", "data": [-Infinity]}]}', '"Infinity" and "-Infinity"'),
        (b'{"inputs": [{"name": "a", "data": [1e999]}]}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"id": "\\ud800"}', "not JSON"),
    ],
)
def test_a_body_that_is_no_json_is_a_400(arithmetic: Server, content: bytes, said: str) -> None:
    assert said in refused(arithmetic.client.post(INFER, content=content), 400)


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, identity"])
def test_a_body_compressed_otherwise_is_a_415(arithmetic: Server, encoding: str) -> None:
    response = arithmetic.client.post(INFER, content=b"x", headers={"content-encoding": encoding})
    assert repr(encoding) in refused(response, 415)
    assert response.headers["accept-encoding"] == "gzip, deflate, identity"


def test_identity_is_no_encoding(arithmetic: Server) -> None:
    assert arithmetic.infer({"inputs": [A, B]}, headers={"content-encoding": "identity"}).status_code == 200


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_the_limit_is_a_413_and_the_connection_stays_usable(
    arithmetic: Server, chunked: bool
) -> None:
    content = b" " * 300_000
    response = arithmetic.client.post(INFER, content=iter([content, content]) if chunked else content)
    assert "longer than 200000 bytes" in refused(response, 413)
    assert arithmetic.infer({"inputs": [A, B]}).status_code == 200


def test_requests_in_one_packet_are_answered_in_order(arithmetic: Server) -> None:
    parts = urlsplit(arithmetic.url)
    packet = b""
    for number in range(3):
        body = json.dumps({"id": str(number), "inputs": [A, B]}).encode()
        packet += (
            b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (INFER.encode(), len(body)) + body
        )
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as sock:
        sock.sendall(packet)
        received = b""
        while received.count(b'"outputs"') < 3:
            received += sock.recv(65536)
    assert [received.index(b'"id":"%d"' % number) for number in range(3)] == sorted(
        received.index(b'"id":"%d"' % number) for number in range(3)
    )


def test_metrics_are_prometheus_text(arithmetic: Server) -> None:
    arithmetic.infer({"inputs": [A, B]})
    ok = arithmetic.metric('tailbound_runtime_requests_total{code="200"}') or 0
    bad = arithmetic.metric('tailbound_runtime_requests_total{code="400"}') or 0
    inferred = arithmetic.metric("tailbound_runtime_batches_total") or 0
    arithmetic.infer({"inputs": [A, B]})
    arithmetic.infer({})
    arithmetic.client.get("/v2/health/ready")
    assert arithmetic.metric('tailbound_runtime_requests_total{code="200"}') == ok + 1
    assert arithmetic.metric('tailbound_runtime_requests_total{code="400"}') == bad + 1
    assert arithmetic.metric("tailbound_runtime_batches_total") == inferred + 1
    assert arithmetic.metric("tailbound_runtime_requests_in_flight") == 0
    assert arithmetic.metric("tailbound_runtime_queue_depth") == 0
    assert (arithmetic.metric("tailbound_runtime_model_load_seconds") or 0) > 0
    assert (arithmetic.metric("tailbound_runtime_request_duration_seconds_sum") or 0) > 0
    info = f'model="{NAME}",provider="CPUExecutionProvider",revision="m-r1-abc",version="0.1.0"'
    assert arithmetic.metric(f"tailbound_runtime_info{{{info}}}") == 1
    assert arithmetic.client.get("/metrics").headers["content-type"].startswith("text/plain; version=")
