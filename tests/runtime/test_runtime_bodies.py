"""Bodies and heads that are long, hostile or slow: they are refused, and hold up nobody else."""

import json
import socket
import statistics
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from onnx import TensorProto

from e2e.bench import closed_loop
from tests.runtime import models
from tests.runtime.process import NAME, Server, eventually, serving

INFER = f"/v2/models/{NAME}/infer"
MEBIBYTE = 2**20
WITHIN = 0.05  # seconds


@pytest.fixture(scope="module")
def echo(folder: Path) -> Iterator[Server]:
    """y = x, INT64 [n, 2]."""
    model = models.identity(folder / "echo.onnx", TensorProto.INT64)
    with serving(model, request_timeout_seconds="60") as server:
        yield server


def body(data: bytes, rows: int, more: bytes = b"") -> bytes:
    tensor = b'{"name":"x","datatype":"INT64","shape":[%d,2],"data":%s}' % (rows, data)
    return b'{"inputs":[%s],%s"outputs":[]}' % (tensor, more)


def resident_mebibytes(server: Server) -> float:
    """The most memory that the server has had so far."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


@pytest.fixture(scope="module")
def bare() -> Iterator[str]:
    """An event loop in a process of its own, which has nothing to do: what it takes, the machine takes."""
    with closed_loop.bare_loop() as url:
        yield url


@dataclass
class Liveness:
    """Seconds that answers took: the server's, and those of an idle loop that was asked in turn."""

    server: list[float] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)

    def own_median(self) -> float:
        """The server's median without what the machine takes. Not the maximum: processes hold up others."""
        return statistics.median(self.server) - statistics.median(self.idle)


@contextmanager
def watched(server: Server, bare: str) -> Iterator[Liveness]:
    """How long liveness takes to be answered, again and again, meanwhile."""
    took = Liveness()
    over = threading.Event()

    def ask() -> None:
        with httpx.Client(verify=False, timeout=60) as client:
            while not over.wait(0.002):
                for url, seconds in ((server.url, took.server), (bare, took.idle)):
                    started = time.perf_counter()
                    assert client.get(f"{url}/v2/health/live").status_code == 200
                    seconds.append(time.perf_counter() - started)

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        try:
            yield took
        finally:
            over.set()
        asking.result()


ROWS = 10 * MEBIBYTE  # 60 MB of text
HOSTILE: dict[str, tuple[bytes, int, str, float]] = {
    "wrong-at-the-end": (
        body(b"[" + b"17,17," * (ROWS - 1) + b"17,true]", ROWS),
        400,
        f"element {2 * ROWS - 1} of 'data' (row-major) is true, but INT64 means an integer",
        400,
    ),
    "ignored-member-of-objects": (
        body(b"[1,2]", 1, b'"later":[' + b"{}," * (11 * MEBIBYTE) + b"{}],"),
        413,
        "what the request body says beside the inputs' 'data' is longer than 262144 bytes",
        150,
    ),
    "ignored-member-of-text": (
        body(b"[1,2]", 1, b'"later":"' + b"\\u00fc" * (5 * MEBIBYTE) + b'",'),
        413,
        "what the request body says beside the inputs' 'data' is longer than 262144 bytes",
        150,
    ),
    "empty-objects-as-body": (
        b"[" + b"{}," * (20 * MEBIBYTE) + b"{}]",
        413,
        "what the request body says beside the inputs' 'data' is longer than 262144 bytes",
        200,
    ),
    "empty-objects-as-data": (
        body(b"[" + b"{}," * (20 * MEBIBYTE) + b"{}]", ROWS),
        400,
        "element 0 of 'data' (row-major) is an object",
        400,
    ),
    "a-list-without-end": (
        b'{"inputs":[{"data":[' + b"1," * (10 * MEBIBYTE),
        400,
        "the request body is not JSON: what opens at byte",
        200,
    ),
    "nested-deeply": (body(b"[" * (10 * MEBIBYTE), 1), 400, "has no end", 200),
}


@pytest.mark.parametrize(("content", "status", "said", "more"), HOSTILE.values(), ids=list(HOSTILE))
def test_a_hostile_body_is_refused_while_liveness_is_answered(
    echo: Server, bare: str, content: bytes, status: int, said: str, more: float
) -> None:
    """Within `more` MiB of memory."""
    before = resident_mebibytes(echo)
    with watched(echo, bare) as took:
        response = echo.client.post(INFER, content=content)
    assert (response.status_code, said in response.json()["error"]) == (status, True), response.text
    assert took.own_median() < WITHIN
    assert resident_mebibytes(echo) < max(before, 80) + more


@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
def test_a_long_body_is_answered_exactly_while_liveness_is_answered(
    echo: Server, bare: str, nested: bool
) -> None:
    values = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, (200_000, 2), endpoint=True)
    data = json.dumps(values.tolist() if nested else values.ravel().tolist()).encode()
    with watched(echo, bare) as took:
        response = echo.client.post(INFER, content=body(data, len(values)))
    assert response.status_code == 200
    assert np.array_equal(np.array(response.json()["outputs"][0]["data"]), values.ravel())
    assert took.own_median() < WITHIN


def test_half_sent_bodies_are_bounded_in_bytes_and_short_requests_pass(tmp_path: Path) -> None:
    model = models.identity(tmp_path / "m.onnx", TensorProto.INT64)
    short = {"inputs": [{"name": "x", "datatype": "INT64", "shape": [1, 2], "data": [1, 2]}]}
    with serving(model, max_buffered_bytes=str(40 * MEBIBYTE)) as server:
        before = resident_mebibytes(server)
        senders = []
        for _ in range(20):
            parts = urlsplit(server.url)
            sender = socket.create_connection((parts.hostname, parts.port), timeout=30)
            senders.append(sender)
            head = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
            sender.sendall(head % (INFER.encode(), 32 * MEBIBYTE))
        with ThreadPoolExecutor(20) as pool:
            refused = sum(pool.map(half_send, senders))
        assert refused >= 18
        assert resident_mebibytes(server) < before + 100
        assert server.infer(short).status_code == 200
        for sender in senders:
            sender.close()
        eventually(lambda: server.metric("tailbound_runtime_requests_in_flight") == 0, 30)
        assert (
            server.client.post(INFER, content=body(b"[" + b"1," * 99_999 + b"1]", 50_000)).status_code == 200
        )


def half_send(sender: socket.socket) -> bool:
    """Send 20 MiB of more; whether the server refused them with a 503."""
    try:
        sender.sendall(b" " * (20 * MEBIBYTE))
        sender.settimeout(1)
        return sender.recv(100).startswith(b"HTTP/1.1 503 ")
    except TimeoutError:
        return False
    except OSError:
        return True


# --- compression


def packed(encoding: str, content: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | (16 if encoding == "gzip" else 0))
    return packer.compress(content) + packer.flush()


def post(server: Server, content: bytes, **headers: str) -> Any:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return server.client.post(INFER, content=content, headers=names)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_packed_body_is_unpacked_within_the_limit(arithmetic: Server, encoding: str) -> None:
    row = {"datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
    content = json.dumps({"inputs": [{**row, "name": "a"}, {**row, "name": "b"}]}).encode()
    assert post(arithmetic, packed(encoding, content), content_encoding=encoding).status_code == 200
    bomb = packed(encoding, content + b" " * 20_000_000)
    assert len(bomb) < 100_000
    for refused, status, said in [
        (bomb, 413, "longer than 200000 bytes"),
        (packed(encoding, content)[:-9], 400, f"is no {encoding}: it does not end"),
        (packed(encoding, content) + b"more", 400, f"is no {encoding}: it does not end"),
        (content, 400, f"is no {encoding}: "),
        (b"", 400, f"is no {encoding}: "),
    ]:
        response = post(arithmetic, refused, content_encoding=encoding)
        assert (response.status_code, said in response.json()["error"]) == (status, True), response.text


# --- heads


def exchange(server: Server, *parts: bytes) -> bytes:
    """What the server says to these bytes until it closes the connection."""
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        received = b""
        try:
            for part in parts:
                connection.sendall(part)
            while chunk := connection.recv(65536):
                received += chunk
        except ConnectionError:
            pass  # it closed while we were sending
        return received


@pytest.mark.parametrize(
    "parts",
    [
        [b"GET /v2 HTTP/1.1\r\nX: " + b"x" * 40_000 + b"\r\n\r\n"],
        [b"GET /v2 HTTP/1.1\r\n"] + [b"X: %s\r\n" % (b"x" * 1000)] * 33,
        [b"GET /v2?" + b"x" * 100_000],
        [b"GET /v2 HTTP/1.1\r\nX: "] + [b"x" * 1000] * 33,
    ],
    ids=["one-long-header", "many-headers", "long-line", "header-without-end"],
)
def test_a_head_that_is_too_long_is_a_431(arithmetic: Server, parts: list[bytes]) -> None:
    head, _, content = exchange(arithmetic, *parts).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 ")
    assert "longer than 32768 bytes" in json.loads(content)["error"]


def test_what_is_no_http_is_a_400_in_json(arithmetic: Server) -> None:
    head, _, content = exchange(arithmetic, b"hello\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert "no HTTP/1.1 request" in json.loads(content)["error"]


def test_a_head_that_does_not_end_is_a_408_in_time(arithmetic: Server) -> None:
    started = time.monotonic()
    answer = exchange(arithmetic, b"GET /v2 HTTP/1.1\r\nX: x")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert 9 < time.monotonic() - started < 20


@pytest.mark.parametrize("method", [b"GET", b"POST"])
def test_an_upgrade_to_h2c_is_declined_and_the_connection_goes_on(arithmetic: Server, method: bytes) -> None:
    """Java's client asks for it on each new connection."""
    row = {"datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
    content = json.dumps({"inputs": [{**row, "name": "a"}, {**row, "name": "b"}]}).encode()
    path = INFER.encode() if method == b"POST" else b"/v2"
    content = content if method == b"POST" else b""
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
    head = b"%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n" % (method, path, len(content))
    last = b"GET /v2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answers = exchange(arithmetic, head + upgrade + b"\r\n" + content, last)
    assert answers.count(b"HTTP/1.1 200 OK") == 2


def test_a_refusal_reaches_a_client_that_sends_its_long_body_to_the_end_first(arithmetic: Server) -> None:
    """Closed at once, the kernel would reset the connection while the client sends."""
    address, long = urlsplit(arithmetic.url), b"x" * (20 * MEBIBYTE)
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        connection.sendall(b"POST /v2/models/missing/infer HTTP/1.1\r\nHost: m\r\nConnection: close\r\n")
        connection.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(long), long))
        said = b"".join(iter(lambda: connection.recv(65536), b""))
    assert said.startswith(b"HTTP/1.1 404 "), said
    assert b"this server has no /v2/models/missing/infer" in said
