"""Requests that come together are served in steps, and each connection has its own answer, or none."""

import asyncio
from typing import Any, cast

import pytest
from tailbound_runtime.burst import MOST, Burst
from tailbound_runtime.connections import Connections
from tailbound_runtime.front import Front
from tailbound_runtime.pending import Pending
from tailbound_runtime.reception import Head, Intake
from tailbound_runtime.responses import Response
from tailbound_runtime.short import Short

from tests.runtime.test_known_heads import LIMITS, MODEL, Echo, Wire, fed, post

HEAD = Head(b"/i", {}, LIMITS)
REQUEST = post(b"abcde", b"content-length: 5")
NO_ROOM = b"-"
"""A body that is not read now."""


class Steps:
    """Notes each step; a body of digits is refused as it is read."""

    def __init__(self) -> None:
        self.log: list[tuple[str, bytes]] = []

    def read(self, head: Head, body: bytes, since: float) -> Short | Response | None:
        self.log.append(("read", body))
        if body == NO_ROOM:
            return None
        if body.isdigit():
            return Response(400, (), [body])
        return Short(head, body, MODEL, since, since, cast(Any, None))

    def run(self, short: Short) -> None:
        self.log.append(("run", short.body))

    def answer(self, short: Short) -> Response:
        self.log.append(("answer", short.body))
        return Response(200, (), [short.body])


class Asker:
    """Notes what becomes of its request."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[bytes, int | None]] = []

    def answer(self, head: Head, body: bytes, begun: Response | Pending | Intake | None) -> None:
        self.outcomes.append((body, begun.status if isinstance(begun, Response) else None))


async def test_requests_that_come_together_are_read_then_run_then_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tailbound_runtime.burst.TOGETHER_SECONDS", 3600.0)
    app, asker = Steps(), Asker()
    burst = Burst(cast(Any, app), asyncio.get_running_loop())
    burst.add(asker, HEAD, b"first")
    assert [step for step, _ in app.log] == ["read", "run", "answer"], "nothing is known: it does not wait"
    app.log.clear()
    for body in (b"a", b"1", NO_ROOM, b"b"):
        burst.add(asker, HEAD, body)
    assert not app.log, "others may come"
    await asyncio.sleep(0)
    read = [("read", body) for body in (b"a", b"1", NO_ROOM, b"b")]
    later = [(step, body) for step in ("run", "answer") for body in (b"a", b"b")]
    assert app.log == [*read, *later]
    assert asker.outcomes == [(b"first", 200), (b"a", 200), (b"1", 400), (NO_ROOM, None), (b"b", 200)]
    app.log.clear()
    for _ in range(MOST):
        burst.add(asker, HEAD, b"c")
    assert len(app.log) == 3 * MOST, "these are enough"
    await asyncio.sleep(0)
    assert len(app.log) == 3 * MOST, "each has one answer"


async def test_slow_requests_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailbound_runtime.burst.TOGETHER_SECONDS", 0.0)
    app, asker = Steps(), Asker()
    burst = Burst(cast(Any, app), asyncio.get_running_loop())
    for number in range(1, 4):
        burst.add(asker, HEAD, b"a")
        assert len(asker.outcomes) == number


class Deferring(Echo):
    """What comes as a whole has yet to be inferred when the burst is over."""

    def __init__(self) -> None:
        super().__init__()
        self.gone: list[Intake] = []

    def read(self, head: Head, body: bytes, since: float) -> Response | None:
        intake = self.begin(head)
        assert isinstance(intake, Intake)
        return cast(Response, intake)

    def left(self, intake: Intake, complete: bool) -> None:
        assert complete
        self.gone.append(intake)


@pytest.mark.parametrize("app", [Echo, Deferring], ids=["answered", "begun"])
async def test_a_connection_ends_after_its_answer_and_one_that_is_lost_gets_none(
    app: type[Echo], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailbound_runtime.burst.TOGETHER_SECONDS", 3600.0)
    echo = app()
    front = Front(cast(Any, echo), Connections(9))
    connections = [front.connection() for _ in range(3)]
    wires = [Wire() for _ in connections]
    for connection, wire in zip(connections, wires, strict=True):
        connection.connection_made(cast(Any, wire))
    for _ in range(2):  # the first time its head is learned, the second time a request is in the burst
        fed(connections[0], REQUEST)
    front._burst.serve()
    answered = [wire.written.count(b"HTTP/1.1 200") for wire in wires]
    assert answered == [2, 0, 0]
    for connection in connections:
        fed(connection, REQUEST)
        assert not connection.is_idle, "it must not give way to another"
    connections[1].connection_lost(None)
    connections[0].end()
    assert wires[0].closed
    assert wires[0].written.count(b"HTTP/1.1 200") == 3, "its answer comes before its end"
    assert wires[1].written == b""
    assert wires[2].written.count(b"HTTP/1.1 200") == 1
    if isinstance(echo, Deferring):
        assert len(echo.gone) == 1, "what the lost one asked for is given back"
    for connection in (connections[0], connections[2]):
        connection.connection_lost(None)
