"""Random mixes of all that clients may do, against the server in this process, with the cache on.

Every request gets exactly one answer, and its own; when all is over, nothing of it is left.
"""

import asyncio
import gzip
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tailbound_runtime import config
from tailbound_runtime.app import App, Phase
from tailbound_runtime.budget import Budget
from tailbound_runtime.config import Settings
from tailbound_runtime.connections import Connections
from tailbound_runtime.control import Control
from tailbound_runtime.errors import ApiError, ModelBrokenError
from tailbound_runtime.front import Front
from tailbound_runtime.loading import Loader
from tailbound_runtime.metrics import Metrics
from tailbound_runtime.models import Models
from tailbound_runtime.reception import Limits
from tailbound_runtime.repository import ModelFile

from tests.runtime import models
from tests.runtime.process import environment
from tests.support.effort import effort

OPERATORS = ("Neg", "Abs")  # of a version with an even number, and of one with an odd number
LONG = "x" * 200_000
"""In a body, makes it take memory that counts, and time to parse."""
TOO_SOON = 200  # microseconds
CALM_SECONDS = 30.0


@dataclass(frozen=True)
class Request:
    """What one client does on a connection of its own: so many requests in one go, then it waits or leaves.

    binary: whether tensors are binary both ways; such a request has no id, and is read in the fastest way
    bound: of its latency, in milliseconds
    pieces: how many its bytes come in
    reads_after: seconds
    leaves: after this share of the bytes; None: after the answers
    lingers: seconds until it leaves
    """

    model: str
    rows: int
    number: int
    priority: int = 0
    timeout: int | None = None
    long: bool = False
    packed: bool = False
    binary: bool = False
    bound: int | None = None
    pieces: int = 1
    reads_after: float = 0.0
    leaves: float | None = None
    lingers: float = 0.0


@dataclass(frozen=True)
class Call:
    """A model is loaded, as a new version, or unloaded."""

    model: str
    verb: str


STEPS = st.lists(
    st.tuples(
        st.one_of(
            st.builds(
                Request,
                model=st.sampled_from("ab"),
                rows=st.integers(1, 4),
                number=st.integers(1, 3),
                priority=st.integers(0, 3),
                timeout=st.sampled_from([None, None, None, TOO_SOON, 10**7]),
                long=st.sampled_from([False, False, False, True]),
                packed=st.booleans(),
                binary=st.booleans(),
                bound=st.sampled_from([None, None, 1, 10_000]),
                pieces=st.sampled_from([1, 1, 2, 5]),
                reads_after=st.sampled_from([0.0, 0.0, 0.02]),
                leaves=st.sampled_from([None, None, None, 0.0, 0.5, 1.0]),
                lingers=st.sampled_from([0.0, 0.001]),
            ),
            st.builds(Call, model=st.just("b"), verb=st.sampled_from(["load", "unload"])),
            st.builds(Call, model=st.just("a"), verb=st.just("load")),
        ),
        st.sampled_from([0.0, 0.0, 0.0, 0.001, 0.01]),
    ),
    min_size=5,
    max_size=40,
)


@dataclass
class Server:
    """The parts of one, in this process."""

    settings: Settings
    folder: Path
    budget: Budget = field(init=False)
    models: Models = field(default_factory=Models)
    metrics: list[Metrics] = field(default_factory=list)
    versions: "count[int]" = field(default_factory=lambda: count(1))

    def new_metrics(self, file: ModelFile) -> Metrics:
        self.metrics.append(Metrics({"model": file.name, "model_version": file.version}))
        return self.metrics[-1]

    def make(self, name: str) -> None:
        """A new version of a model."""
        number = next(self.versions)
        place = self.folder / name / f"{number}.new"
        place.mkdir(parents=True)
        models.unary(place / "model.onnx", OPERATORS[number % 2])
        place.rename(place.with_name(str(number)))

    async def listens(self) -> tuple[asyncio.Server, Front, Control]:
        loop = asyncio.get_running_loop()
        broken: asyncio.Future[ModelBrokenError] = loop.create_future()
        self.budget = Budget(self.settings.max_buffered_bytes)
        limits = Limits(self.settings.max_request_bytes, self.settings.request_timeout_seconds)
        app, loader = App(self.models, limits, self.budget), Loader(self.settings, broken)
        control = Control(self.settings.repository, self.models, loader.load, self.new_metrics, 2**30)
        for name in "ab":
            self.make(name)
            await control.load(name)
        app.control, app.phase = control, Phase.READY
        front = Front(app, Connections(9))
        return await loop.create_server(front.connection, "127.0.0.1", 0), front, control


def message(asked: Request, number: int, last: bool) -> bytes:
    """One whole HTTP request, with a number that is its rows' and its id."""
    parameters: dict[str, Any] = {"priority": asked.priority, "timeout": asked.timeout or 0}
    if asked.long:
        parameters["long"] = LONG
    data = [float(number)] * asked.rows
    tensor: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": [asked.rows]}
    lines = [f"POST /v2/models/{asked.model}/infer HTTP/1.1", "Host: here"]
    if asked.binary:
        tensor["parameters"] = {"binary_data_size": 4 * asked.rows}
        parameters["binary_data_output"] = True
        head = json.dumps({"inputs": [tensor], "parameters": parameters}).encode()
        lines.append(f"Inference-Header-Content-Length: {len(head)}")
        body = head + np.array(data, np.float32).tobytes()
    else:
        tensor["data"] = data
        body = json.dumps({"id": str(number), "inputs": [tensor], "parameters": parameters}).encode()
    if asked.bound is not None:
        lines.append(f"X-Tailbound-Latency-Bound-Ms: {asked.bound}")
    if asked.packed:
        body = gzip.compress(body, 1)
        lines.append("Content-Encoding: gzip")
    if last:
        lines.append("Connection: close")
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


async def answers(reader: asyncio.StreamReader) -> list[tuple[int, Any]]:
    """The status and the JSON of each answer, binary tensors as its data, until the server closes."""
    found = []
    while head := await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b"":
        lines = [line.partition(b": ") for line in head.lower().split(b"\r\n")]
        lengths = {name: int(value) for name, _, value in lines if name.endswith(b"content-length")}
        body = await reader.readexactly(lengths[b"content-length"])
        ends = lengths.get(b"inference-header-content-length", len(body))
        said = json.loads(body[:ends])
        if ends < len(body):
            said["outputs"][0]["data"] = np.frombuffer(body[ends:], np.float32).tolist()
        found.append((int(head.split()[1]), said))
        if b"connection: close" in head.lower():
            assert await reader.read() == b"", "more than its answers"
            break
    return found


async def asks(port: int, asked: Request, first: int) -> None:
    """Be one client, whose requests have the numbers from this one on."""
    numbers = range(first, first + asked.number)
    sent = b"".join(message(asked, number, number == numbers[-1]) for number in numbers)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        sent = sent if asked.leaves is None else sent[: int(len(sent) * asked.leaves)]
        step = len(sent) // asked.pieces + 1
        for begins in range(0, len(sent), step):
            writer.write(sent[begins : begins + step])
            await asyncio.sleep(0)
        if asked.leaves is not None:
            await asyncio.sleep(asked.lingers)
            writer.transport.abort()
            return
        await asyncio.sleep(asked.reads_after)
        found = await answers(reader)
    finally:
        writer.close()
    assert len(found) == len(numbers), found
    for number, (status, said) in zip(numbers, found, strict=True):
        check(asked, number, status, said)


def check(asked: Request, number: int, status: int, said: Any) -> None:
    """The answer is this request's: its rows, of one version, or a refusal that it may get."""
    if status == 200:
        assert said.get("id") == (None if asked.binary else str(number))
        (output,) = said["outputs"]
        assert output["data"] in ([float(number)] * asked.rows, [-float(number)] * asked.rows)
    elif status == 404:
        assert asked.model == "b", "it is never unloaded"
    elif status == 504:
        assert asked.timeout == TOO_SOON
    else:
        assert status == 503, said


async def calls(control: Control, server: Server, call: Call) -> None:
    """Load or unload; what is unloaded already is not there."""
    if call.verb == "load":
        server.make(call.model)
        await control.load(call.model)
        return
    try:
        await control.unload(call.model)
    except ApiError as error:
        assert error.status == 404


async def calm(server: Server, front: Front, threads: int) -> None:
    """Nothing is left of what clients asked for; then the models go, and nothing is left of these."""

    def left() -> dict[str, Any]:
        series = [sample for each in server.metrics for family in each.collect() for sample in family.samples]
        gauges = [sample for sample in series if sample.name.endswith(("in_flight", "queue_depth"))]
        return {
            "bytes": server.budget.used,
            "requests": [sample for sample in gauges if sample.value],
            "models": server.models.size_bytes - sum(model.size_bytes for model in server.models),
            "tasks": asyncio.all_tasks() - {asyncio.current_task()},
            "threads": inference_threads() - threads - len(list(server.models)),
        }

    for then in ("served", "removed"):
        ends = time.monotonic() + CALM_SECONDS
        while any(left().values()):
            assert time.monotonic() < ends, (then, left())
            await asyncio.sleep(0.005)
        for model in server.models:
            server.models.remove(model.name)
    await front.close(0)


def inference_threads() -> int:
    return sum(thread.name == "inference" for thread in threading.enumerate())


async def mix(server: Server, steps: Sequence[tuple[Request | Call, float]]) -> None:
    threads = inference_threads()
    listener, front, control = await server.listens()
    port, numbers = listener.sockets[0].getsockname()[1], count(1)
    try:
        async with asyncio.TaskGroup() as group:
            for step, pause in steps:
                if isinstance(step, Call):
                    group.create_task(calls(control, server, step))
                else:
                    first = next(numbers)
                    group.create_task(asyncio.wait_for(asks(port, step, first), CALM_SECONDS))
                    for _ in range(step.number - 1):
                        next(numbers)
                await asyncio.sleep(pause)
        listener.close()
        await calm(server, front, threads)
    finally:
        listener.close()


@settings(
    max_examples=effort(10, 300),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS, levels=st.sampled_from([0, 2]), delay=st.sampled_from(["0", "0.004"]))
def test_every_request_has_its_own_answer_once_and_nothing_is_left(
    tmp_path_factory: pytest.TempPathFactory,
    steps: Sequence[tuple[Request | Call, float]],
    levels: int,
    delay: str,
) -> None:
    folder = tmp_path_factory.mktemp("mix")
    env = environment(
        folder,
        model_path="",
        model_name="",
        model_repository=str(folder),
        model_control="explicit",
        batching_mode="dynamic",
        batching_max_size="8",
        batching_max_delay_seconds=delay,
        batching_preferred_sizes="",
        priority_levels=str(levels),
        cache_bytes=str(2**16),
        queue_limit="12",
        max_buffered_bytes=str(2**20),
        max_request_bytes=str(2**19),
    )
    uvloop.run(mix(Server(config.from_env(env), folder), steps))
