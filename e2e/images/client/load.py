"""A bounded HTTP load driver that never retries and hides no outcome.

Closed loop: so many senders, each sending its next request when the last was answered. Open loop: so many
requests a second whatever the answers do, from the first on or growing evenly to that. At most MAX_IN_FLIGHT
are sent at once; what that bound keeps back counts as `unsent`, and times count from the moment a request was
due, so that a stalled server can't look fast.

Every request is a POST: aiohttp sends those exactly once (it would repeat a GET on a connection that broke).
With a URL that begins with grpc:// it is a unary call.
"""

import asyncio
import errno
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import aiohttp

OK: Final = "ok"
UNSENT: Final = "unsent"
MAX_IN_FLIGHT: Final = 500
KEPT_FAILURES: Final = 20
STOP_POLL_SECONDS: Final = 0.1
RPC_SCHEME: Final = "grpc://"

Sender: TypeAlias = Callable[[], Awaitable[tuple[str, str, bytes]]]
"""Sends one request: its outcome, the outcome in words, and the answer's body."""


@dataclass(frozen=True)
class Rise:
    """An open loop's beginning: its rate grows, or falls, evenly from `rate` to that of the plan."""

    rate: float
    seconds: float


@dataclass(frozen=True)
class Plan:
    """What to send, how often and for how long. Exactly one of `workers` and `rate` is set.

    within_seconds: a later answer is not in time
    pause_seconds: before the last byte of each body
    """

    url: str
    body: bytes
    headers: Mapping[str, str]
    seconds: float
    timeout_seconds: float
    workers: int | None = None
    rate: float | None = None
    rise: Rise | None = None
    keep_alive: bool = True
    stop_file: Path | None = None
    within_seconds: float = 10
    pause_seconds: float = 0

    def __post_init__(self) -> None:
        if (self.workers is None) == (self.rate is None):
            raise ValueError("set either workers (closed loop) or rate (open loop), not both")

    def rate_after(self, seconds: float) -> float:
        """Requests a second of the open loop, so long after its start."""
        assert self.rate is not None
        if self.rise is None or seconds >= self.rise.seconds:
            return self.rate
        return self.rise.rate + (self.rate - self.rise.rate) * seconds / self.rise.seconds


@dataclass
class Tally:
    """Outcomes so far."""

    outcomes: Counter[str] = field(default_factory=Counter)
    answers: set[int] = field(default_factory=set)
    latencies_ms: list[float] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    in_time: int = 0

    def record(self, outcome: str, detail: str, at_seconds: float, latency_ms: float) -> None:
        """Count one request; of the first failures, keep the words and the time since the start."""
        self.outcomes[outcome] += 1
        if outcome != UNSENT:
            self.latencies_ms.append(latency_ms)
        if outcome != OK and len(self.failures) < KEPT_FAILURES:
            self.failures.append(
                {"at_seconds": round(at_seconds, 3), "outcome": outcome, "detail": detail[:500]}
            )

    def summary(self, seconds: float) -> dict[str, Any]:
        """The whole result as JSON. Quantiles are None when nothing was sent."""
        ordered = sorted(self.latencies_ms)
        return {
            "seconds": round(seconds, 3),
            "requests": sum(self.outcomes.values()),
            "ok": self.outcomes[OK],
            "in_time": self.in_time,
            "failed": sum(count for outcome, count in self.outcomes.items() if outcome != OK),
            "outcomes": dict(self.outcomes),
            "distinct_answers": len(self.answers),
            "latency_ms": {name: quantile(ordered, q) for name, q in QUANTILES.items()},
            "failures": self.failures,
        }


QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def quantile(ordered: list[float], q: float) -> float | None:
    """The smallest value with at least the share q at or below it; None without values."""
    if not ordered:
        return None
    return round(ordered[math.ceil(q * len(ordered)) - 1], 3)


async def _slowly(body: bytes, pause_seconds: float) -> AsyncIterator[bytes]:
    yield body[:-1]
    await asyncio.sleep(pause_seconds)
    yield body[-1:]


async def send(session: aiohttp.ClientSession, plan: Plan) -> tuple[str, str, bytes]:
    """Send one request: its outcome, the outcome in words, and the answer's body."""
    data, headers = plan.body, dict(plan.headers)
    slowly = _slowly(data, plan.pause_seconds) if plan.pause_seconds else None
    if slowly is not None:
        headers["Content-Length"] = str(len(data))
    try:
        async with session.post(plan.url, data=slowly or data, headers=headers) as response:
            answer = await response.read()
    except TimeoutError:
        return "timeout", f"no whole answer in {plan.timeout_seconds} s", b""
    except aiohttp.ClientConnectorError as error:
        return "connect", f"{_cause(error.os_error)}: {error}", b""
    except aiohttp.ClientPayloadError as error:
        return "truncated", str(error), b""
    except (aiohttp.ClientError, OSError) as error:
        return "disconnected", f"{type(error).__name__}: {error}", b""
    if response.status == 200:
        return OK, "", answer
    return f"http_{response.status}", answer.decode(errors="replace"), answer


def _cause(error: OSError) -> str:
    """Class and number of a connection's failure; without them a refusal looks like an address unknown."""
    number = "no errno" if error.errno is None else errno.errorcode.get(error.errno, str(error.errno))
    return f"{type(error).__name__} {number}"


class Driver:
    """One run of a plan."""

    def __init__(self, plan: Plan, sender: Sender) -> None:
        self._plan = plan
        self._send = sender
        self._tally = Tally()
        self._started = time.monotonic()
        self._over = False

    async def run(self) -> dict[str, Any]:
        """Send until the plan's seconds are over or its stop file exists; then await what is in flight."""
        watcher = asyncio.create_task(self._watch())
        if self._plan.rate is None:
            await asyncio.gather(*(self._worker() for _ in range(self._plan.workers or 0)))
        else:
            await self._open_loop()
        await watcher
        return self._tally.summary(time.monotonic() - self._started)

    async def _watch(self) -> None:
        deadline = self._started + self._plan.seconds
        stop = self._plan.stop_file
        while time.monotonic() < deadline and not (stop and stop.exists()):  # noqa: ASYNC110 - a file tells no event
            await asyncio.sleep(STOP_POLL_SECONDS)
        self._over = True

    async def _worker(self) -> None:
        while not self._over:
            await self._one(time.monotonic())

    async def _open_loop(self) -> None:
        flying: set[asyncio.Task[None]] = set()
        due = time.monotonic()
        while not self._over:
            if len(flying) < MAX_IN_FLIGHT:
                task = asyncio.create_task(self._one(due))
                flying.add(task)
                task.add_done_callback(flying.discard)
            else:
                self._tally.record(UNSENT, f"{MAX_IN_FLIGHT} requests are in flight", due - self._started, 0)
            due += 1 / self._plan.rate_after(due - self._started)
            await asyncio.sleep(max(0, due - time.monotonic()))
        await asyncio.gather(*flying)

    async def _one(self, due: float) -> None:
        outcome, detail, answer = await self._send()
        seconds = time.monotonic() - due
        self._tally.record(outcome, detail, due - self._started, seconds * 1000)
        if outcome == OK:
            self._tally.in_time += seconds <= self._plan.within_seconds
            self._tally.answers.add(hash(answer))


async def run(plan: Plan) -> dict[str, Any]:
    """Carry out the plan and return the summary."""
    async with _sender(plan) as sender:
        return await Driver(plan, sender).run()


@asynccontextmanager
async def _sender(plan: Plan) -> AsyncIterator[Sender]:
    if plan.url.startswith(RPC_SCHEME):
        from e2e.images.client import rpc  # gRPC takes seconds to import in a small pod

        async with rpc.sender(plan.url, plan.body, plan.timeout_seconds) as sender:
            yield sender
        return
    connector = aiohttp.TCPConnector(limit=0, force_close=not plan.keep_alive)
    timeout = aiohttp.ClientTimeout(total=plan.timeout_seconds)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield partial(send, session, plan)
