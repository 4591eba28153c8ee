"""The sidecar's parts, put together."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Final, NamedTuple

from aiohttp import web

from tailbound.api.names import (
    GATEWAY_HEALTH_PORT,
    GATEWAY_METRICS_PORT,
    GATEWAY_OBSERVED_PORT,
    SERVICE_LABEL,
)
from tailbound.gateway.admin import EnvoyAdmin
from tailbound.gateway.certificate import ServerCertificate
from tailbound.gateway.configuration import Configuration
from tailbound.gateway.controller import GatewayController, KindStores, slice_index
from tailbound.gateway.envoy import EnvoyProcess
from tailbound.gateway.http import health_app, metrics_app, observed_app
from tailbound.gateway.observed import Observer
from tailbound.gateway.server import AdsServer
from tailbound.gateway.settings import GatewaySettings
from tailbound.gateway.shedder import Shedder
from tailbound.gateway.snapshot import SnapshotWriter, read_snapshot
from tailbound.gateway.tokens import Gatekeeper
from tailbound.kube.errors import KubeError
from tailbound.kube.informer import Informer
from tailbound.kube.protocol import KubeClient
from tailbound.kube.resources import ENDPOINT_SLICES, INFERENCE_SERVICES, Resource
from tailbound.kube.store import ObjectStore
from tailbound.telemetry.logs import logger

_log = logger(__name__)


class SidecarPorts(NamedTuple):
    """The ports on which the sidecar listens for the operator, Prometheus and the kubelet."""

    observed: int = GATEWAY_OBSERVED_PORT
    metrics: int = GATEWAY_METRICS_PORT
    health: int = GATEWAY_HEALTH_PORT


STANDARD_PORTS: Final = SidecarPorts()


async def run_gateway(
    settings: GatewaySettings, cluster: KubeClient, ports: SidecarPorts = STANDARD_PORTS
) -> None:
    """Serve Envoy and the operator until cancelled. Any part that fails ends all, and the process with it."""
    run = settings.run
    services, slices = _informers(settings.watch_namespaces, cluster)
    configuration = Configuration()
    certificate = ServerCertificate(settings.observed_tls)
    snapshot = SnapshotWriter(run.snapshot, configuration.last_good)
    async with EnvoyAdmin(run.admin_socket) as admin:
        envoy = EnvoyProcess(admin, run, lambda: datetime.now(UTC))
        ads = AdsServer(configuration, snapshot.request, envoy.asked)
        controller = GatewayController(
            KindStores([informer.store for informer in services]),
            KindStores([informer.store for informer in slices]),
            ads.update,
            settings.cluster_domain,
            read_snapshot(run.snapshot),
        )
        gatekeeper = Gatekeeper(cluster, settings.operator_account, time.monotonic)
        observer = Observer(configuration, ads, controller, envoy)
        apps = {
            ports.observed: observed_app(observer, gatekeeper),
            ports.metrics: metrics_app(observer, envoy, configuration.routes),
            ports.health: health_app(observer),
        }
        await ads.start(run.xds_socket)
        try:
            secured = {ports.observed: certificate.context}
            async with _listening(apps, secured), asyncio.TaskGroup() as tasks:
                tasks.create_task(certificate.run())
                for informer in (*services, *slices):
                    tasks.create_task(informer.run())
                tasks.create_task(snapshot.run())
                tasks.create_task(Shedder(admin, configuration.routes, time.monotonic).run())
                tasks.create_task(controller.run(_all_listed(tasks, (*services, *slices))))
        finally:
            await ads.stop()


def _informers(namespaces: Sequence[str], cluster: KubeClient) -> tuple[list[Informer], list[Informer]]:
    """Informers of InferenceServices and of EndpointSlices: one each, or one each per namespace."""

    def informer(resource: Resource, store: ObjectStore, namespace: str | None, labels: str) -> Informer:
        on_error = partial(_complain, resource.kind)
        return Informer(
            cluster, resource, store, namespace=namespace, label_selector=labels, on_error=on_error
        )

    watched: Sequence[str | None] = namespaces or [None]
    return (
        [informer(INFERENCE_SERVICES, ObjectStore(), each, "") for each in watched],
        [informer(ENDPOINT_SLICES, ObjectStore(index=slice_index), each, SERVICE_LABEL) for each in watched],
    )


def _complain(kind: str, error: KubeError) -> None:
    _log.warning("the API server cannot be read", kind=kind, error=str(error))


def _all_listed(tasks: asyncio.TaskGroup, informers: Sequence[Informer]) -> asyncio.Event:
    listed = asyncio.Event()

    async def wait() -> None:
        for informer in informers:
            await informer.synced.wait()
        listed.set()

    tasks.create_task(wait())
    return listed


@asynccontextmanager
async def _listening(
    apps: Mapping[int, web.Application], secured: Mapping[int, ssl.SSLContext]
) -> AsyncIterator[None]:
    """Serve each application at its port, over TLS at those that are `secured`."""
    async with AsyncExitStack() as stack:
        for port, app in apps.items():
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, port=port, ssl_context=secured.get(port)).start()
        yield
