"""What Prometheus is to scrape, in the form of its HTTP service discovery.

The operator has every pod in memory anyway: a Prometheus that asks it needs no permission of its own, and the
labels are right whatever a pod says of itself.
"""

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from aiohttp import web

from tailbound.api.names import GATEWAY_OBSERVED_PORT, REVISION_LABEL, SERVICE_LABEL
from tailbound.api.runtime_contract import HTTP_PORT_NAME, METRICS_PORT_NAME, SERVER_CONTAINER
from tailbound.controller.stores import Stores
from tailbound.kube.objects import key_of, label
from tailbound.kube.protocol import Object
from tailbound.kube.resources import PODS

GATEWAYS_PATH: Final = "/targets/gateways"
SERVING_PATH: Final = "/targets/serving"

Targets: TypeAlias = list[dict[str, Any]]
"""Groups of `targets` (ADDRESS:PORT) with their `labels`."""


def gateway_targets(pods: Iterable[Object]) -> Targets:
    """Every gateway pod that has an address, as `pod`."""
    return [
        _group(address, GATEWAY_OBSERVED_PORT, {"pod": key_of(pod)[1]})
        for pod in pods
        if (address := _address(pod)) is not None
    ]


def serving_targets(pods: Iterable[Object]) -> Targets:
    """Every serving pod that has an address, by namespace, service, revision and pod.

    It is asked at its port `metrics`, or else at `http`; a foreign pod that has neither is left out.
    """
    groups: Targets = []
    for pod in pods:
        address, port = _address(pod), _metrics_port(pod)
        service, revision = label(pod, SERVICE_LABEL), label(pod, REVISION_LABEL)
        if address is not None and port is not None and service and revision:
            namespace, name = key_of(pod)
            labels = {"namespace": namespace, "service": service, "revision": revision, "pod": name}
            groups.append(_group(address, port, labels))
    return groups


def routes(stores: Stores) -> list[web.RouteDef]:
    """GET of both lists, as the stores have them at that moment."""

    async def gateways(_: web.Request) -> web.Response:
        return web.json_response(gateway_targets(stores.gateway_pods))

    async def serving(_: web.Request) -> web.Response:
        return web.json_response(serving_targets(stores.of[PODS]))

    return [web.get(GATEWAYS_PATH, gateways), web.get(SERVING_PATH, serving)]


def _group(address: str, port: int, labels: dict[str, str]) -> dict[str, Any]:
    host = f"[{address}]" if ":" in address else address
    return {"targets": [f"{host}:{port}"], "labels": labels}


def _address(pod: Object) -> str | None:
    status = pod.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return None
    return status.get("podIP") or None


def _metrics_port(pod: Object) -> int | None:
    ports = {
        port.get("name"): int(port["containerPort"])
        for container in (pod.get("spec") or {}).get("containers") or ()
        if container.get("name") == SERVER_CONTAINER
        for port in container.get("ports") or ()
    }
    return ports.get(METRICS_PORT_NAME) or ports.get(HTTP_PORT_NAME)
