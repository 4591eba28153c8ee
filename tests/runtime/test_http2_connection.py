"""One HTTP/2 connection on a transport that notes what it gets: what time and unread answers do to it."""

import asyncio
import struct
import time
from math import inf
from typing import cast

import pytest
from hpack import Encoder
from tailbound_runtime.budget import Budget
from tailbound_runtime.connections import Connections
from tailbound_runtime.http2 import PREFACE_SECONDS, Http2Connection
from tailbound_runtime.http2_frames import Code
from tailbound_runtime.http2_outflow import Stream
from tailbound_runtime.http2_streams import MOST_UNSENT

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, GOAWAY, WINDOW, CONTINUATION = 0, 1, 4, 7, 8, 9


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


HELLO = PREFACE + frame(SETTINGS, 0, 0)
BLOCK = Encoder().encode([(":method", "POST"), (":scheme", "http"), (":path", "/")], huffman=False)


class Notes:
    """A transport."""

    def __init__(self) -> None:
        self.sent = b""
        self.closed = self.aborted = False
        self.reads = True

    def write(self, data: bytes) -> None:
        self.sent += data

    def writelines(self, parts: list[bytes]) -> None:
        self.sent += b"".join(parts)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def get_write_buffer_size(self) -> int:
        return 1

    def get_extra_info(self, name: str) -> None:
        """There is no socket."""

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def frames(self) -> list[tuple[int, int, bytes]]:
        """Kind, stream and payload of each that was sent."""
        found, at = [], 0
        while at < len(self.sent):
            first, _, stream = struct.unpack_from(">IBI", self.sent, at)
            found.append((first & 0xFF, stream, self.sent[at + 9 : at + 9 + (first >> 8)]))
            at += 9 + (first >> 8)
        return found


class Long:
    """A call whose answer is long. size: of it, in bytes"""

    size = 2 * MOST_UNSENT

    def __init__(self, connection: Http2Connection, stream: Stream, calls: list["Long"]) -> None:
        self.connection, self.stream = connection, stream
        self.due, self.began, self.tardy = inf, False, 0
        calls.append(self)

    def receive(self, part: bytes) -> None:
        """Nothing of it matters."""

    def end(self) -> None:
        self.began = True
        self.connection.out.begin(self.stream, b"\x88")
        self.connection.out.send(self.stream, [bytes(self.size)])
        self.connection.out.finish(self.stream, b"\x88")

    def lost(self) -> None:
        self.tardy = -1

    def overdue(self) -> None:
        self.tardy += 1


class Client:
    """What reads a connection, and its calls."""

    def __init__(self) -> None:
        self.calls: list[Long] = []
        self.notes = Notes()
        self.budget = Budget(2**26)
        self.connection = Http2Connection(
            lambda headers: headers,
            lambda connection, stream, _: Long(connection, stream, self.calls),
            set(),
            lambda _: None,
            lambda: None,
            self.budget,
            Connections(9),
        )
        self.connection.connection_made(cast(asyncio.Transport, self.notes))
        self.notes.sent = b""

    def feed(self, data: bytes) -> None:
        self.connection.get_buffer(-1)[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def code(self) -> int:
        """With which the connection has ended."""
        assert self.notes.closed
        ((_, _, payload),) = [each for each in self.notes.frames() if each[0] == GOAWAY]
        return int.from_bytes(payload[4:8], "big")


class Clock:
    """What http2.py knows the time from."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("tailbound_runtime.http2.time", self)

    def perf_counter(self) -> float:
        return self.now


BEGINS = frame(HEADERS, 0, 1, BLOCK)


@pytest.mark.parametrize(
    ("before", "sent", "more"),
    [
        (b"", b"", PREFACE[:1]),
        (b"", PREFACE[:5], PREFACE[5:6]),
        (b"", PREFACE, frame(SETTINGS, 0, 0)[:1]),
        (HELLO, BEGINS, frame(CONTINUATION, 0, 1)),
    ],
)
async def test_a_beginning_that_does_not_end_is_given_up_however_often_more_comes(
    before: bytes, sent: bytes, more: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    client = Client()
    client.feed(before)
    if before:
        clock.now += 100  # it is not the age of the connection that counts
    client.feed(sent)
    clock.now += PREFACE_SECONDS - 1
    client.feed(more)
    assert client.connection.sweep(clock.now)
    assert not client.notes.closed
    clock.now += 2
    assert not client.connection.sweep(clock.now)
    assert client.code() == Code.PROTOCOL_ERROR


async def test_each_block_has_its_own_time_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, client = Clock(monkeypatch), Client()
    client.feed(HELLO + BEGINS)
    for stream in (1, 3, 5):
        clock.now += PREFACE_SECONDS - 1
        client.feed(frame(CONTINUATION, 4, stream) + frame(HEADERS, 0, stream + 2, BLOCK))
        assert client.connection.sweep(clock.now)
    assert not client.notes.closed


async def test_requests_wait_while_answers_are_not_taken() -> None:
    client = Client()
    client.feed(HELLO + b"".join(frame(HEADERS, 5, stream, BLOCK) for stream in (1, 3, 5)))
    assert [each.began for each in client.calls] == [True, False, False]
    more = struct.pack(">I", 2 * MOST_UNSENT)
    client.feed(frame(WINDOW, 0, 1, more))
    assert not client.calls[1].began, "the window of the connection is full"
    client.feed(frame(3, 0, 3, bytes(4)))
    client.feed(frame(WINDOW, 0, 0, more))
    assert [(each.began, each.tardy) for each in client.calls] == [(True, 0), (False, -1), (True, 0)]
    answers = [each for each in client.notes.frames() if each[0] == DATA]
    assert sum(len(payload) for _, stream, payload in answers if stream == 1) == 2 * MOST_UNSENT


async def test_windows_go_to_each_stream_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Long, "size", MOST_UNSENT // 2)
    client = Client()
    client.feed(PREFACE + frame(SETTINGS, 0, 0, b"\0\4" + struct.pack(">I", 2**20)))
    client.feed(b"".join(frame(HEADERS, 5, stream, BLOCK) for stream in (1, 3)))
    client.notes.sent = b""
    for _ in range(4):
        client.feed(frame(WINDOW, 0, 0, struct.pack(">I", 16384)))
    assert [stream for kind, stream, _ in client.notes.frames() if kind == DATA] == [1, 3, 1, 3]


async def test_who_does_not_read_gets_no_more_and_is_left_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailbound_runtime.unread.UNREAD_SECONDS", 0.05)
    monkeypatch.setattr(Long, "size", 100)
    client = Client()
    client.feed(HELLO)
    client.notes.sent = b""
    client.connection.pause_writing()
    client.feed(frame(HEADERS, 5, 1, BLOCK))
    assert (client.connection.out.unsent, client.notes.reads) == (100, False)
    assert client.budget.used == 100 + client.notes.get_write_buffer_size()
    client.connection.resume_writing()
    assert (client.connection.out.unsent, client.notes.reads, client.budget.used) == (0, True, 0)
    await asyncio.sleep(0.1)
    assert not client.notes.aborted, "it has read"
    client.connection.refuse()
    await asyncio.sleep(0.1)
    assert (client.notes.closed, client.notes.aborted) == (True, True)


async def test_the_last_stream_that_is_said_to_be_answered_never_rises() -> None:
    client = Client()
    client.feed(HELLO + frame(HEADERS, 4, 1, BLOCK))
    client.connection.refuse()
    client.feed(frame(HEADERS, 4, 3, BLOCK) + frame(7, 0, 1))
    assert [payload[:4] for kind, _, payload in client.notes.frames() if kind == GOAWAY] == [
        bytes((0, 0, 0, 1))
    ] * 2


async def test_calls_are_told_once_they_are_due() -> None:
    client = Client()
    client.feed(HELLO + frame(HEADERS, 4, 1, BLOCK) + frame(HEADERS, 4, 3, BLOCK))
    now = time.perf_counter()
    client.calls[0].due = now + 1
    for after, tardy in ((0, 0), (2, 1)):
        assert client.connection.sweep(now + after)
        assert [each.tardy for each in client.calls] == [tardy, 0]
    client.connection.connection_lost(None)
    assert [each.tardy for each in client.calls] == [-1, -1]
