"""A gateway that acknowledges what it is told to, and counts requests that nobody sent."""

import asyncio
from typing import Any

from aiohttp import web
from tailbound.kube.objects import key_of
from tailbound.kube.protocol import KubeClient
from tailbound.kube.resources import INFERENCE_SERVICES
from tailbound.objects.fields import Object

from tests.support.gateway_pod import create_ready, serve_observed


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
        return await serve_observed(self.address, port, self._services)

    async def _services(self, question: Any) -> dict[str, Any]:
        self.reads += 1
        if self.acknowledges:
            async with self._applying:
                listing = await self.cluster.list(INFERENCE_SERVICES)
                self.frozen = {"/".join(key_of(service)): self._apply(service) for service in listing.items}
        asked = question["services"] if question else self.frozen
        return {name: self.frozen[name] for name in asked if name in self.frozen}

    async def appear(self) -> None:
        """Create the pod object and make it Ready."""
        await create_ready(self.cluster, self.namespace, self.name, self.address)
