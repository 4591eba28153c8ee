"""The operator as a process of its own, and what it uses."""

import asyncio
import gc
import os
import re
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import aiohttp
import uvloop
from tailbound.controller.command import GC_THRESHOLDS
from tailbound.controller.lease import LeaseTimes
from tailbound.controller.operator import Operator, OperatorDependencies
from tailbound.controller.settings import OperatorSettings
from tailbound.kube.connection import load_configuration
from tailbound.reconcile.model import Settings
from tailbound.revisions.model_mounts import Fetcher

from e2e.bench.fleet.world import NAMESPACE
from e2e.cluster.ports import free_port

_TICK_SECONDS = 0.01
_CALM_SECONDS = 2.0
_LOOK_SECONDS = 0.5
_LONGEST_SECONDS = 1800.0
_SHOWN_OF_LOG = 2000
# A machine without spare CPU time is slow to renew it, and no other operator wants it.
_LEASE = LeaseTimes(duration=600.0, renew_deadline=500.0)
_PASSES = "tailbound_operator_reconcile_seconds_count"
_BLOCK = "bench_longest_block_seconds"


@dataclass(frozen=True)
class Usage:
    """The cost of an operator since its start, or between two moments; peak and block are since its start."""

    seconds: float
    cpu: float
    writes: float
    peak_mb: float
    block_ms: float
    stale: float
    """Services whose newest sizing lacked a signal."""
    passes: float
    """Decisions on single services."""

    def __sub__(self, other: Self) -> "Usage":
        return Usage(
            self.seconds - other.seconds,
            self.cpu - other.cpu,
            self.writes - other.writes,
            self.peak_mb,
            self.block_ms,
            self.stale,
            self.passes - other.passes,
        )


@dataclass(frozen=True)
class MeasuredOperator:
    """A running operator process."""

    process: Process
    log: Path
    metrics_port: int
    started: float

    async def until_calm(self, services: int) -> Usage:
        """Wait until so many services were decided on and none has waited for a while: usage up to then."""
        since: float | None = None
        async with asyncio.timeout(_LONGEST_SECONDS):
            while True:
                if not (text := await self._metrics()):
                    await asyncio.sleep(_LOOK_SECONDS)
                    continue
                busy = _sum(text, "tailbound_operator_queue") > 0
                if busy or _sum(text, _PASSES) < services:
                    since = None
                elif since is None:
                    since, calm = time.monotonic(), await self.usage()
                elif time.monotonic() - since >= _CALM_SECONDS:
                    return calm
                await asyncio.sleep(_LOOK_SECONDS)

    async def usage(self) -> Usage:
        """The cost until now."""
        text, pid = await self._metrics(), self.process.pid
        cpu, peak_mb = cpu_and_peak_of(pid)
        return Usage(
            seconds=time.monotonic() - self.started,
            cpu=cpu,
            writes=_sum(text, "tailbound_operator_writes_total"),
            peak_mb=peak_mb,
            block_ms=_sum(text, _BLOCK) * 1000,
            stale=_sum(text, "tailbound_operator_stale_sizings"),
            passes=_sum(text, _PASSES),
        )

    async def _metrics(self) -> str:
        """Empty before it serves them. RuntimeError if it has ended."""
        if self.process.returncode is not None:
            end = self.log.read_text()[-_SHOWN_OF_LOG:]
            raise RuntimeError(f"the operator ended with status {self.process.returncode}: {end}")
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{self.metrics_port}/metrics") as response,
            ):
                return await response.text()
        except aiohttp.ClientError:
            return ""


def cpu_and_peak_of(pid: int) -> tuple[float, float]:
    """CPU seconds and the largest resident memory in MB."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert peak is not None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), int(peak[1]) / 1000


def _sum(text: str, metric: str) -> float:
    return sum(float(value) for value in re.findall(rf"^{metric}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE))


@asynccontextmanager
async def running(
    kubeconfig: Path, observed_port: int, prometheus_url: str, *, watched: bool = False
) -> AsyncIterator[MeasuredOperator]:
    """An operator process, ended in order afterwards.

    watched: the turns of its event loop are measured, which takes a hundredth of a core.
    """
    port = free_port()
    log = kubeconfig.with_name("operator.log")
    arguments = (str(observed_port), str(port), prometheus_url, *(("watched",) if watched else ()))
    with log.open("w") as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "e2e.bench.fleet.operator", *arguments),
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            stdout=file,
            stderr=file,
        )
    try:
        yield MeasuredOperator(process, log, port, time.monotonic())
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await process.wait()


async def _operate(observed_port: int, metrics_port: int, prometheus_url: str, *, watched: bool) -> None:
    """Run `tailbound operator` with ports that are free here; `watched`: with a watch on its event loop."""
    gc.set_threshold(*GC_THRESHOLDS)
    stop, longest = asyncio.Event(), [0.0]

    def take_signals() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    async def watch_loop() -> None:
        while True:
            # CPU time: a machine that is shared with others makes every turn longer.
            before = time.thread_time()
            await asyncio.sleep(_TICK_SECONDS)
            longest[0] = max(longest[0], time.thread_time() - before)

    take_signals()
    settings = OperatorSettings(
        pod_name="operator-0",
        namespace=NAMESPACE,
        watch_namespaces=(),
        services=Settings(
            operator_namespace=NAMESPACE,
            gateway_service="tailbound-gateway",
            cluster_domain="cluster.local",
            fetcher=Fetcher("tailbound:bench", "IfNotPresent"),
        ),
        prometheus_url=prometheus_url,
        health_port=0,
        metrics_port=metrics_port,
    )
    dependencies = OperatorDependencies(
        lease_times=_LEASE, observed_port=observed_port, started=take_signals, listed=gc.freeze
    )
    operator = Operator(settings, lambda: load_configuration(os.environ), (), dependencies)
    operator.metrics.gauge(_BLOCK, "Most CPU time between two turns.", (), lambda: {(): longest[0]})
    watching = asyncio.create_task(watch_loop()) if watched else None
    await operator.run(stop)
    if watching is not None:
        watching.cancel()


if __name__ == "__main__":
    uvloop.run(_operate(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], watched="watched" in sys.argv[4:]))
