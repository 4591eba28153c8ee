"""A gateway pod that is an object of the API server and a /observed of this process, without Envoy."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web
from tailbound.api.names import (
    APPLICATION,
    APPLICATION_LABEL,
    COMPONENT_LABEL,
    GATEWAY_COMPONENT,
    INSTANCE_LABEL,
)
from tailbound.kube.protocol import KubeClient
from tailbound.kube.resources import PODS
from tailbound.objects.fields import Object

_LABELS: Final = {
    APPLICATION_LABEL: APPLICATION,
    INSTANCE_LABEL: "tailbound",
    COMPONENT_LABEL: GATEWAY_COMPONENT,
}
_OWNER: Final = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "tailbound-gateway-5d4f",
    "uid": "0",
    "controller": True,
}


async def create_ready(cluster: KubeClient, namespace: str, name: str, address: str) -> None:
    """Create the pod object of a gateway and make it Ready."""
    body: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": _LABELS, "ownerReferences": [_OWNER]},
        "spec": {"containers": [{"name": "envoy", "image": "gateway"}]},
    }
    created = await cluster.insert(PODS, body)
    status = {
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    await cluster.replace_status(PODS, {**created, "status": status})


async def serve_observed(
    address: str, port: int, services: Callable[[Any], Awaitable[dict[str, Any]]]
) -> web.AppRunner:
    """Answer /observed at this address: `services` gives what to tell, by name, for a question or None."""

    async def observed(request: web.Request) -> web.Response:
        told = await services(await request.json() if request.can_read_body else None)
        return web.json_response({"envoyStartTime": "2026-01-01T00:00:00Z", "synced": True, "services": told})

    application = web.Application()
    application.add_routes([web.get("/observed", observed), web.post("/observed", observed)])
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, address, port).start()
    return runner
