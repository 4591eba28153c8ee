"""A gateway that acknowledges what it is told to, and counts requests that nobody sent."""

import asyncio
from typing import Any

from aiohttp import web
from tailbound.api.names import (
    APPLICATION,
    APPLICATION_LABEL,
    COMPONENT_LABEL,
    GATEWAY_COMPONENT,
    INSTANCE_LABEL,
)
from tailbound.kube.objects import key_of
from tailbound.kube.protocol import KubeClient
from tailbound.kube.resources import INFERENCE_SERVICES, PODS
from tailbound.objects.fields import Object


class FakeGateway:
    """One gateway pod: a Ready pod object whose address answers /observed from what the API server holds."""

    def __init__(self, cluster: KubeClient, namespace: str, name: str, address: str) -> None:
        self.cluster, self.namespace, self.name, self.address = cluster, namespace, name, address
        self.acknowledges = True
        self.reads = 0
        self.frozen: dict[str, Any] = {}
        # By a revision's number, the requests that it gets with each weight that this gateway applies.
        self.answers: dict[str, dict[str, int]] = {}
        # They come with every read, and not only with every change of the weights.
        self.steady = False
        self.counters: dict[str, dict[str, dict[str, int]]] = {}
        # Of two reads at once, the one with the older listing must not be the later one to apply it.
        self._applying = asyncio.Lock()

    def _apply(self, service: Object) -> dict[str, Any]:
        """Take over what the service says now, and let requests come."""
        name = "/".join(key_of(service))
        traffic = (service.get("status") or {}).get("traffic") or {}
        applied = {
            "generation": service["metadata"]["generation"],
            "trafficGeneration": traffic.get("generation", 0),
        }
        counters = self.counters.setdefault(name, {})
        before = self.frozen.get(name, {}).get("applied", {})
        if self.steady or before.get("trafficGeneration", 0) != applied["trafficGeneration"]:
            for backend in traffic.get("backends", ()):
                revision = backend["revision"]
                counted = counters.setdefault(revision, {})
                for kind, requests in self.answers.get(revision.split("-")[-2], {}).items():
                    counted[kind] = counted.get(kind, 0) + requests
        return {"applied": applied, "counters": counters}

    async def serve(self, port: int) -> web.AppRunner:
        application = web.Application()
        application.add_routes([web.get("/observed", self._observed), web.post("/observed", self._observed)])
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
        asked = (await request.json())["services"] if request.can_read_body else self.frozen
        services = {name: self.frozen[name] for name in asked if name in self.frozen}
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
                "labels": {
                    APPLICATION_LABEL: APPLICATION,
                    INSTANCE_LABEL: "tailbound",
                    COMPONENT_LABEL: GATEWAY_COMPONENT,
                },
                "ownerReferences": [
                    {
                        "apiVersion": "apps/v1",
                        "kind": "ReplicaSet",
                        "name": "tailbound-gateway-5d4f",
                        "uid": "0",
                        "controller": True,
                    }
                ],
            },
            "spec": {"containers": [{"name": "envoy", "image": "gateway"}]},
        }
        created = await self.cluster.insert(PODS, body)
        status = {
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        await self.cluster.replace_status(PODS, {**created, "status": status})
