"""What surrounds the operator: users, a gateway, the Deployment controller and the kubelets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from tailbound.api.names import API_VERSION, REVISION_LABEL, SERVICE_LABEL
from tailbound.kube.aio import AioCluster
from tailbound.kube.errors import KubeError
from tailbound.kube.informer import Informer
from tailbound.kube.objects import key_of
from tailbound.kube.resources import (
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    INFERENCE_SERVICES,
    PODS,
    Resource,
)
from tailbound.kube.store import ObjectStore
from tailbound.objects.fields import Object

from e2e.cluster import ControlPlane
from e2e.cluster.ports import free_port
from tests.support.cluster_objects import install_kinds
from tests.support.gateway_pod import create_ready, serve_observed

NAMESPACE = "fleet"
ADDRESS = "127.0.0.1"
_AT_ONCE = 16
_LONGEST_SECONDS = 1800.0
_REPOSITORY = Path(__file__).parents[3]
_RUNTIMES = _REPOSITORY / "charts" / "tailbound" / "files" / "runtimes"
_SCALING = {"min": 1, "max": 4}
_REQUESTS_PER_READ = 400
"""Requests that the gateway counts of each revision with weight between two readings; all are good."""


@dataclass
class World:
    """Keeps what was asked for true, until it is closed."""

    cluster: AioCluster
    services: ObjectStore
    deployments: ObjectStore
    port: int = 0
    counters: dict[str, dict[str, int]] = field(default_factory=dict)
    shown: tuple[str, ...] = ()
    """Services that the API server does not have: the gateway has applied to each what the first one says."""
    _work: "asyncio.Queue[Object]" = field(default_factory=asyncio.Queue)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    @asynccontextmanager
    async def of(cls, plane: ControlPlane, cluster: AioCluster) -> "AsyncIterator[World]":
        """Put our kinds into the API server, and let the stand-ins work."""
        install_kinds(plane)
        # Those of the chart, all of them: each decision chooses among the runtimes.
        for path in sorted(_RUNTIMES.glob("*.yaml")):
            text = path.read_text("utf-8").replace("image: IMAGE", "image: runtime:bench")
            plane.kubectl("apply", "--server-side", "-f", "-", input=text)
        world = cls(cluster, ObjectStore(), ObjectStore())
        world.services.subscribe(lambda _old, _new: world._changed.set())
        world.deployments.subscribe(
            lambda _old, new: world._work.put_nowait(new) if new is not None else None
        )
        informers = [
            Informer(cluster, INFERENCE_SERVICES, world.services),
            Informer(cluster, DEPLOYMENTS, world.deployments, label_selector=SERVICE_LABEL),
        ]
        tasks = [asyncio.create_task(each.run()) for each in informers]
        tasks += [asyncio.create_task(world._serve_deployments()) for _ in range(_AT_ONCE)]
        runner = await world._gateway()
        try:
            yield world
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await runner.cleanup()

    async def create_one(self, name: str, *, autoscaled: bool) -> None:
        """Create a service of this name, whose pods may follow its traffic."""
        service = _service(name)
        scaling = {"scaling": _SCALING} if autoscaled else {}
        await self._insert(INFERENCE_SERVICES, {**service, "spec": {**service["spec"], **scaling}})

    async def create(self, first: int, end: int) -> None:
        """Create services at once, as a user who applies a folder would."""
        await _at_once(
            range(first, end), lambda number: self._insert(INFERENCE_SERVICES, _service(f"s{number}"))
        )

    async def edit(self, count: int) -> None:
        """Give so many services another model."""

        async def edit(number: int) -> None:
            stored = self.services.get(NAMESPACE, f"s{number}")
            assert stored is not None
            model = {**stored["spec"]["model"], "sha256": "b" * 64}
            await self.cluster.replace(
                INFERENCE_SERVICES, {**stored, "spec": {**stored["spec"], "model": model}}
            )

        await _at_once(range(count), edit)

    async def until_ready(self, count: int) -> None:
        """Wait until so many services are Ready."""
        await self._until(lambda: sum(map(_is_ready, self.services)) >= count)

    async def until_promoted(self, count: int) -> None:
        """Wait until the newest revision of so many services serves alone, or for half an hour."""
        with suppress(TimeoutError):
            await self._until(lambda: self.promoted() >= count)

    def promoted(self) -> int:
        """Services whose newest revision serves alone."""
        return sum(map(_is_promoted, self.services))

    async def until_one_ready(self, name: str) -> str:
        """Wait until this service is Ready; gives its revision."""

        def is_ready() -> bool:
            stored = self.services.get(NAMESPACE, name)
            return stored is not None and _is_ready(stored)

        await self._until(is_ready)
        deployments = [each for each in self.deployments if each["metadata"]["labels"][SERVICE_LABEL] == name]
        return str(deployments[0]["metadata"]["labels"][REVISION_LABEL])

    async def until_sla_met(self, name: str) -> None:
        """Wait until a tick has told that this service meets its SLA: the last that its status lacks."""

        def is_met() -> bool:
            stored = self.services.get(NAMESPACE, name)
            return stored is not None and _is_true(stored, "SLAMet")

        await self._until(is_met)

    def show(self, names: Sequence[str]) -> None:
        """From now on the gateway serves these services, each as it does the real one of the first name."""
        self.shown = tuple(f"{NAMESPACE}/{name}" for name in names)

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(_LONGEST_SECONDS):
            while not holds():
                self._changed.clear()
                await self._changed.wait()
                # Many services change at a time.
                await asyncio.sleep(0.2)

    async def _gateway(self) -> web.AppRunner:
        """One gateway pod, whose address answers /observed from what the API server has sent."""
        self.port = free_port(ADDRESS)
        runner = await serve_observed(ADDRESS, self.port, self._observed)
        await create_ready(self.cluster, NAMESPACE, "gateway-0", ADDRESS)
        return runner

    async def _observed(self, question: Any) -> dict[str, Any]:
        every = self.shown or ["/".join(key_of(each)) for each in self.services]
        names = question["services"] if question else every
        counted = bool(question and question.get("counters"))
        return {name: seen for name in names if (seen := self._seen(name, counted=counted)) is not None}

    def _seen(self, name: str, *, counted: bool) -> dict[str, Any] | None:
        stored = self.services.get(*(self.shown[0] if self.shown else name).split("/"))
        if stored is None:
            return None
        traffic = (stored.get("status") or {}).get("traffic") or {}
        applied = {
            "generation": stored["metadata"]["generation"],
            "trafficGeneration": traffic.get("generation", 0),
        }
        if not counted:
            return {"applied": applied}
        counters = self.counters.setdefault(name, {})
        for backend in traffic.get("backends", ()):
            if backend["weight"]:
                revision = backend["revision"]
                counters[revision] = counters.get(revision, 0) + _REQUESTS_PER_READ
        return {
            "applied": applied,
            "counters": {revision: {"good": number} for revision, number in counters.items()},
        }

    async def _serve_deployments(self) -> None:
        """Ready pods and their EndpointSlice for each Deployment that has none yet."""
        while True:
            deployment = await self._work.get()
            with suppress(KubeError):
                await self._serve_deployment(deployment)

    async def _serve_deployment(self, deployment: Object) -> None:
        meta, status = deployment["metadata"], deployment.get("status") or {}
        if meta.get("deletionTimestamp"):
            await self.cluster.replace(DEPLOYMENTS, {**deployment, "metadata": {**meta, "finalizers": []}})
            return
        wanted = int(deployment["spec"].get("replicas", 0))
        if (status.get("readyReplicas", 0), status.get("observedGeneration")) == (wanted, meta["generation"]):
            return
        labels = {key: meta["labels"][key] for key in (SERVICE_LABEL, REVISION_LABEL)}
        if not status.get("observedGeneration"):
            about = {"namespace": NAMESPACE, "name": f"{meta['name']}-0", "labels": labels}
            await self._pod(about, "10.244.0.1")
            await self._insert(ENDPOINT_SLICES, _slice(meta["name"], labels))
        counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), wanted)
        ready = {**counts, "observedGeneration": meta["generation"]}
        await self.cluster.replace_status(DEPLOYMENTS, {**deployment, "status": ready})

    async def _pod(self, meta: dict[str, Any], address: str) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": meta,
            "spec": {"containers": [{"name": "server", "image": "bench"}]},
        }
        created = await self.cluster.insert(PODS, body)
        at = created["metadata"]["creationTimestamp"]
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": at} for kind in ("PodScheduled", "Ready")
        ]
        status = {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": conditions,
        }
        await self.cluster.replace_status(PODS, {**created, "status": status})

    async def _insert(self, resource: Resource, body: Object) -> None:
        await self.cluster.insert(resource, body)


async def _at_once(numbers: Iterable[int], act: Callable[[int], Awaitable[None]]) -> None:
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int) -> None:
        async with slots:
            await act(number)

    await asyncio.gather(*(one(number) for number in numbers))


def _service(name: str) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceService",
        "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": {
            "model": {"uri": "http://models.test/model.onnx", "format": "onnx", "sha256": "a" * 64},
            "resources": {"cpu": "1", "memory": "1Gi"},
            "sla": {"latency": {"p99": "100ms"}, "errorRate": "1%"},
            "rollout": {
                "strategy": "canary",
                "steps": [{"weight": 20}, {"weight": 50}],
                "minStepTime": "5s",
                "scaleDownDelay": "1s",
                "analysis": {"warmupRequests": 0},
            },
        },
    }


def _slice(name: str, labels: dict[str, str]) -> Object:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"namespace": NAMESPACE, "name": name, "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.244.0.1"], "conditions": {"ready": True}}],
        "ports": [{"name": "http", "port": 8080}],
    }


def _is_ready(service: Object) -> bool:
    return _is_true(service, "Ready")


def _is_true(service: Object, condition: str) -> bool:
    conditions = (service.get("status") or {}).get("conditions") or ()
    return any(each["type"] == condition and each["status"] == "True" for each in conditions)


def _is_promoted(service: Object) -> bool:
    rollout = (service.get("status") or {}).get("rollout") or {}
    revision = str(rollout.get("revision", ""))
    return rollout.get("state") == "Promoted" and "-r2-" in revision
