"""An operator in this process against the real API server, with stand-ins for what else a cluster has."""

import asyncio
import json
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aiohttp import web
from kubernetes.aio.client.configuration import Configuration
from tailbound.api.names import (
    API_VERSION,
    COMPONENT_LABEL,
    GATEWAY_COMPONENT,
    REVISION_LABEL,
    SERVICE_LABEL,
)
from tailbound.autoscale.model import TICK
from tailbound.controller.lease import LeaseTimes
from tailbound.controller.operator import LEASE_NAME, Operator, Seams
from tailbound.controller.settings import OperatorSettings
from tailbound.kube.aio import AioCluster
from tailbound.kube.connection import load_configuration
from tailbound.kube.errors import Conflict
from tailbound.kube.objects import key_of
from tailbound.kube.protocol import Cluster, Object
from tailbound.kube.resources import (
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    INFERENCE_SERVICES,
    LEASES,
    PODS,
    Resource,
)
from tailbound.reconcile import decide
from tailbound.reconcile.model import Settings

from e2e.cluster import ControlPlane

SHA256 = "a" * 64
NAMESPACES = Resource("v1", "Namespace", "namespaces", namespaced=False)
# Ends what hangs; nothing takes nearly as long, not even on a machine that runs other things besides.
LONGEST_SECONDS = 300.0
# Short, and yet long enough for a machine that runs other things besides.
FAST_LEASE = LeaseTimes(duration=20.0, renew_deadline=16.0, retry=0.5)


def service_body(namespace: str, name: str, **spec: Any) -> dict[str, Any]:
    """An InferenceService of the smallest spec."""
    model = {"uri": "http://models.test/model.onnx", "format": "onnx", "sha256": SHA256}
    resources = {"cpu": "1", "memory": "1Gi"}
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceService",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"model": model, "resources": resources, **spec},
    }


def condition(service: Object, name: str) -> dict[str, Any]:
    """One condition of a service; empty if it is not there."""
    for each in (service.get("status") or {}).get("conditions") or ():
        if each["type"] == name:
            return dict(each)
    return {}


def is_ready(service: Object) -> bool:
    ready = condition(service, "Ready")
    return (
        ready.get("status") == "True" and ready.get("observedGeneration") == service["metadata"]["generation"]
    )


class Cut:
    """Passes everything on until the k-th write, and is dead from then on, as a killed process would be."""

    def __init__(self, inner: Cluster, after: int) -> None:
        self._inner = inner
        self._left = after
        self.dead = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in {"create", "apply", "apply_status", "delete", "create_event"}:
            return method

        async def write(*arguments: Any) -> Any:
            if self._left <= 0:
                self.dead.set()
                await asyncio.Event().wait()
            self._left -= 1
            return await method(*arguments)

        return write


class FakeGateway:
    """One gateway pod: a Ready pod object whose address answers /observed from what the API server holds."""

    def __init__(self, cluster: Cluster, namespace: str, name: str, address: str) -> None:
        self.cluster, self.namespace, self.name, self.address = cluster, namespace, name, address
        self.acknowledges = True
        self.reads = 0
        self.frozen: dict[str, Any] = {}
        # By a revision's number, the requests that it gets with each weight that this gateway applies.
        self.answers: dict[str, dict[str, int]] = {}
        self.counters: dict[str, dict[str, dict[str, int]]] = {}
        # Of two reads at once, the one with the older listing must not be the later one to apply it.
        self._applying = asyncio.Lock()

    def _apply(self, service: Object) -> dict[str, Any]:
        """Take over what the service says now, and let requests come with every change of the weights."""
        name = "/".join(key_of(service))
        traffic = (service.get("status") or {}).get("traffic") or {}
        applied = {
            "generation": service["metadata"]["generation"],
            "trafficGeneration": traffic.get("generation", 0),
        }
        counters = self.counters.setdefault(name, {})
        before = self.frozen.get(name, {}).get("applied", {})
        if before.get("trafficGeneration", 0) != applied["trafficGeneration"]:
            for backend in traffic.get("backends", ()):
                revision = backend["revision"]
                counted = counters.setdefault(revision, {})
                for kind, requests in self.answers.get(revision.split("-")[-2], {}).items():
                    counted[kind] = counted.get(kind, 0) + requests
        return {"applied": applied, "counters": counters}

    async def serve(self, port: int) -> web.AppRunner:
        application = web.Application()
        application.add_routes([web.get("/observed", self._observed)])
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, self.address, port).start()
        return runner

    async def _observed(self, request: web.Request) -> web.Response:
        self.reads += 1
        if self.acknowledges:
            async with self._applying:
                listing = await self.cluster.list(INFERENCE_SERVICES)
                self.frozen = {"/".join(key_of(service)): self._apply(service) for service in listing.items}
        asked = request.query.getall("service", [])
        services = {name: seen for name, seen in self.frozen.items() if not asked or name in asked}
        return web.json_response(
            {"envoyStartTime": "2026-01-01T00:00:00Z", "synced": True, "services": services}
        )

    async def appear(self) -> None:
        """Create the pod object and make it Ready."""
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "namespace": self.namespace,
                "name": self.name,
                "labels": {COMPONENT_LABEL: GATEWAY_COMPONENT},
            },
            "spec": {"containers": [{"name": "envoy", "image": "gateway"}]},
        }
        created = await self.cluster.insert(PODS, body)
        status = {
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        meta = {key: created["metadata"][key] for key in ("namespace", "name", "uid", "resourceVersion")}
        await self.cluster.apply_status(
            PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": status}
        )


@dataclass
class Environment:
    """One test's pair of namespaces, and what it does there."""

    control_plane: ControlPlane
    cluster: AioCluster
    namespace: str
    system: str
    port: int
    gateways: list[FakeGateway] = field(default_factory=list)

    async def connect(self) -> Configuration:
        return await load_configuration({"KUBECONFIG": str(self.control_plane.kubeconfig)})

    def settings(self, **changes: Any) -> OperatorSettings:
        values: dict[str, Any] = {
            "pod_name": "operator-0",
            "namespace": self.system,
            "watch_namespaces": (self.namespace,),
            "services": Settings(
                operator_namespace=self.system,
                gateway_service="tailbound-gateway",
                cluster_domain="cluster.local",
                fetch_image="tailbound:test",
                image_pull_policy="IfNotPresent",
            ),
            "health_port": 0,
            "metrics_port": 0,
            **changes,
        }
        return OperatorSettings(**values)

    def operator(
        self,
        *,
        wrap: Callable[[Cluster], Cluster] = lambda cluster: cluster,
        defaults: tuple[Object, ...] = (),
        lease_times: LeaseTimes = FAST_LEASE,
        scaling_period_seconds: float = TICK,
        unix_time: Callable[[], float] = time.time,
        **changes: Any,
    ) -> Operator:
        seams = Seams(
            wrap=wrap,
            lease_times=lease_times,
            observed_port=self.port,
            scaling_period_seconds=scaling_period_seconds,
            unix_time=unix_time,
        )
        return Operator(self.settings(**changes), self.connect, decide, defaults, seams)

    @asynccontextmanager
    async def running(
        self, operator: Operator | None = None, *, after: Operator | None = None
    ) -> AsyncIterator[Operator]:
        """Run an operator (once another one leads) and stop it in order afterwards."""
        chosen = operator or self.operator()
        if after is not None:
            await self.until_leading(after)
        stop = asyncio.Event()
        task = asyncio.create_task(chosen.run(stop))
        try:
            yield chosen
        finally:
            stop.set()
            async with asyncio.timeout(LONGEST_SECONDS):
                await task

    @asynccontextmanager
    async def killed(self, operator: Operator) -> AsyncIterator[Operator]:
        """Run an operator and end it without any goodbye.

        Only its Lease is taken away, so that the next operator need not wait until it has run out.
        """
        task = asyncio.create_task(operator.run(asyncio.Event()))
        try:
            yield operator
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await self._take_lease()

    async def _take_lease(self) -> None:
        """Again if a renewal that the dead one had sent arrives only now."""
        while (lease := await self.cluster.get(LEASES, self.system, LEASE_NAME)) is not None:
            meta = lease["metadata"]
            with suppress(Conflict):
                await self.cluster.delete(
                    LEASES, self.system, LEASE_NAME, meta["uid"], meta["resourceVersion"]
                )
                return

    async def create(self, name: str, **spec: Any) -> Object:
        return await self.cluster.insert(INFERENCE_SERVICES, service_body(self.namespace, name, **spec))

    async def edit(self, name: str, **spec: Any) -> Object:
        """Change fields of a stored spec, as a user would."""
        return await self.replace(
            INFERENCE_SERVICES, name, lambda stored: {**stored, "spec": {**stored["spec"], **spec}}
        )

    async def replace(self, resource: Resource, name: str, change: Callable[[Object], Object]) -> Object:
        """Change an object of the services' namespace, again if somebody else writes in between."""
        while True:
            stored = await self.need(resource, name)
            with suppress(Conflict):
                return await self.cluster.replace(resource, change(stored))

    async def remove(self, resource: Resource, name: str) -> None:
        """Delete an object of the services' namespace, again if somebody else writes in between."""
        while True:
            meta = (await self.need(resource, name))["metadata"]
            with suppress(Conflict):
                await self.cluster.delete(
                    resource, self.namespace, name, meta["uid"], meta["resourceVersion"]
                )
                return

    async def service(self, name: str) -> Object:
        return await self.need(INFERENCE_SERVICES, name)

    async def need(self, resource: Resource, name: str) -> Object:
        """An object of the services' namespace; AssertionError if it does not exist."""
        found = await self.cluster.get(resource, self.namespace, name)
        assert found is not None, f"{resource.kind} {name} is gone"
        return found

    async def children(self, resource: Resource, name: str) -> tuple[Object, ...]:
        listing = await self.cluster.list(resource, self.namespace, f"{SERVICE_LABEL}={name}")
        return listing.items

    async def until(
        self,
        what: str,
        holds: Callable[[], Awaitable[Any]],
        seconds: float = LONGEST_SECONDS,
        every: float = 0.05,
    ) -> Any:
        """Await a state, and look for it `every` so many seconds. Fails with its name."""
        last: Any = None
        try:
            async with asyncio.timeout(seconds):
                while not (last := await holds()):  # noqa: ASYNC110 - another process holds the state
                    await asyncio.sleep(every)
        except TimeoutError:
            raise AssertionError(f"{what} did not come in {seconds:g} s; last seen {last!r}") from None
        return last

    async def until_service(
        self,
        name: str,
        holds: Callable[[Object], Any],
        what: str = "the state",
        seconds: float = LONGEST_SECONDS,
    ) -> Object:
        """Await a state of one service."""
        seen: list[Object] = []

        async def check() -> Object | None:
            seen[:] = [await self.service(name)]
            return seen[0] if holds(seen[0]) else None

        try:
            await self.until(what, check, seconds)
        except AssertionError as error:
            status = json.dumps((seen[0].get("status") if seen else None), indent=1)
            raise AssertionError(f"{error}\n{name}: {status}") from None
        return seen[0]

    async def until_leading(self, operator: Operator) -> None:
        async def leads() -> bool:
            return operator.metrics.registry.get_sample_value("tailbound_operator_leader") == 1

        await self.until("leadership", leads)

    async def gateway(self, name: str, address: str) -> FakeGateway:
        found = FakeGateway(self.cluster, self.system, name, address)
        self.gateways.append(found)
        return found


async def beside(environment: Environment, number: int) -> Environment:
    """Another pair of namespaces, with the same gateways."""
    names = (f"{environment.namespace}-{number}", f"{environment.system}-{number}")
    for name in names:
        await environment.cluster.insert(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        )
    for gateway in environment.gateways:
        await FakeGateway(environment.cluster, names[1], gateway.name, gateway.address).appear()
    return replace(environment, namespace=names[0], system=names[1])


@dataclass
class Room:
    """What the nodes are like, for a test to change."""

    places: int
    """Pods of each service that find room."""
    dead: set[str] = field(default_factory=set)
    """Numbers of revisions whose pods keep their places and are not ready."""


@asynccontextmanager
async def kubelet(environment: Environment, places: int = 1000) -> AsyncIterator[Room]:
    """Stands in for the controller manager and the kubelet: Deployments get Ready pods and EndpointSlices."""
    room = Room(places)

    async def run() -> None:
        while True:
            cluster, namespace = environment.cluster, environment.namespace
            # One whose label was taken off belongs to nobody until it has it back.
            deployments = (await cluster.list(DEPLOYMENTS, namespace, SERVICE_LABEL)).items
            found = (await cluster.list(ENDPOINT_SLICES, namespace)).items
            slices = {each["metadata"]["name"]: each for each in found}
            for deployment, pods in _placed(deployments, room.places):
                name = deployment["metadata"]["name"]
                ready = pods if name.split("-")[-2] not in room.dead else 0
                with suppress(Exception):
                    await _serve_deployment(environment, deployment, pods, ready, slices.get(name))
            await asyncio.sleep(0.1)

    task = asyncio.create_task(run())
    try:
        yield room
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _placed(deployments: tuple[Object, ...], places: int) -> list[tuple[Object, int]]:
    """Each Deployment with its pods that find room: those that are there have theirs."""
    free: dict[str, int] = defaultdict(lambda: places)
    for each in deployments:
        free[each["metadata"]["labels"][SERVICE_LABEL]] -= _held(each)
    placed = []
    for deployment in deployments:
        service = deployment["metadata"]["labels"][SERVICE_LABEL]
        wanted, held = deployment["spec"]["replicas"], _held(deployment)
        more = min(max(wanted - held, 0), max(free[service], 0))
        free[service] -= more
        placed.append((deployment, min(held + more, wanted)))
    return placed


def _held(deployment: Object) -> int:
    """Pods that are there."""
    return int((deployment.get("status") or {}).get("replicas", 0))


async def _serve_deployment(
    environment: Environment, deployment: Object, pods: int, ready: int, found: Object | None
) -> None:
    cluster, meta = environment.cluster, deployment["metadata"]
    if meta.get("deletionTimestamp"):
        await _bury(environment, deployment, found)
        return
    status = deployment.get("status") or {}
    known = (_held(deployment), status.get("readyReplicas", 0), status.get("observedGeneration"))
    if known != (pods, ready, meta["generation"]):
        refused = {
            "type": "ReplicaFailure",
            "status": "True",
            "reason": "FailedCreate",
            "message": "exceeded quota: devices",
        }
        await cluster.apply_status(
            DEPLOYMENTS,
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {key: meta[key] for key in ("namespace", "name", "uid", "resourceVersion")},
                "status": {
                    "observedGeneration": meta["generation"],
                    "replicas": pods,
                    "updatedReplicas": pods,
                    "readyReplicas": ready,
                    "availableReplicas": ready,
                    "conditions": [refused] if pods < deployment["spec"]["replicas"] else [],
                },
            },
        )
    if found is None:
        await cluster.insert(ENDPOINT_SLICES, _slice(deployment, ready))
    elif len(found["endpoints"] or ()) != ready:
        endpoints = _slice(deployment, ready)["endpoints"]
        await cluster.replace(ENDPOINT_SLICES, {**found, "endpoints": endpoints})


def _slice(deployment: Object, pods: int) -> Object:
    meta = deployment["metadata"]
    labels = {key: meta["labels"][key] for key in (SERVICE_LABEL, REVISION_LABEL)}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"namespace": meta["namespace"], "name": meta["name"], "labels": labels},
        "addressType": "IPv4",
        "endpoints": [
            {"addresses": [f"10.244.0.{index + 1}"], "conditions": {"ready": True}} for index in range(pods)
        ],
        "ports": [{"name": "http", "port": 8080}],
    }


@asynccontextmanager
async def nodes(environment: Environment) -> AsyncIterator[None]:
    """Stands in for ReplicaSets and the kubelet: as many Ready Pods as each Deployment asks for."""

    async def run() -> None:
        while True:
            for deployment in (await environment.cluster.list(DEPLOYMENTS, environment.namespace)).items:
                with suppress(Exception):
                    await _run_pods(environment, deployment)
            await asyncio.sleep(0.1)

    task = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _run_pods(environment: Environment, deployment: Object) -> None:
    cluster, meta = environment.cluster, deployment["metadata"]
    revision = meta["labels"][REVISION_LABEL]
    listing = await cluster.list(PODS, meta["namespace"], f"{REVISION_LABEL}={revision}")
    found, wanted = list(listing.items), deployment["spec"]["replicas"]
    for pod in found[wanted:]:
        about = pod["metadata"]
        await cluster.delete(
            PODS, about["namespace"], about["name"], about["uid"], about["resourceVersion"], "Background"
        )
    for _ in range(wanted - len(found)):
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "namespace": meta["namespace"],
                "name": f"{revision}-{uuid.uuid4().hex[:6]}",
                "labels": {key: meta["labels"][key] for key in (SERVICE_LABEL, REVISION_LABEL)},
            },
            "spec": {"containers": [{"name": "server", "image": "runtime"}]},
        }
        created = (await cluster.insert(PODS, body))["metadata"]
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": created["creationTimestamp"]}
            for kind in ("PodScheduled", "Ready")
        ]
        about = {key: created[key] for key in ("namespace", "name", "uid", "resourceVersion")}
        status = {"phase": "Running", "conditions": conditions}
        await cluster.apply_status(
            PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": about, "status": status}
        )


async def _bury(environment: Environment, deployment: Object, stale: Object | None) -> None:
    """What the garbage collector does after a foreground deletion."""
    meta = {**deployment["metadata"], "finalizers": []}
    await environment.cluster.replace(DEPLOYMENTS, {**deployment, "metadata": meta})
    if stale is not None:
        found = stale["metadata"]
        await environment.cluster.delete(
            ENDPOINT_SLICES, meta["namespace"], meta["name"], found["uid"], found["resourceVersion"]
        )


def writes_since(audit_log: Path, offset: int) -> list[str]:
    """Writes of operators in the audit log after `offset` bytes, Leases aside."""
    with audit_log.open("rb") as log:
        log.seek(offset)
        events = [json.loads(line) for line in log.read().splitlines()]
    found = []
    for event in events:
        about = event["objectRef"]
        if event.get("userAgent") == "tailbound-operator" and about["resource"] != "leases":
            place = "/".join(filter(None, (about["resource"], about.get("subresource"), about.get("name"))))
            found.append(f"{event['verb']} {place}")
    return found


async def settled(environment: Environment) -> int:
    """Size of the audit log once the operator has been quiet for a second."""
    log = environment.control_plane.audit_log

    async def quiet() -> int:
        size = log.stat().st_size
        await asyncio.sleep(1)
        return size if not writes_since(log, size) else 0

    return int(await environment.until("quiet", quiet))
