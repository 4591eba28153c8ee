"""Clients of `e2e.bench.gpu`: processes with many connections each, which send one request over and over.

A client does as little as it can: the request is made beforehand, and of an answer only its status and its
length are looked at.
"""

import asyncio
import os
import random
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import uvloop

WARM_SECONDS: Final = 2.0


@dataclass(frozen=True)
class Task:
    """The work of one client process.

    connections: each with one request at a time
    rate: requests a second, at random moments; None: each connection asks again as soon as it is answered
    seconds: after the warm-up, those that count
    """

    port: int
    message: bytes
    connections: int
    rate: float | None
    seconds: float


@dataclass(frozen=True)
class Answers:
    """The answers of the seconds that count.

    latencies: seconds of each answer, from when it was due to be asked; a client's timer is up to 1 ms late
    stolen: seconds of each CPU that the host of this virtual machine withheld; known of all together
    """

    latencies: Sequence[float]
    failed: int
    cpu_seconds: float
    stolen: Sequence[float] = ()


class _Caller(asyncio.Protocol):
    """One connection."""

    def __init__(self, crowd: "_Crowd") -> None:
        self._crowd = crowd
        self._got = b""
        self._due = 0.0
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._crowd.free(self)

    def ask(self, due: float) -> None:
        self._due = due
        self._transport.write(self._crowd.task.message)

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, end, body = self._got.partition(b"\r\n\r\n")
        if end and len(body) >= int(head.lower().partition(b"\r\ncontent-length: ")[2].split(b"\r\n")[0]):
            self._got = b""
            self._crowd.answered(self._due, head.startswith(b"HTTP/1.1 200 "))
            self._crowd.free(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._crowd.lost()


class _Crowd:
    """All connections of one process."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.latencies: list[float] = []
        self.failed = 0
        self._idle: list[_Caller] = []
        self._due: list[float] = []
        self._counts_from = time.perf_counter() + WARM_SECONDS
        self._ends = self._counts_from + task.seconds

    def answered(self, due: float, fine: bool) -> None:
        now = time.perf_counter()
        if self._counts_from <= now < self._ends:
            self.latencies.append(now - due)
        self.failed += not fine

    def lost(self) -> None:
        self.failed += time.perf_counter() < self._ends

    def free(self, caller: _Caller) -> None:
        if self.task.rate is None:
            caller.ask(time.perf_counter())
        elif self._due:
            caller.ask(self._due.pop(0))
        else:
            self._idle.append(caller)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(self.task.connections):
            await loop.create_connection(lambda: _Caller(self), "127.0.0.1", self.task.port)
        if self.task.rate is None:
            await asyncio.sleep(self._ends - time.perf_counter())
            return
        due = time.perf_counter()
        while due < self._ends:
            due += random.expovariate(self.task.rate)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            if self._idle:
                self._idle.pop().ask(due)
            else:
                self._due.append(due)


def client(task: Task) -> Answers:
    """Be one client process."""
    started = time.process_time()
    crowd = _Crowd(task)
    uvloop.run(crowd.run())
    return Answers(crowd.latencies, crowd.failed, time.process_time() - started)


def load(pool: ProcessPoolExecutor, processes: int, task: Task) -> Answers:
    """The same task in so many processes at once; what they got together."""
    before = _stolen_seconds()
    parts = list(pool.map(client, [task] * processes))
    return Answers(
        sorted(latency for part in parts for latency in part.latencies),
        sum(part.failed for part in parts),
        sum(part.cpu_seconds for part in parts),
        [after - since for after, since in zip(_stolen_seconds(), before, strict=True)],
    )


def _stolen_seconds() -> list[float]:
    """Time of each CPU so far in which the host ran something else."""
    lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    ticks = [int(line[8]) for line in lines if line[0].startswith("cpu") and line[0] != "cpu"]
    return [each / os.sysconf("SC_CLK_TCK") for each in ticks]
