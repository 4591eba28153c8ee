"""HTTP/2 under the gRPC surface, as a client sees it that breaks its rules or floods it."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tritonclient.grpc import service_pb2

from tests.runtime import models
from tests.runtime.process import NAME, Server, rpc_address, serving
from tests.runtime.raw_http2 import (
    ACK,
    CALM,
    CANCEL,
    COMPRESSION,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FLOW_CONTROL,
    FRAME_SIZE,
    GOAWAY,
    HEAD,
    HEADERS,
    INFER,
    NOTHING,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH,
    REFUSED,
    RST,
    SETTINGS,
    WINDOW,
    Raw,
    connected,
    frame,
    number,
)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    model = models.arithmetic(folder / "http2.onnx")
    with serving(model, grpc_port="0", max_request_bytes="2000000", request_timeout_seconds="2") as server:
        yield server


@pytest.fixture
def raw(server: Server) -> Iterator[Raw]:
    """Afterwards another client is answered."""
    with connected(server) as client:
        yield client
    with connected(server) as other:
        other.send(other.call(1))
        assert other.status() == (1, "0")


BROKEN: list[tuple[str, list[bytes], int]] = [
    ("data-on-idle-stream", [frame(DATA, 0, 1, b"x")], PROTOCOL_ERROR),
    ("data-on-no-stream", [frame(DATA, 0, 0, b"x")], PROTOCOL_ERROR),
    ("headers-on-no-stream", [frame(HEADERS, END_HEADERS, 0)], PROTOCOL_ERROR),
    ("headers-on-even-stream", [frame(HEADERS, END_HEADERS, 2)], PROTOCOL_ERROR),
    ("no-hpack", [frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff")], COMPRESSION),
    ("index-that-is-not-there", [frame(HEADERS, END_HEADERS, 1, b"\xfe")], COMPRESSION),
    ("large-table", [frame(HEADERS, END_HEADERS, 1, b"\x3f\xe1\xff\x03")], COMPRESSION),
    ("padding-beyond-frame", [frame(HEADERS, END_HEADERS | PADDED, 1, b"\x09a")], PROTOCOL_ERROR),
    ("padding-without-length", [frame(HEADERS, END_HEADERS | PADDED, 1)], FRAME_SIZE),
    ("continuation-alone", [frame(CONTINUATION, END_HEADERS, 1)], PROTOCOL_ERROR),
    ("block-interrupted", [frame(HEADERS, 0, 1), frame(PING, 0, 0, bytes(8))], PROTOCOL_ERROR),
    ("block-of-another-stream", [frame(HEADERS, 0, 1), frame(CONTINUATION, 4, 3)], PROTOCOL_ERROR),
    (
        "long-block",
        [frame(HEADERS, 0, 1, bytes(16000)), *[frame(CONTINUATION, 0, 1, bytes(16000))] * 3],
        CALM,
    ),
    ("continuation-flood", [frame(HEADERS, 0, 1), frame(CONTINUATION, 0, 1) * 50], CALM),
    ("hpack-bomb", [frame(HEADERS, 4, 1, b"\x40\x01a\x7f\x81\x1e" + b"v" * 4000 + b"\xbe" * 12000)], CALM),
    ("long-frame", [frame(DATA, 0, 1, bytes(16385))], FRAME_SIZE),
    ("push", [frame(PUSH, 4, 1, bytes(4))], PROTOCOL_ERROR),
    ("short-ping", [frame(PING, 0, 0, bytes(7))], FRAME_SIZE),
    ("ping-of-a-stream", [frame(PING, 0, 1, bytes(8))], PROTOCOL_ERROR),
    ("settings-of-a-stream", [frame(SETTINGS, 0, 1)], PROTOCOL_ERROR),
    ("half-settings", [frame(SETTINGS, 0, 0, bytes(5))], FRAME_SIZE),
    ("full-acknowledgement", [frame(SETTINGS, ACK, 0, bytes(6))], FRAME_SIZE),
    ("window-too-large", [frame(SETTINGS, 0, 0, b"\0\4" + number(2**31))], FLOW_CONTROL),
    ("frames-too-small", [frame(SETTINGS, 0, 0, b"\0\5" + number(100))], PROTOCOL_ERROR),
    ("push-enabled-twice", [frame(SETTINGS, 0, 0, b"\0\2" + number(2))], PROTOCOL_ERROR),
    ("update-of-0", [frame(WINDOW, 0, 0, number(0))], PROTOCOL_ERROR),
    ("update-beyond", [frame(WINDOW, 0, 0, number(2**31 - 1))], FLOW_CONTROL),
    ("update-of-idle-stream", [frame(WINDOW, 0, 5, number(1))], PROTOCOL_ERROR),
    ("short-update", [frame(WINDOW, 0, 0, bytes(3))], FRAME_SIZE),
    ("reset-of-idle-stream", [frame(RST, 0, 5, number(8))], PROTOCOL_ERROR),
    (
        "reset-of-a-servers-stream",
        [frame(HEADERS, END_HEADERS, 3), frame(RST, 0, 2, number(8))],
        PROTOCOL_ERROR,
    ),
    ("short-reset", [frame(RST, 0, 5, bytes(3))], FRAME_SIZE),
    ("short-priority", [frame(PRIORITY, 0, 1, bytes(4))], FRAME_SIZE),
    ("priority-of-no-stream", [frame(PRIORITY, 0, 0, bytes(5))], PROTOCOL_ERROR),
    ("goaway-of-a-stream", [frame(GOAWAY, 0, 1, bytes(8))], PROTOCOL_ERROR),
    ("ping-flood", [frame(PING, 0, 0, bytes(8)) * 3000], CALM),
    ("settings-flood", [frame(SETTINGS, 0, 0) * 3000], CALM),
    ("many-settings-in-a-frame", [frame(SETTINGS, 0, 0, (b"\0\4" + number(9)) * 2700)], CALM),
    ("priority-flood", [frame(PRIORITY, 0, 1, bytes(5)) * 3000], CALM),
    ("window-flood", [frame(WINDOW, 0, 0, number(1)) * 3000], CALM),
    ("flood-of-what-is-unknown", [frame(99, 0, 0) * 3000], CALM),
]


@pytest.mark.parametrize(("frames", "code"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_what_breaks_http2_or_floods_ends_the_connection(raw: Raw, frames: list[bytes], code: int) -> None:
    raw.send(*frames)
    assert raw.ended() == code


@pytest.mark.parametrize("again", [3, 5])
def test_streams_begin_in_order(raw: Raw, again: int) -> None:
    raw.send(raw.call(5))
    assert raw.status() == (5, "0")
    raw.send(raw.call(again))
    assert raw.ended() == PROTOCOL_ERROR


LENGTHS: list[tuple[str, str, list[bytes], bytes]] = [
    ("as-declared", "5", [frame(DATA, END_STREAM, 1, NOTHING)], b""),
    ("with-padding", "5", [frame(DATA, END_STREAM | PADDED, 1, b"\2" + NOTHING + bytes(2))], b""),
    ("too-much", "4", [frame(DATA, 0, 1, NOTHING)], number(PROTOCOL_ERROR)),
    ("too-little", "6", [frame(DATA, END_STREAM, 1, NOTHING)], number(PROTOCOL_ERROR)),
    ("nothing", "5", [frame(HEADERS, END_STREAM | END_HEADERS, 1)], number(PROTOCOL_ERROR)),
    ("no-number", "5,5", [], number(PROTOCOL_ERROR)),
]


@pytest.mark.parametrize(
    ("declared", "frames", "code"), [case[1:] for case in LENGTHS], ids=[case[0] for case in LENGTHS]
)
def test_content_that_differs_from_its_declared_length_ends_the_stream(
    raw: Raw, declared: str, frames: list[bytes], code: bytes
) -> None:
    raw.send(raw.head(1, ("content-length", declared)), *frames)
    if code:
        assert raw.until(RST)[2:] == (1, code)
    else:
        assert raw.status() == (1, "0")
    raw.send(raw.call(3))
    assert raw.status() == (3, "0")


def test_what_was_on_its_way_to_refused_calls_is_no_flood(raw: Raw) -> None:
    raw.send(raw.head(1, path="/none"))
    assert raw.status() == (1, "12")
    raw.send(*[frame(DATA, 0, 1, bytes(16000))] * 1500, raw.call(3))
    assert raw.status() == (3, "0")


def test_short_calls_pass_beside_long_ones_that_fill_the_memory(folder: Path) -> None:
    """They have memory of their own, as over HTTP."""
    model = models.arithmetic(folder / "full.onnx")
    with (
        serving(model, grpc_port="0", max_request_bytes="100000", max_buffered_bytes="300000") as server,
        connected(server) as raw,
    ):
        parts = [bytes(16000)] * 6
        long = b"\0" + number(99_000)
        for stream in (1, 3, 5, 7):
            raw.send(raw.head(stream, path=INFER), frame(DATA, 0, stream, long))
            raw.send(*[frame(DATA, 0, stream, part) for part in parts])
        message = infer_message(500)  # 16 KB
        raw.send(raw.head(9, path=INFER), frame(DATA, END_STREAM, 9, message))
        assert dict(raw.status() for _ in range(2)) == {7: "14", 9: "0"}


def test_rapid_resets_end_the_connection(raw: Raw) -> None:
    head = raw.head(1)[9:]  # then the table is warm
    raw.send(frame(HEADERS, END_HEADERS, 1, head), frame(RST, 0, 1, number(CANCEL)))
    pairs = [
        raw.head(stream, path=INFER) + frame(RST, 0, stream, number(CANCEL)) for stream in range(3, 5003, 2)
    ]
    raw.send(*pairs)
    assert raw.ended() == CALM


def test_empty_data_does_not_keep_a_connection_busy(raw: Raw) -> None:
    raw.send(raw.head(1, path=INFER), frame(DATA, 0, 1) * 3000)
    assert raw.ended() == CALM


MALFORMED: list[tuple[str, dict[str, str], tuple[tuple[str, str], ...]]] = [
    ("upper-case", {}, (("Odd", "1"),)),
    ("connection", {}, (("connection", "close"),)),
    ("transfer-encoding", {}, (("transfer-encoding", "chunked"),)),
    ("other-te", {"te": "gzip"}, ()),
    ("late-pseudo", {}, ((":path", "/"),)),
    ("unknown-pseudo", {}, ((":status", "200"),)),
    ("line-break", {}, (("odd", "a\r\nb"),)),
    ("blank", {}, (("odd", "a "),)),
    ("empty-path", {"path": ""}, ()),
    ("empty-name", {}, (("", "1"),)),
]


@pytest.mark.parametrize(
    ("changes", "more"), [case[1:] for case in MALFORMED], ids=[case[0] for case in MALFORMED]
)
def test_a_malformed_head_ends_its_stream_alone(
    raw: Raw, changes: dict[str, str], more: tuple[tuple[str, str], ...]
) -> None:
    raw.send(raw.head(1, *more, **changes))
    assert raw.until(RST)[2:] == (1, number(PROTOCOL_ERROR))
    raw.send(raw.call(3))
    assert raw.status() == (3, "0")


ANSWERED: list[tuple[str, dict[str, str], bytes, str]] = [
    ("get", {"method": "GET"}, NOTHING, "405"),
    ("no-grpc", {"content_type": "application/json"}, NOTHING, "415"),
    ("grpc-json", {"content_type": "application/grpc+json"}, NOTHING, "415"),
    ("with-parameters", {"content_type": "application/grpc;charset=x"}, NOTHING, "0"),
    ("unknown-method", {"path": "/inference.GRPCInferenceService/None"}, NOTHING, "12"),
    ("unknown-packing", {"te": "trailers"}, b"\1" + bytes(4), "3"),
    ("no-message", {}, b"", "3"),
    ("half-a-prefix", {}, b"\0\0", "3"),
    ("half-a-message", {}, b"\0\0\0\0\x05abc", "3"),
    ("two-messages", {}, NOTHING * 2, "3"),
    ("odd-flag", {}, b"\2" + bytes(4), "3"),
    ("too-long", {"path": INFER}, b"\0" + number(2_000_001), "8"),
]


@pytest.mark.parametrize(
    ("changes", "message", "status"), [case[1:] for case in ANSWERED], ids=[case[0] for case in ANSWERED]
)
def test_what_is_no_call_is_answered(raw: Raw, changes: dict[str, str], message: bytes, status: str) -> None:
    raw.send(raw.call(1, message, **changes))
    assert raw.status() == (1, status)
    raw.send(raw.call(3))
    assert raw.status() == (3, "0")


def test_a_status_fits_into_what_clients_take_of_headers(raw: Raw) -> None:
    asked = service_pb2.ModelInferRequest(model_name="ü" * 20_000).SerializeToString()
    message = b"\0" + number(len(asked)) + asked
    parts = [frame(DATA, 0, 1, message[at : at + 16000]) for at in range(0, len(message), 16000)]
    raw.send(raw.head(1, path=INFER), *parts, frame(DATA, END_STREAM, 1))
    _, headers, _ = raw.headers()
    assert headers["grpc-status"] == "5"
    assert 2000 < len(headers["grpc-message"]) < 8000


def test_more_streams_than_may_be_are_refused_and_the_others_go_on(raw: Raw) -> None:
    raw.send(*[raw.head(stream) for stream in range(1, 259, 2)])
    assert raw.until(RST)[2:] == (257, number(REFUSED))
    raw.send(frame(DATA, END_STREAM, 1, NOTHING))
    assert raw.status() == (1, "0")


def test_a_message_that_does_not_arrive_is_given_up(raw: Raw) -> None:
    raw.send(raw.head(1), raw.head(3, ("grpc-timeout", "100m")), frame(HEADERS, END_HEADERS, 5))
    started = time.monotonic()
    assert raw.status() == (3, "4")
    assert time.monotonic() - started < 1.5
    assert raw.status() == (1, "4")
    assert raw.until(RST)[2:] == (1, number(0))  # the client need not go on


def infer_message(rows: int) -> bytes:
    asked = service_pb2.ModelInferRequest(model_name=NAME)
    for name in ("a", "b"):
        asked.inputs.add(name=name, datatype="FP32", shape=[rows, 4])
        asked.raw_input_contents.append(bytes(16 * rows))
    message = bytes(asked.SerializeToString())
    return b"\0" + number(len(message)) + message


def test_an_answer_waits_for_the_windows_of_its_client_and_no_longer_than_the_timeout(server: Server) -> None:
    message = infer_message(1000)
    parts = [message[start : start + 16384] for start in range(0, len(message), 16384)]
    with connected(server, b"\0\4" + number(10)) as raw:
        for stream in (1, 3):
            raw.send(raw.head(stream, path=INFER), *[frame(DATA, 0, stream, part) for part in parts])
            raw.send(frame(DATA, END_STREAM, stream))
        sent = {1: 0, 3: 0}
        for _ in sent:
            _, _, stream, payload = raw.until(DATA)
            sent[stream] += len(payload)
        assert sent == {1: 10, 3: 10}
        raw.send(frame(WINDOW, 0, 1, number(5)))
        assert len(raw.until(DATA)[3]) == 5
        raw.send(frame(SETTINGS, 0, 0, b"\0\4" + number(20)))  # ten more for each stream
        assert sorted(len(raw.until(DATA)[3]) for _ in range(2)) == [10, 10]
        raw.send(frame(WINDOW, 0, 1, number(10**6)))
        while raw.until(DATA, HEADERS)[0] == DATA:
            pass
        assert raw.until(RST)[2:] == (3, number(CANCEL))


def test_padding_and_windows_of_long_messages_count(raw: Raw) -> None:
    message = infer_message(60_000)  # 1.9 MB
    parts = [message[start : start + 16000] for start in range(0, len(message), 16000)]
    raw.send(raw.head(1, path=INFER), *[frame(DATA, PADDED, 1, b"\x0a" + part + bytes(10)) for part in parts])
    raw.send(
        frame(DATA, END_STREAM, 1), frame(WINDOW, 0, 0, number(10**8)), frame(WINDOW, 0, 1, number(10**8))
    )
    assert raw.status() == (1, "0")


def test_blocks_are_read_by_the_table_of_now(raw: Raw) -> None:
    """The same bytes name another path once the table has changed."""
    raw.send(frame(HEADERS, END_HEADERS, 1, raw.encoder.encode([*HEAD])), frame(DATA, END_STREAM, 1, NOTHING))
    assert raw.status() == (1, "0")
    again = raw.encoder.encode([*HEAD])
    for stream in (3, 5):
        raw.send(frame(HEADERS, END_HEADERS, stream, again), frame(DATA, END_STREAM, stream, NOTHING))
        assert raw.status() == (stream, "0")
    shifted = b"\x40\x02xa\x01b"  # one more entry: each index names the header before
    raw.send(frame(HEADERS, END_HEADERS, 7, shifted))
    assert raw.until(RST)[2] == 7
    raw.send(frame(HEADERS, END_HEADERS, 9, again))
    assert raw.until(RST)[2:] == (9, number(PROTOCOL_ERROR))


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", PREFACE[:10] + b"x", b"\x16\x03\x01"])
def test_other_protocols_are_told(server: Server, sent: bytes) -> None:
    host, _, port = rpc_address(server).partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as sock:
        sock.sendall(sent)
        read = b"".join(iter(lambda: sock.recv(4096), b""))
    assert read.endswith(b"this port speaks gRPC: HTTP/2 with prior knowledge only"), read


def test_a_drain_sends_clients_away_and_answers_what_is_on_its_way(folder: Path) -> None:
    model = models.arithmetic(folder / "drained.onnx")
    with serving(model, grpc_port="0", drain_seconds="1") as server, connected(server) as raw:
        raw.send(raw.head(1))
        raw.until(SETTINGS)
        server.terminate()
        assert raw.until(GOAWAY)[3][:8] == number(2**31 - 1) + number(0)
        raw.send(raw.call(3))
        assert raw.status() == (3, "0")
        assert raw.until(GOAWAY)[3][:8] == number(3) + number(0)
        raw.send(frame(DATA, END_STREAM, 1, NOTHING))
        assert raw.status() == (1, "0")
        with pytest.raises(EOFError):
            raw.until(GOAWAY)
