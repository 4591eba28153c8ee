"""One operator process: everything it is made of, in the order in which it starts and stops."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime

from kubernetes.aio.client.configuration import Configuration

from tailbound.api.names import GATEWAY_OBSERVED_PORT, OPERATOR_LEASE
from tailbound.api.rollout import AnalysisSource
from tailbound.autoscale.decide import decide as size
from tailbound.autoscale.model import TICK
from tailbound.controller import gateway_pods, targets, tenant_queries
from tailbound.controller.autoscaler import Autoscaler
from tailbound.controller.class_usage import ClassUsage
from tailbound.controller.counters import CounterPoller
from tailbound.controller.defaults import ensure_defaults
from tailbound.controller.download_reader import DownloadClient, DownloadReader
from tailbound.controller.execute import Executor
from tailbound.controller.gateways import GatewayReports
from tailbound.controller.health import serve_health, serve_metrics
from tailbound.controller.informers import ServiceInformers
from tailbound.controller.lease import Elector, LeaseTimes
from tailbound.controller.observed_client import ObservedClient
from tailbound.controller.pump import Pump
from tailbound.controller.reconciler import PassOutcome, Reconciler
from tailbound.controller.renderer import Renderer
from tailbound.controller.resync import Resync
from tailbound.controller.service_gauges import ConditionCounts, ServiceCosts
from tailbound.controller.settings import OperatorSettings
from tailbound.controller.signature_reader import MetadataClient, SignatureReader
from tailbound.controller.stale_gateways import StaleGatewayReplacer
from tailbound.controller.stores import Stores
from tailbound.controller.subscriptions import Subscriptions
from tailbound.controller.tenant_queries import TenantQueries
from tailbound.controller.workers import Workers
from tailbound.kube.aio import AioCluster
from tailbound.kube.informer import Informer
from tailbound.kube.objects import Key
from tailbound.kube.protocol import KubeClient
from tailbound.kube.resources import INFERENCE_SERVICES, PODS, Resource
from tailbound.objects.fields import Object, child, text
from tailbound.reconcile import decide
from tailbound.telemetry.events import EventWriter
from tailbound.telemetry.logs import logger
from tailbound.telemetry.metrics import Metrics
from tailbound.telemetry.prometheus import MOST_BYTES, Prometheus

_LOG = logger(__name__)
# With the renew deadline no longer than the Lease: a lost leader's last request ends before another leads.
REQUEST_TIMEOUT_SECONDS = 5.0
# A renewal is one request, and has to be over within the retry period.
LEASE_REQUEST_TIMEOUT_SECONDS = 1.8
DRAIN_SECONDS = 5.0
# Every kind is listed each few minutes even where nothing happens: this long without a word is a fault.
SILENCE_SECONDS = 900.0
REPLACE_PERIOD_SECONDS = 2.0
NOT_RECONCILED = "NotReconciled"
"""Reason of the Event about a service whose passes fail."""


@dataclass(frozen=True)
class OperatorDependencies:
    """What tests put in place of the real thing."""

    wrap: Callable[[KubeClient], KubeClient] = field(default=lambda cluster: cluster)
    lease_times: LeaseTimes = field(default_factory=LeaseTimes)
    observed_port: int = GATEWAY_OBSERVED_PORT
    scaling_period_seconds: float = TICK
    unix_time: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    started: Callable[[], None] = field(default=lambda: None)
    listed: Callable[[], None] = field(default=lambda: None)
    """Called when everything has been listed for the first time."""


class Operator:
    """Runs until `stop` is set, or raises when it must not go on: then the process has to end."""

    def __init__(
        self,
        settings: OperatorSettings,
        connect: Callable[[], Awaitable[Configuration]],
        defaults: tuple[Object, ...] = (),
        dependencies: OperatorDependencies | None = None,
    ) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self._connect = connect
        self._defaults = defaults
        self._dependencies = dependencies or OperatorDependencies()
        self._clock = self._dependencies.clock
        self._heard: dict[Resource, float] = {}
        self.synced = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Start, follow, lead when it is our turn, and stop in order."""
        async with AsyncExitStack() as stack:
            await self._assemble(stack)
            pump_stop = asyncio.Event()
            leader = asyncio.create_task(self._lead(), name="leader")
            pump = asyncio.create_task(self._pump.run(pump_stop), name="pump")
            tasks = [
                asyncio.create_task(_wait(stop), name="stop"),
                asyncio.create_task(self._informers.run(), name="informers"),
                asyncio.create_task(self._gateway_pods.run(), name="gateway pods"),
                asyncio.create_task(self.resync.run(), name="resync"),
                leader,
                pump,
            ]
            stack.push_async_callback(_cancel, tasks)
            stack.push_async_callback(_stop_pump, pump, pump_stop)
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            _LOG.info("stopping")
            await self._drain(leader)

    async def _assemble(self, stack: AsyncExitStack) -> None:
        settings = self.settings
        self._cluster = await self._open(stack, REQUEST_TIMEOUT_SECONDS)
        self._elector = await self._candidate(stack)
        self._workers = Workers(self._reconcile, self.metrics, self._clock, self._tell)
        self.stores = Stores(self._workers.add, settings.services.cluster_domain, settings.host_policy)
        self._conditions = ConditionCounts(self.stores.of[INFERENCE_SERVICES])
        self._costs = ServiceCosts(self.stores.of[INFERENCE_SERVICES], self._elector.holds)
        self._events = EventWriter(self._cluster, settings.pod_name, _now, lambda: uuid.uuid4().hex[:16])
        following = self._following(stack)
        installation = f"{settings.namespace}/{settings.release}"
        self._class_usage = ClassUsage(
            self._cluster, self.stores, self._elector.holds, installation=installation, now=_now
        )
        renderer = Renderer()
        stack.push_async_callback(renderer.close)
        await renderer.start()
        executor = Executor(self._cluster, self.stores, self.metrics, self._elector.holds)
        self._reconciler = Reconciler(
            self.stores,
            executor,
            following,
            renderer,
            self._events,
            decide,
            settings.services,
            _now,
        )
        self._watching(settings)
        await self._serve(stack)

    async def _candidate(self, stack: AsyncExitStack) -> Elector:
        """This process as a candidate for the Lease, over a connection of its own."""
        return Elector(
            await self._open(stack, LEASE_REQUEST_TIMEOUT_SECONDS),
            self.settings.namespace,
            OPERATOR_LEASE,
            self.settings.pod_name,
            clock=self._clock,
            now=_now,
            times=self._dependencies.lease_times,
        )

    def _following(self, stack: AsyncExitStack) -> Subscriptions:
        """The readers of gateways, metrics and pods."""
        client = ObservedClient(self.settings.observed, self._dependencies.observed_port)
        metadata, downloads = MetadataClient(), DownloadClient()
        for close in (client.close, metadata.close, downloads.close):
            stack.push_async_callback(close)
        self._gateways = GatewayReports(
            self.stores.gateway_pods,
            client,
            self._clock,
            self.metrics,
            self._workers.add,
            self.stores.enqueue_all,
        )
        prometheus = self._open_prometheus(stack)
        self._counters = CounterPoller(
            self._gateways,
            self._workers.add,
            self._through_prometheus,
            prometheus,
            self._tenant_queries(stack),
        )
        self._autoscaler = self._autoscaling(prometheus)
        self._signatures = SignatureReader(metadata, self._workers.add)
        self._downloads = DownloadReader(downloads, self._workers.add)
        return Subscriptions(
            self._gateways, self._counters, self._autoscaler, self._signatures, self._downloads
        )

    def _autoscaling(self, prometheus: Prometheus | None) -> Autoscaler:
        return Autoscaler(
            self.stores,
            prometheus,
            size,
            lambda: len(self._gateways.ready_pods()),
            self._workers.add,
            self._dependencies.unix_time,
            self._dependencies.scaling_period_seconds,
            self._workers.queue.has_new,
        )

    def _watching(self, settings: OperatorSettings) -> None:
        self._pump = Pump(
            self.stores, self._connect, settings.watch_namespaces, self._hear, self._dependencies.started
        )
        self.resync = Resync(self._cluster, self.stores, settings.watch_namespaces, self._hear)
        self._informers = ServiceInformers(self._cluster, self.stores, settings.watch_namespaces, self._hear)
        self._gateway_pods = Informer(
            self._cluster,
            PODS,
            self.stores.gateway_pods,
            namespace=settings.namespace,
            label_selector=gateway_pods.selector(settings.release),
            belongs=lambda pod: gateway_pods.made_by(pod, settings.services.gateway_service),
            on_error=lambda error: _LOG.warning("gateway pods not watched", error=str(error)),
        )

    async def _serve(self, stack: AsyncExitStack) -> None:
        self.metrics.gauge("tailbound_operator_queue", "Services that wait for a worker.", (), self._depth)
        self.metrics.gauge(
            "tailbound_operator_stale_sizings",
            "Autoscaled services whose newest sizing lacked a signal.",
            (),
            lambda: {(): float(self._autoscaler.stale())},
        )
        self.metrics.gauge(
            "tailbound_operator_lease_age_seconds",
            "Time since the Lease of the leader was last seen to change, by whichever process.",
            (),
            lambda: {(): self._elector.lease_age_seconds},
        )
        self.metrics.gauge(
            "tailbound_operator_watch_age_seconds",
            "Time since a kind was last heard of.",
            ("kind",),
            self._ages,
        )
        self.metrics.gauge(
            "tailbound_operator_services",
            "InferenceServices by condition and its status.",
            ("condition", "status"),
            self._conditions.by_status,
        )
        self.metrics.gauge(
            "tailbound_service_cost_per_hour",
            "Cost of the pods of a service in an hour, by the prices of their HardwareClasses.",
            ("namespace", "service"),
            self._costs.by_service,
        )
        health = await serve_health(self.settings.health_port, self._healthy, self._ready)
        stack.push_async_callback(health.cleanup)
        metrics = await serve_metrics(
            self.settings.metrics_port, self.metrics.registry, targets.routes(self.stores)
        )
        stack.push_async_callback(metrics.cleanup)

    async def _open(self, stack: AsyncExitStack, timeout_seconds: float) -> KubeClient:
        cluster = AioCluster(
            await self._connect(), timeout_seconds=timeout_seconds, user_agent="tailbound-operator"
        )
        stack.push_async_callback(cluster.close)
        return self._dependencies.wrap(cluster)

    def _open_prometheus(self, stack: AsyncExitStack, most_bytes: int = MOST_BYTES) -> Prometheus | None:
        if self.settings.prometheus_url is None:
            return None
        prometheus = Prometheus(self.settings.prometheus_url, most_bytes=most_bytes)
        stack.callback(prometheus.close)
        return prometheus

    def _tenant_queries(self, stack: AsyncExitStack) -> TenantQueries | None:
        """Queries with a client of their own: they hold up nothing that the operator asks for itself."""
        client = self._open_prometheus(stack, tenant_queries.MOST_BYTES)
        return TenantQueries(client, time.monotonic) if client is not None else None

    def _through_prometheus(self, key: Key) -> bool:
        analysis = child(self.stores.service(key) or {}, "spec", "rollout", "analysis")
        return text(analysis, "source") == AnalysisSource.PROMETHEUS

    async def _lead(self) -> None:
        """Wait for the Lease and work while it is held. Returns when the workers were stopped."""
        await self._fill_stores()
        await self._elector.acquire()
        self.metrics.leader.set(1)
        async with asyncio.TaskGroup() as group:
            keep = group.create_task(self._elector.keep(), name="lease")
            await self._gateway_pods.synced.wait()
            await self._gateways.refresh()
            await ensure_defaults(self._cluster, self.stores, self._defaults, self._elector.holds)
            self.stores.enqueue_all()
            helpers = [
                keep,
                group.create_task(self._gateways.run(), name="gateways"),
                group.create_task(self._counters.run(), name="counters"),
                group.create_task(self._autoscaler.run(), name="autoscaler"),
                group.create_task(self._class_usage.run(), name="class usage"),
                group.create_task(self._signatures.run(), name="signatures"),
                group.create_task(self._downloads.run(), name="downloads"),
                group.create_task(self._replace_stale_gateways(), name="stale-gateways"),
            ]
            await self._workers.run()
            for task in helpers:
                task.cancel()

    async def _fill_stores(self) -> None:
        """Wait until everything is known that a service is decided on."""
        await self.resync.first()
        await self._informers.synced()
        self.synced.set()
        self._dependencies.listed()
        _LOG.info("stores are full", services=len(self.stores.of[INFERENCE_SERVICES]))

    async def _replace_stale_gateways(self) -> None:
        replacer = StaleGatewayReplacer(
            self._cluster,
            self._gateways,
            self.stores.service,
            self._events,
            self._clock,
            self._elector.holds,
        )
        while True:
            await asyncio.sleep(REPLACE_PERIOD_SECONDS)
            await replacer.replace()

    async def _drain(self, leader: "asyncio.Task[None]") -> None:
        """Finish what is under way, then hand the Lease over."""
        self._workers.stop()
        if self._elector.holds():
            await asyncio.wait([leader], timeout=DRAIN_SECONDS)
        await _cancel([leader])
        await self._elector.release()
        self.metrics.leader.set(0)

    async def _reconcile(self, key: Key) -> PassOutcome:
        return await self._reconciler.reconcile(key)

    async def _tell(self, key: Key, why: str) -> None:
        """Record an Event about a service that is not reconciled: its status may be what is refused."""
        service = self.stores.service(key)
        if service is not None and self._elector.holds():
            message = f"its status is not renewed, and tried again every few minutes at most: {why}"
            await self._events.record(service, "Warning", NOT_RECONCILED, message)

    def _hear(self, resource: Resource, lost: int) -> None:
        """Records that a kind was listed or watched; `lost` counts differences that only the list found."""
        first = resource not in self._heard
        self._heard[resource] = self._clock()
        if lost or first:  # most calls are events of a watch
            self.metrics.resync_differences.labels(resource.kind).inc(lost)

    def _healthy(self) -> str | None:
        if not self._heard:
            return None  # the API server has not been reached yet: restarting would not help
        silent = self._clock() - max(self._heard.values())
        return f"nothing was heard of the API server for {silent:.0f} s" if silent > SILENCE_SECONDS else None

    def _ready(self) -> str | None:
        return None if self.synced.is_set() else "not every kind has been listed yet"

    def _depth(self) -> Mapping[tuple[str, ...], float]:
        return {(): float(len(self._workers.queue))}

    def _ages(self) -> Mapping[tuple[str, ...], float]:
        now = self._clock()
        return {(resource.kind,): now - heard for resource, heard in self._heard.items()}


def _now() -> datetime:
    return datetime.now(UTC)


async def _wait(stop: asyncio.Event) -> None:
    await stop.wait()


async def _stop_pump(pump: "asyncio.Task[None]", stop: asyncio.Event) -> None:
    # By its flag: kopf takes itself apart in an order that a cancellation would not keep.
    stop.set()
    await asyncio.wait([pump], timeout=DRAIN_SECONDS)


async def _cancel(tasks: "list[asyncio.Task[None]]") -> None:
    """End tasks, but do not wait for ever: a process that has to end must not hang on one that will not."""
    for task in tasks:
        task.cancel()
    ended, hanging = await asyncio.wait(tasks, timeout=DRAIN_SECONDS)
    for task in ended:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _LOG.warning("ended with an error", task=task.get_name(), error=str(error))
    for task in hanging:
        _LOG.warning("does not end", task=task.get_name())
