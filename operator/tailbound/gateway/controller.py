"""Turns watched objects into Envoy's configuration: collects changes, projects them, publishes them.

Stores feed it (see `tailbound.kube.informer`); nothing is configured before all have been listed in full.
If that takes too long, the snapshot of the last acknowledged routes is served until it is done.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from tailbound.api.names import SERVICE_LABEL
from tailbound.gateway.resources import Bundle
from tailbound.gateway.routes import bundle_of
from tailbound.kube.store import ObjectStore
from tailbound.objects.fields import Object
from tailbound.objects.metadata import KubernetesObject
from tailbound.telemetry.logs import logger
from tailbound.traffic.intent import key_of
from tailbound.traffic.model import Projected, Route, RouteRejection, ServiceKey
from tailbound.traffic.projection import Projector

_log = logger(__name__)

# Changes that come together are projected together.
GATHER_SECONDS = 0.02
# And those that follow wait a little: each update costs Envoy and us time for the whole fleet.
REST_SECONDS = 0.1
# How long the API may take to list everything before the snapshot is served instead.
SNAPSHOT_AFTER_SECONDS = 5.0


def slice_index(obj: Object) -> Iterable[ServiceKey]:
    """Index of EndpointSlices: the service that each belongs to."""
    view = KubernetesObject(obj)
    name = view.label(SERVICE_LABEL)
    return (ServiceKey(view.namespace, name),) if name and view.namespace else ()


class KindStores:
    """The stores of one kind, one per watched namespace, or one of all."""

    def __init__(self, stores: Sequence[ObjectStore]) -> None:
        self._stores = tuple(stores)

    def get(self, namespace: str, name: str) -> Object | None:
        """The object as last seen, or None."""
        found = (store.get(namespace, name) for store in self._stores)
        return next((obj for obj in found if obj is not None), None)

    def indexed(self, service: ServiceKey) -> tuple[Object, ...]:
        """The objects that the index puts under this service."""
        return tuple(obj for store in self._stores for obj in store.indexed(service))

    def subscribe(self, on_change: Callable[[Object | None, Object | None], None]) -> None:
        """Call `on_change(old, new)` after every later difference."""
        for store in self._stores:
            store.subscribe(on_change)


class GatewayController:
    """Runs until cancelled.

    `services` and `slices` are of InferenceServices and EndpointSlices, the latter indexed by `slice_index`.
    `publish` gets the bundles that changed, at first all of them. `former` is the snapshot, if there is one.
    """

    def __init__(
        self,
        services: KindStores,
        slices: KindStores,
        publish: Callable[[dict[ServiceKey, Bundle | None]], None],
        cluster_domain: str,
        former: tuple[Route, ...] | None,
    ) -> None:
        self.rejections: dict[ServiceKey, RouteRejection] = {}
        self._services = services
        self._slices = slices
        self._publish = publish
        self._former = former
        self._projector = Projector(cluster_domain, slices.indexed, former or ())
        self._changed = asyncio.Event()
        services.subscribe(self._service_changed)
        slices.subscribe(self._slice_changed)

    async def run(self, listed: asyncio.Event) -> None:
        """Configure Envoy from the API once all is `listed`, and from the snapshot if that takes long."""
        if self._former is not None and not await _within(listed, SNAPSHOT_AFTER_SECONDS):
            self._serve_snapshot(self._former)
        await listed.wait()
        self._forget_the_deleted()
        self._changed.set()
        while True:
            await self._changed.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._changed.clear()
            self._project()
            await asyncio.sleep(REST_SECONDS)

    def _serve_snapshot(self, routes: tuple[Route, ...]) -> None:
        _log.warning("the API does not answer: serving the snapshot", services=len(routes))
        self._publish({route.service: bundle_of(route) for route in routes})

    def _forget_the_deleted(self) -> None:
        """Services of the snapshot that were deleted while no watch was open."""
        for route in self._former or ():
            if self._services.get(*route.service) is None:
                self._projector.service_gone(route.service)

    def _project(self) -> None:
        bundles: dict[ServiceKey, Bundle | None] = {}
        for service, projected in self._projector.project().items():
            self._note(service, projected)
            bundles[service] = None if projected is None else bundle_of(projected.route)
        self._publish(bundles)

    def _note(self, service: ServiceKey, projected: Projected | None) -> None:
        """Remember what /observed has to tell, and log when it turns bad."""
        self.rejections.pop(service, None)
        if projected is not None and projected.rejection is not None:
            self.rejections[service] = projected.rejection
            _log.warning("service rejected", service=str(service), message=projected.rejection.message)

    def _service_changed(self, old: Object | None, new: Object | None) -> None:
        if new is not None:
            self._projector.service_changed(new)
        elif old is not None:
            self._projector.service_gone(key_of(old))
        self._changed.set()

    def _slice_changed(self, old: Object | None, new: Object | None) -> None:
        for obj in (old, new):
            for service in slice_index(obj) if obj is not None else ():
                self._projector.slices_changed(service)
        self._changed.set()


async def _within(event: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True
