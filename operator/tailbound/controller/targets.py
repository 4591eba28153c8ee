"""What Prometheus is to scrape, in the form of its HTTP service discovery.

The operator has every pod in memory anyway: a Prometheus that asks it needs no permission of its own, and the
labels are right whatever a pod says of itself.
"""

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from aiohttp import web

from tailbound.api.names import (
    GATEWAY_METRICS_PORT,
    REVISION_LABEL,
    SERVER_METRICS_ANNOTATION,
    SERVICE_LABEL,
)
from tailbound.api.runtime_contract import HOLD_CONTAINER, HTTP_PORT_NAME, METRICS_PORT_NAME, SERVER_CONTAINER
from tailbound.api.server_metrics import DEFAULT_METRICS_PATH, metrics_of
from tailbound.controller.stores import Stores
from tailbound.kube.resources import PODS
from tailbound.objects.fields import Object
from tailbound.objects.pod import Pod

GATEWAYS_PATH: Final = "/targets/gateways"
SERVING_PATH: Final = "/targets/serving"

Targets: TypeAlias = list[dict[str, Any]]
"""Groups of `targets` (ADDRESS:PORT) with their `labels`."""


def gateway_targets(pods: Iterable[Object]) -> Targets:
    """Every gateway pod that has an address, as `pod`."""
    return [
        _group(pod, GATEWAY_METRICS_PORT, {"pod": pod.name})
        for pod in map(Pod, pods)
        if pod.pod_ip and not pod.finished
    ]


def serving_targets(pods: Iterable[Object]) -> Targets:
    """Every serving pod that has an address, by namespace, service, revision and pod.

    It is asked at its port `metrics`, or else at `http`, and at the path that its runtime names; a foreign
    pod that has neither port is left out. A pod that stops when no connection has a request is left out
    while it stops: scrapes would keep it.
    """
    groups: Targets = []
    for pod in map(Pod, pods):
        port = pod.port(SERVER_CONTAINER, METRICS_PORT_NAME, HTTP_PORT_NAME)
        service, revision = pod.label(SERVICE_LABEL), pod.label(REVISION_LABEL)
        if pod.pod_ip and not _ends(pod) and port is not None and service and revision:
            labels = {"namespace": pod.namespace, "service": service, "revision": revision, "pod": pod.name}
            groups.append(_group(pod, port, {**labels, **_path(pod)}))
    return groups


def routes(stores: Stores) -> list[web.RouteDef]:
    """GET of both lists, as the stores have them at that moment."""

    async def gateways(_: web.Request) -> web.Response:
        return web.json_response(gateway_targets(stores.gateway_pods))

    async def serving(_: web.Request) -> web.Response:
        return web.json_response(serving_targets(stores.of[PODS]))

    return [web.get(GATEWAYS_PATH, gateways), web.get(SERVING_PATH, serving)]


def _ends(pod: Pod) -> bool:
    held = any(status.name == HOLD_CONTAINER for status in pod.init_container_statuses)
    return pod.finished or (pod.terminating and held)


def _group(pod: Pod, port: int, labels: dict[str, str]) -> dict[str, Any]:
    return {"targets": [f"{pod.host}:{port}"], "labels": labels}


def _path(pod: Pod) -> dict[str, str]:
    """The label that says at which path it is asked, where that is not the usual one."""
    metrics = metrics_of(pod.annotations.get(SERVER_METRICS_ANNOTATION))
    path = DEFAULT_METRICS_PATH if metrics is None else metrics.path
    return {} if path == DEFAULT_METRICS_PATH else {"__metrics_path__": path}
