"""What hostile clients make the server hold stays within its limit, and is given back when they have gone."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tailbound_runtime.connections import SPARE
from tailbound_runtime.head_parts import MOST_HEADERS
from tailbound_runtime.http2_blocks import literal

from tests.runtime import models
from tests.runtime.process import Server, eventually, serving
from tests.runtime.raw_http2 import (
    CALM,
    CANCEL,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    INFER,
    PING,
    RST,
    SETTINGS,
    Raw,
    connected,
    frame,
    number,
)
from tests.runtime.test_http2 import infer_message

CALLS = 128
LIMIT = 2 * 2**20
MOST_GROWTH = 6 * 2**20
"""The limit, an eighth of it for short requests, and what the interpreter, the heads and the buffers take."""


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    model = models.arithmetic(folder / "memory.onnx")
    with serving(
        model,
        grpc_port="0",
        max_request_bytes=str(2**20),
        max_buffered_bytes=str(LIMIT),
        request_timeout_seconds="300",
    ) as server:
        assert server.infer(rows(1)).status_code == 200
        yield server


def rows(count: int) -> dict[str, object]:
    row = {"datatype": "FP32", "shape": [count, 4], "data": [1.5] * 4 * count}
    return {"inputs": [{"name": name, **row} for name in "ab"]}


def resident(server: Server) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def call(raw: Raw, stream: int, message: bytes, *more: tuple[str, str], ends: bool) -> None:
    parts = [message[at : at + 16384] for at in range(0, len(message), 16384)]
    raw.send(raw.head(stream, *more, path=INFER), *[frame(DATA, 0, stream, part) for part in parts])
    if ends:
        raw.send(frame(DATA, END_STREAM, stream))


def begins(raw: Raw, stream: int) -> None:
    """64 kB of a message that does not end."""
    call(raw, stream, b"\0" + number(2**20 - 100) + bytes(64_000), ends=False)


def long_head(raw: Raw, stream: int) -> None:
    """A head of 15 kB, and no message."""
    block = raw.head(stream, path=INFER)[9:] + literal(b"tracestate", b"a=" + b"x" * 15_000)
    raw.send(frame(HEADERS, END_HEADERS, stream, block))


def takes_no_answer(raw: Raw, stream: int) -> None:
    """A whole request of 32 kB, whose answer the client does not take."""
    call(raw, stream, infer_message(1000), ends=True)


@pytest.mark.parametrize(("attack", "clients"), [(begins, 4), (long_head, 8), (takes_no_answer, 6)])
def test_many_calls_hold_no_more_than_the_limit(
    server: Server, attack: Callable[[Raw, int], None], clients: int
) -> None:
    """Each attack would hold 15 MB and more, all of it within what one request may use uncounted."""
    before = resident(server)
    with ExitStack() as stack:
        raws = []
        for _ in range(clients):
            raw = stack.enter_context(connected(server, b"\0\4" + number(0)))  # it takes no answers
            raws.append(raw)
            for stream in range(1, 2 * CALLS, 2):
                attack(raw, stream)
        for raw in raws:
            raw.send(frame(SETTINGS, 1, 0), frame(PING, 0, 0, bytes(8)))
            assert raw.until(PING)[1] == 1, "all of it has been read"
        assert resident(server) - before < MOST_GROWTH
        assert server.client.get("/v2/health/live").status_code == 200
        assert [server.infer(rows(count)).status_code for count in (1, 30_000)] == [200, 503]
    eventually(lambda: server.infer(rows(30_000)).status_code == 200)


def test_connections_beyond_the_limit_are_turned_away_with_a_reason_and_idle_ones_give_way(
    folder: Path,
) -> None:
    model = models.arithmetic(folder / "connections.onnx")
    with serving(model, grpc_port="0", max_connections="2") as server, ExitStack() as stack:
        busy, other = (stack.enter_context(connected(server)) for _ in range(2))
        for raw in (busy, other):
            call(raw, 1, b"", ends=False)
            raw.send(frame(PING, 0, 0, bytes(8)))
            raw.until(PING)
        refused = server.infer(rows(1))
        assert refused.status_code == 503
        assert "TAILBOUND_MAX_CONNECTIONS" in refused.json()["error"]
        for path in ("/v2/health/live", "/v2/health/ready", "/metrics"):
            probe = server.client.get(path)
            assert (probe.status_code, probe.headers["connection"]) == (200, "close")
        assert stack.enter_context(connected(server)).ended() == CALM
        other.send(frame(RST, 0, 1, number(CANCEL)), frame(PING, 0, 0, bytes(8)))
        other.until(PING)
        assert server.infer(rows(1)).status_code == 200
        assert other.ended() == 0, "it was idle, and gave way"
        later = stack.enter_context(connected(server))  # as does the connection over HTTP
        later.send(later.call(1), later.head(3))
        assert later.status() == (1, "0")
        address = ("127.0.0.1", server.client.base_url.port)
        many = [stack.enter_context(socket.create_connection(address, timeout=20)) for _ in range(SPARE + 1)]
        assert many[-1].recv(1) == b""


def test_more_headers_than_may_be_are_a_431(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.client.base_url.port), timeout=20) as sock:
        sock.sendall(b"GET /v2 HTTP/1.1\r\n" + b"a: b\r\n" * (MOST_HEADERS + 2))
        assert sock.recv(12) == b"HTTP/1.1 431"
