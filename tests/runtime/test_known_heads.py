"""What is remembered of requests changes no answer: heads of HTTP, and JSON around a list."""

import asyncio
import json
import re
from collections.abc import Coroutine, Iterator
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tailbound_runtime.app import App, Phase
from tailbound_runtime.batch import UNBATCHED
from tailbound_runtime.budget import Budget, Share
from tailbound_runtime.codec import Codec
from tailbound_runtime.connection import Connection
from tailbound_runtime.connections import Connections
from tailbound_runtime.engine import TensorSpec
from tailbound_runtime.errors import ApiError
from tailbound_runtime.front import Front
from tailbound_runtime.metrics import Metrics
from tailbound_runtime.model import Model
from tailbound_runtime.protocol import infer_response, parse_infer
from tailbound_runtime.reception import Head, Heads, Intake, Limits
from tailbound_runtime.responses import Response, refusal
from tailbound_runtime.signature import InferRequest, Signature
from tailbound_runtime.tensors import BY_ONNX_TYPE
from tailbound_runtime.wire import REST

FLOATS = TensorSpec("x", BY_ONNX_TYPE["tensor(float)"], (-1, 2))
SIGNATURE = Signature("m", {"x": FLOATS}, {"y": FLOATS}, UNBATCHED, "onnx")
LIMITS = Limits(100, 60.0)
MODEL = Model("m", "1", Metrics())


class Echo:
    """Answers a POST with its body, and anything else with its path."""

    phase = Phase.READY

    def __init__(self, budget_bytes: int = 2**20) -> None:
        self.budget = Budget(budget_bytes)

    def head(self, method: bytes, url: bytes, headers: dict[bytes, bytes]) -> Head | Response:
        return Head(url, headers, LIMITS) if method == b"POST" else Response(200, (), [url])

    def begin(self, head: Head) -> Intake | Response:
        return (
            refusal(head.refusal)
            if head.refusal
            else Intake(head, 0.0, LIMITS, Share(Budget(1000)), MODEL, REST)
        )

    def read(self, head: Head, body: bytes, since: float) -> Response | None:
        return Response(200, (), [body]) if head.json_length is None else None

    def receive(self, intake: Intake, part: bytes) -> Response | None:
        try:
            intake.add(part)
        except ApiError as error:
            return refusal(error)
        return None

    def received(self, intake: Intake, size: int) -> None:
        """Not counted."""

    def infer(self, intake: Intake, now: float) -> Response | Coroutine[Any, Any, Response]:
        return Response(200, (), [bytes(intake.body)])

    def sent(self, intake: Intake, seconds: float) -> None:
        """Not counted."""

    def left(self, intake: Intake, complete: bool) -> None:
        """Not counted."""


class Wire:
    """What a connection wrote, until it closed."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = self.ended = self.aborted = False
        self.left = self.reads = 0

    def write(self, data: bytes) -> None:
        assert not self.ended
        if not self.closed:
            self.written += data

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.closed = True

    def get_extra_info(self, name: str) -> None:
        """There is no socket."""

    def abort(self) -> None:
        self.aborted = True

    def get_write_buffer_size(self) -> int:
        self.left -= self.reads
        return self.left

    def pause_reading(self) -> None:
        """Nothing is read here."""

    def is_closing(self) -> bool:
        return self.closed

    def is_reading(self) -> bool:
        return True


def answers(front: Front, *parts: bytes) -> tuple[bytes, bool]:
    wire, connection = Wire(), front.connection()
    connection.connection_made(cast(Any, wire))
    for part in parts:
        if not wire.closed:
            fed(connection, part)
    front._burst.serve()
    connection.connection_lost(None)
    return re.sub(rb"date: [^\r]*", b"", wire.written), wire.closed or wire.ended


def fed(connection: Connection, data: bytes) -> None:
    while data:
        room = connection.get_buffer(-1)
        size = min(len(room), len(data))
        room[:size] = data[:size]
        connection.buffer_updated(size)
        data = data[size:]


def post(body: bytes, *headers: bytes, line: bytes = b"POST /i HTTP/1.1") -> bytes:
    return b"\r\n".join([line, *headers, b"", body])


REQUESTS = [
    post(b"12345", b"content-length: 5"),
    post(b"abcde", b"content-length: 5"),
    post(b"ab", b"Content-Length: 2", b"Inference-Header-Content-Length: 1"),
    post(b"0123456789", b"content-length: 10", b"inference-header-content-length: 1"),
    post(b"9876543210", b"content-length: 10", b"inference-header-content-length: 1"),
    post(b"", b"content-length: 0"),
    post(b"3\r\nabc\r\n0\r\n\r\n", b"transfer-encoding: chunked"),
    post(b"12345", b"content-length: 5", b"expect: 100-continue"),
    post(b"12345", b"content-length: 5", b"connection: close"),
    post(b"12345", b"content-length: 5", b"connection: upgrade", b"upgrade: h2c"),
    post(b"1", b"content-length: 1", line=b"\r\nPOST /i HTTP/1.1"),
    post(b"1", b"content-length: 1", line=b"POST /i HTTP/1.0"),
    post(b"x" * 200, b"content-length: 200"),
    post(b"12345", b"content-length: 5", b"inference-header-content-length: no"),
    b"GET /live HTTP/1.1\r\n\r\n",
    b"\r\n\r\n",
    b"POST /i HTTP/1.1\ncontent-length: 9\n\nGET / \r\n\r\n",
    post(b"12345", b"content-length: 5", b"content-length: 6"),
    post(b"0\r\n\r\n", b"content-length: 5", b"transfer-encoding: chunked"),
    b"nonsense\r\n\r\n",
]


@pytest.fixture(scope="module")
def small_rooms() -> Iterator[None]:
    """Bodies of 10 bytes are long."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tailbound_runtime.reception.LEAST_ROOM_BYTES", 10)
        yield


@settings(max_examples=150)
@given(st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=5), st.lists(st.integers(1, 300), max_size=6))
async def test_answers_are_the_same_with_known_heads_and_however_bytes_arrive(
    small_rooms: None, requests: list[bytes], cuts: list[int]
) -> None:
    sent = b"".join(requests)
    parser_only = Front(cast(App, Echo()), Connections(9))
    parser_only._known = cast(Any, Forgetful())
    expected = answers(parser_only, sent)
    front = Front(cast(App, Echo()), Connections(9))
    for request in REQUESTS:
        answers(front, request)
    long = REQUESTS[3]
    answers(front, long[:-1], long[-1:])
    assert front._known.likely, "no head of a long body is expected"
    ends = [0, *sorted({cut for cut in cuts if cut < len(sent)}), len(sent)]
    assert answers(front, *(sent[a:b] for a, b in pairwise(ends))) == expected
    assert front._known, "no head was remembered"


class Forgetful(Heads):
    """Remembers no head."""

    def __setitem__(self, key: bytes, value: Head) -> None:
        """It is gone."""


ELEMENTS = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.integers(-(2**70), 2**70),
    st.sampled_from([True, None, "1", 1e39, "NaN", "Infinity", [1], "]", "[", '"data"']),
)


@settings(max_examples=300)
@given(
    st.lists(st.lists(ELEMENTS, max_size=5), min_size=2, max_size=4),
    st.sampled_from([None, "7"]),
    st.sampled_from([[1, 2], [2, 1], [0, 2], [2, 2]]),
    st.booleans(),
    st.sampled_from([{}, {"priority": 2}, {"priority": 1, "timeout": 5}]),
)
def test_json_is_parsed_the_same_with_known_frames(
    lists: list[list[Any]], identity: str | None, shape: list[int], first: bool, parameters: dict[str, int]
) -> None:
    codec = Codec(SIGNATURE)
    for data in ([1.0, 2.0], *lists):
        tensor = {"data": data, "shape": shape} if first else {"shape": shape, "data": data}
        inputs = [{"name": "x", "datatype": "FP32", **tensor}]
        request = {"id": identity, "parameters": parameters, "inputs": inputs}
        body = json.dumps(request).encode()
        assert outcome(lambda: codec.parse(body, None, print)) == outcome(  # noqa: B023
            lambda: parse_infer(body, None, SIGNATURE, print)  # noqa: B023
        )


def outcome(parsed: Any) -> object:
    try:
        request = parsed()
    except ApiError as error:
        return error.status, error.message
    array = request.inputs["x"]
    return (
        request.id,
        array.shape,
        array.dtype,
        array.tobytes(),
        request.outputs,
        *(request.rows, request.binary, request.priority, request.timeout_seconds),
    )


@given(st.lists(st.lists(st.floats(width=32), max_size=3), min_size=2, max_size=4), st.booleans())
def test_answers_are_written_the_same_with_known_frames(rows: list[list[float]], in_binary: bool) -> None:
    codec = Codec(SIGNATURE)
    wanted = frozenset(("y",)) if in_binary else frozenset[str]()
    for values in rows:
        array = np.array([values], np.float32)
        request = InferRequest(None, {}, ("y",), 1, wanted)
        written, known = infer_response(request, SIGNATURE, [array]), codec.answer(request, [array])
        assert b"".join(known.parts) == b"".join(written.parts)
        assert known.json_length == written.json_length


def test_the_scheduling_parameters_of_known_json_are_kept() -> None:
    codec = Codec(SIGNATURE)
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}
    head = json.dumps({"parameters": {"priority": 2, "timeout": 5}, "inputs": [tensor]}).encode()
    for _ in range(3):
        request = codec.parse(head + bytes(8), len(head), print)
        assert (request.priority, request.timeout_seconds) == (2, 5e-6)


async def test_who_reads_nothing_of_an_answer_is_left_and_who_reads_slowly_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tailbound_runtime.unread.UNREAD_SECONDS", 0.01)
    wire, connection = Wire(), Front(cast(Any, Echo()), Connections(9)).connection()
    connection.connection_made(cast(Any, wire))
    wire.left, wire.reads = 10**6, 1  # it reads a byte before each look
    connection.pause_writing()
    await asyncio.sleep(0.1)
    outcomes = [wire.aborted]
    wire.reads = 0
    await asyncio.sleep(0.1)
    assert [*outcomes, wire.aborted] == [False, True]
    connection.connection_lost(None)


class SlowWire(Wire):
    """Its client takes nothing. written: what is left for it"""

    connection: Connection

    def write(self, data: bytes) -> None:
        super().write(data)
        self.left += len(data)
        self.connection.pause_writing()


class Waiting(Echo):
    """An inference never ends."""

    async def infer(self, intake: Intake, now: float) -> Response:
        await asyncio.get_running_loop().create_future()
        raise AssertionError


@pytest.mark.parametrize(
    ("echo", "wire", "begins"),
    [(Waiting, Wire, b"POST / HTTP/1.1\r\ncontent-length: 1\r\n\r\nx"), (Echo, SlowWire, b"")],
    ids=["behind-another", "unread"],
)
async def test_answers_that_wait_are_counted_and_a_connection_ends_that_has_no_room_for_them(
    echo: type[Echo], wire: type[Wire], begins: bytes
) -> None:
    app, sends = echo(budget_bytes=8000), wire()
    connection = Front(cast(Any, app), Connections(9)).connection()
    connection.connection_made(cast(Any, sends))
    if isinstance(sends, SlowWire):
        sends.connection = connection

    def asks(data: bytes) -> None:
        connection.get_buffer(-1)[: len(data)] = data
        connection.buffer_updated(len(data))

    asks(begins)
    await asyncio.sleep(0)
    asked = b"GET /%s HTTP/1.1\r\n\r\n" % (b"x" * 1000)
    asks(asked)
    asks(asked)
    assert 2000 < app.budget.used < 2500
    for _ in range(2):
        sends.left = 0
        connection.resume_writing()
    assert (app.budget.used == 0) == (echo is Echo)
    for _ in range(8):
        asks(asked)
    assert sends.aborted
    connection.connection_lost(None)
    assert app.budget.used == 0
