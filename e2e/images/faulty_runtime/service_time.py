"""A model of known speed: a batch of n requests takes `base + per_row * n` seconds, one batch at a time.

It exports what the real runtime exports of its batches, under the same names, so that whoever learns a
service's speed from metrics can be held against the truth.
"""

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from math import inf

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

disable_created_metrics()  # type: ignore[no-untyped-call]

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class ServiceTime:
    """How long the model takes. Raises ValueError for what no model can be.

    base_seconds, per_row_seconds: s(n) = base + per_row * n; both 0 = at once, without a queue
    max_batch: the most requests that one run takes
    """

    base_seconds: float = 0.0
    per_row_seconds: float = 0.0
    max_batch: int = 1

    def __post_init__(self) -> None:
        if min(self.base_seconds, self.per_row_seconds) < 0 or self.max_batch < 1:
            raise ValueError(f"{self} is no service time: give seconds of 0 or more and a batch of 1 or more")

    @property
    def takes_time(self) -> bool:
        """Whether requests have to wait for the model at all."""
        return self.base_seconds > 0 or self.per_row_seconds > 0

    def seconds(self, rows: int) -> float:
        """What a batch of so many requests takes."""
        return self.base_seconds + self.per_row_seconds * rows


class Measured:
    """The metrics."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        prefix = "tailbound_runtime"

        def counter(name: str, text: str) -> Counter:
            return Counter(f"{prefix}_{name}", text, registry=self._registry)

        self._sizes = Histogram(f"{prefix}_batch_size", "Rows.", buckets=SIZES, registry=self._registry)
        self._batches = counter("batches", "Runs.")
        self._batched = counter("batch_requests", "Requests that the runs served, of one row each.")
        self._rows = counter("batch_rows", "Sum of n.")
        self._rows_squared = counter("batch_rows_squared", "Sum of n².")
        self._seconds = counter("batch_seconds", "Sum of s.")
        self._row_seconds = counter("batch_row_seconds", "Sum of n·s.")
        self.requests = Counter(f"{prefix}_requests", "Answered.", ["code"], registry=self._registry)
        self.in_flight = Gauge(f"{prefix}_requests_in_flight", "Unanswered.", registry=self._registry)
        self.queue_depth = Gauge(f"{prefix}_queue_depth", "Waiting.", registry=self._registry)

    def ran(self, rows: int, seconds: float) -> None:
        """Count one batch."""
        self._sizes.observe(rows)
        self._batches.inc()
        self._batched.inc(rows)
        self._rows.inc(rows)
        self._rows_squared.inc(rows * rows)
        self._seconds.inc(seconds)
        self._row_seconds.inc(rows * seconds)

    def render(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self._registry)


class WouldBeLateError(Exception):
    """The request could only be answered later than it is wanted."""


class SleepingModel:
    """Takes what waits, up to the batch limit, whenever it is free, and refuses what would be late."""

    def __init__(self, service_time: ServiceTime, measured: Measured) -> None:
        self._service_time = service_time
        self._measured = measured
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._arrived = asyncio.Event()
        self._free_at = 0.0
        measured.queue_depth.set_function(lambda: len(self._waiting))

    async def infer(self, timeout_seconds: float, bound_seconds: float = inf) -> None:
        """Return when the model has run for this request. Raises TimeoutError and WouldBeLateError."""
        if not self._service_time.takes_time:
            return
        if self._wait_seconds() > bound_seconds:
            raise WouldBeLateError
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self._arrived.set()
        async with asyncio.timeout(timeout_seconds):
            await done  # a cancelled one leaves the queue when its turn comes

    def _wait_seconds(self) -> float:
        """Until a request that comes now is answered."""
        size = self._service_time.max_batch
        runs, rest = divmod(len(self._waiting) + 1, size)
        waiting = runs * self._service_time.seconds(size) + (self._service_time.seconds(rest) if rest else 0)
        return max(0.0, self._free_at - time.monotonic()) + waiting

    async def run(self) -> None:
        """Run batches until cancelled."""
        while True:
            self._arrived.clear()
            while batch := self._take():
                started = time.monotonic()
                self._free_at = started + self._service_time.seconds(len(batch))
                await asyncio.sleep(self._service_time.seconds(len(batch)))
                self._measured.ran(len(batch), time.monotonic() - started)
                for done in batch:
                    if not done.done():
                        done.set_result(None)
            await self._arrived.wait()

    def _take(self) -> list[asyncio.Future[None]]:
        batch: list[asyncio.Future[None]] = []
        while self._waiting and len(batch) < self._service_time.max_batch:
            first = self._waiting.popleft()
            if not first.done():
                batch.append(first)
        return batch
