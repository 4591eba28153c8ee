"""Requests that wait for a run they share, over HTTP: each client gets its own answer, whatever others do."""

import asyncio
import gc
import json
import re
import time
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from tailbound_runtime.app import App, Phase
from tailbound_runtime.batch import Batching, Mode, Staging
from tailbound_runtime.budget import Budget
from tailbound_runtime.connection import HEAD_BYTES
from tailbound_runtime.connections import Connections
from tailbound_runtime.engine import Engine
from tailbound_runtime.front import Front
from tailbound_runtime.lane import Lane
from tailbound_runtime.metrics import Metrics
from tailbound_runtime.model import Model
from tailbound_runtime.models import Models
from tailbound_runtime.pending import Pending
from tailbound_runtime.queue import Job
from tailbound_runtime.reception import Intake, Limits
from tailbound_runtime.signature import InferRequest, Signature
from tailbound_runtime.worker import EARLY_SECONDS, InferenceThread

from tests.runtime.doubling import REFUSED, Doubling
from tests.runtime.test_known_heads import FLOATS, Wire, fed, post

LINE = b"POST /v2/models/m/infer HTTP/1.1"
ANSWER = re.compile(rb"HTTP/1.1 (\d+).*?\r\n\r\n(\{.*?\})(?=HTTP|$)", re.DOTALL)
SHARED = Batching(Mode.DYNAMIC, 16, (), 0)


def asking(*rows: float, width: int = 2) -> bytes:
    """A request, as long as others with as many rows, so that its head is known from them."""
    data = [each for row in rows for each in (row, row)]
    tensor = {"name": "x", "datatype": "FP32", "shape": [len(rows), width], "data": data}
    body = json.dumps({"inputs": [tensor]}).encode().ljust(300)
    return post(body, b"content-length: 300", line=LINE)


class Server:
    """One model that doubles, and its connections."""

    def __init__(self) -> None:
        self.engine, self.metrics, models = Doubling(), Metrics(), Models()
        thread = InferenceThread(cast(Engine, self.engine), SHARED, 100, self.metrics, lambda error: None)
        model = Model("m", "1", self.metrics)
        model.open(Signature("m", {"x": FLOATS}, {"y": FLOATS}, SHARED, "test_onnx"), thread)
        models.put(model)
        self.app = App(models, Limits(1000, 60.0), Budget(10_000))
        self.app.phase = Phase.READY
        self.front = Front(self.app, Connections(99))
        self.clients: list[Client] = []

    def asks(self, *requests: bytes) -> "Client":
        """A new client, whose requests have come."""
        client = Client(self)
        self.clients.append(client)
        for each in requests:
            fed(client.connection, each)
        self.front._burst.serve()
        return client


class WatchedWire(Wire):
    """A wire that says when something was written to it, or it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = asyncio.Event()

    def write(self, data: bytes) -> None:
        super().write(data)
        self.changed.set()

    def close(self) -> None:
        super().close()
        self.changed.set()


class Client:
    """A connection and what was written to it."""

    def __init__(self, server: Server) -> None:
        self.wire, self.connection = WatchedWire(), server.front.connection()
        self.connection.connection_made(cast(Any, self.wire))

    @property
    def answers(self) -> list[list[float] | int]:
        """The first value of each row that was answered, or the status of a refusal."""
        found: list[list[float] | int] = []
        for status, body in ANSWER.findall(self.wire.written):
            found.append(json.loads(body)["outputs"][0]["data"][::2] if status == b"200" else int(status))
        return found

    async def has(self, *answers: list[float] | int) -> None:
        """Wait until as many answers have come, which have to be these."""
        async with asyncio.timeout(60):
            while len(self.answers) < len(answers):
                self.wire.changed.clear()
                await self.wire.changed.wait()
        assert self.answers == list(answers)


@pytest.fixture
async def server() -> Server:
    """One that knows the head of `asking`, and whose run hangs."""
    server = Server()
    first = server.asks(asking(0), asking(0))
    await first.has([0], [0])
    server.engine.begun.clear()
    server.engine.free.clear()
    server.asks(asking(1))
    assert await asyncio.to_thread(server.engine.begun.wait, 60)
    server.engine.sizes.clear()
    return server


async def test_requests_of_a_run_get_their_own_answers_beside_clients_that_leave_stall_or_are_refused(
    server: Server,
) -> None:
    one, many = server.asks(asking(2)), server.asks(asking(3, 4, 5))
    pipelined = server.asks(asking(6), asking(7), asking(8, 9))
    gone, slow = server.asks(asking(10)), server.asks(asking(11))
    hostile, wrong = server.asks(asking(REFUSED)), server.asks(asking(12, width=3))
    assert (wrong.answers, one.answers, hostile.answers) == ([400], [], [])
    assert server.app.budget.used == 300 * 9, "whatever waits takes memory"
    gone.connection.connection_lost(None)
    slow.connection.pause_writing()
    server.engine.free.set()
    await one.has([4])
    await many.has([6, 8, 10])
    await pipelined.has([12], [14], [16, 18])
    await hostile.has(400)
    assert server.engine.sizes[0] == 7, "they share a run, and the one that is gone is not in it"
    assert slow.answers == []
    slow.connection.resume_writing()
    assert slow.answers == [[22]]
    assert gone.wire.written == b""
    assert server.app.budget.used == 0
    assert server.metrics.codes == {200: 9, 400: 2, 499: 1}
    assert server.metrics._in_flight == 0


@pytest.mark.parametrize(
    "wrong",
    [
        b"no request\r\n\r\n",
        LINE + b"\r\ntransfer-encoding: chunked\r\n\r\nno size\r\n",
        LINE + b"\r\nlong: " + b"x" * HEAD_BYTES + b"\r\n\r\n",
    ],
    ids=["no-http", "no-chunk", "long-head"],
)
async def test_requests_before_one_that_is_no_http_have_their_answers_before_its_refusal(
    server: Server, wrong: bytes
) -> None:
    client = server.asks(asking(2), asking(3), wrong, asking(4))
    assert client.wire.written == b""
    server.engine.free.set()
    await client.has([4], [6], 431 if len(wrong) > HEAD_BYTES else 400)
    assert client.wire.ended, "nothing follows"
    client.connection.connection_lost(None)
    assert (server.app.budget.used, server.metrics._in_flight) == (0, 0)


async def test_what_waits_is_answered_when_the_server_drains(server: Server) -> None:
    idle, waits, pipelined = server.asks(), server.asks(asking(2)), server.asks(asking(3), asking(4))
    server.app.phase = Phase.DRAINING
    closing = asyncio.create_task(server.front.close(60))
    await idle.wire.changed.wait()
    assert (idle.wire.closed, waits.wire.closed) == (True, False)
    server.engine.free.set()
    await waits.has([4])
    await pipelined.has([6])
    for client in server.clients:
        assert client.wire.closed
        client.connection.connection_lost(None)
    await closing
    assert server.app.budget.used == 0
    assert server.metrics._in_flight == 0


async def test_a_request_that_has_waited_is_no_garbage() -> None:
    """The collector would have to look through all objects again and again."""

    def there() -> set[int]:
        return {id(each) for each in gc.get_objects() if isinstance(each, Job | Pending | Intake)}

    server = Server()
    gc.collect()
    gc.disable()
    before = there()  # errors that other tests of this process keep hold what they happened to
    try:
        client = server.asks(*[asking(number) for number in range(5)])
        await client.has(*([2.0 * number] for number in range(5)))
        ends = time.monotonic() + 10
        while there() - before:
            await asyncio.sleep(0.01)  # the thread may have some for a moment
            assert time.monotonic() < ends
    finally:
        gc.enable()


async def test_a_lane_that_looks_just_before_it_is_to_begin_early_does_not_miss_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Were the clock read again for how long to wait, that time would be over, and the wait endless."""
    thread = InferenceThread(cast(Engine, Doubling(lanes=0)), SHARED, 9, Metrics(), lambda error: None)
    running, free = (Lane(number, Staging(SHARED, Doubling().buffer)) for number in range(2))
    thread._lanes += [running, free]
    thread._running.add(running)
    running.ends = 10.0
    asked = InferRequest(None, {"x": np.zeros((1, 2), np.float32)}, ("y",), 1)
    thread._queue.put(Job(asked, 0.0))
    clock = iter([10.0 - 2 * EARLY_SECONDS])
    monkeypatch.setattr(
        "tailbound_runtime.worker.time", SimpleNamespace(perf_counter=lambda: next(clock, 20.0))
    )
    waits: list[float | None] = []
    monkeypatch.setattr(thread._changed, "wait", waits.append)
    assert thread._next(free)
    assert waits == [pytest.approx(EARLY_SECONDS)]
    thread._running.discard(free)
    told: list[bool] = []
    monkeypatch.setattr(thread._changed, "notify", lambda: told.append(True))
    thread.ask(asked, 60.0, None, print)
    assert told, "one that comes when that time has passed is looked at as well"
    running.ends = 30.0
    thread.ask(asked, 60.0, None, print)
    assert len(told) == 1
