"""An operator in this process against the real API server, and what a test does there."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from kubernetes.aio.client.configuration import Configuration
from tailbound.api.names import OPERATOR_LEASE, SERVICE_LABEL
from tailbound.autoscale.model import TICK
from tailbound.controller.lease import LeaseTimes
from tailbound.controller.operator import Operator, OperatorDependencies
from tailbound.controller.settings import OperatorSettings
from tailbound.kube.aio import AioCluster
from tailbound.kube.connection import load_configuration
from tailbound.kube.errors import Conflict
from tailbound.kube.protocol import KubeClient
from tailbound.kube.resources import INFERENCE_SERVICES, LEASES, Resource
from tailbound.objects.fields import Object
from tailbound.reconcile.model import Settings
from tailbound.revisions.model_mounts import Fetcher

from e2e.cluster import ControlPlane
from tests.integration.controller.fake_gateway import FakeGateway
from tests.integration.controller.services import service_body

NAMESPACES = Resource("v1", "Namespace", "namespaces", namespaced=False)
# Ends what hangs; nothing takes nearly as long, not even on a machine that runs other things besides.
LONGEST_SECONDS = 300.0
# Short, and yet long enough for a machine that runs other things besides.
FAST_LEASE = LeaseTimes(duration=20.0, renew_deadline=16.0, retry=0.5)


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
                fetcher=Fetcher("tailbound:test", "IfNotPresent"),
            ),
            "health_port": 0,
            "metrics_port": 0,
            **changes,
        }
        return OperatorSettings(**values)

    def operator(
        self,
        *,
        wrap: Callable[[KubeClient], KubeClient] = lambda cluster: cluster,
        defaults: tuple[Object, ...] = (),
        lease_times: LeaseTimes = FAST_LEASE,
        scaling_period_seconds: float = TICK,
        unix_time: Callable[[], float] = time.time,
        **changes: Any,
    ) -> Operator:
        dependencies = OperatorDependencies(
            wrap=wrap,
            lease_times=lease_times,
            observed_port=self.port,
            scaling_period_seconds=scaling_period_seconds,
            unix_time=unix_time,
        )
        return Operator(self.settings(**changes), self.connect, defaults, dependencies)

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
            await self._until_watching(task)
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
            await self._until_watching(task)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await self._take_lease()

    async def _until_watching(self, running: "asyncio.Task[None]") -> None:
        """kopf leaves requests and their connections behind where it is stopped before its first watches."""

        async def watching() -> bool:
            names = [task.get_name() for task in asyncio.all_tasks()]
            watchers = [name for name in names if name.startswith("watcher for ")]
            return running.done() or any(name.endswith(f"@{self.namespace}") for name in watchers)

        await self.until("the first watches", watching)

    async def _take_lease(self) -> None:
        """Again if a renewal that the dead one had sent arrives only now."""
        while (lease := await self.cluster.get(LEASES, self.system, OPERATOR_LEASE)) is not None:
            meta = lease["metadata"]
            with suppress(Conflict):
                await self.cluster.delete(
                    LEASES, self.system, OPERATOR_LEASE, meta["uid"], meta["resourceVersion"]
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
    ) -> Any:
        """Await a state. Fails with its name."""
        last: Any = None
        try:
            async with asyncio.timeout(seconds):
                while not (last := await holds()):  # noqa: ASYNC110 - another process holds the state
                    await asyncio.sleep(0.05)
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

    def gateway(self, name: str, address: str) -> FakeGateway:
        """One more gateway, which neither serves nor appears yet."""
        found = FakeGateway(self.cluster, self.system, name, address)
        self.gateways.append(found)
        return found
