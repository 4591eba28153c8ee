"""The operator's own informers follow services, the objects that they are made of, and DeviceClasses.

Which kinds these are, and why kopf does not watch them, is said in `pump`.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from tailbound.controller.stores import OF_EACH_SERVICE, OPTIONAL, SELECTORS, Stores
from tailbound.kube.errors import KubeError
from tailbound.kube.informer import Informer
from tailbound.kube.protocol import KubeClient
from tailbound.kube.resources import DEVICE_CLASSES, Resource
from tailbound.telemetry.logs import logger

_LOG = logger(__name__)


class ServiceInformers:
    """One informer of each kind and watched namespace."""

    def __init__(
        self,
        cluster: KubeClient,
        stores: Stores,
        namespaces: Sequence[str],
        heard: Callable[[Resource, int], None],
    ) -> None:
        everywhere: tuple[str | None, ...] = tuple(namespaces) or (None,)
        self._informers = tuple(
            Informer(
                cluster,
                resource,
                stores.of[resource],
                namespace=namespace,
                label_selector=SELECTORS.get(resource, ""),
                on_error=partial(_complain, resource),
                on_heard=partial(heard, resource),
                on_served=partial(stores.heard_whether_served, resource) if resource in OPTIONAL else None,
            )
            for resource in (*OF_EACH_SERVICE, DEVICE_CLASSES)
            for namespace in (everywhere if resource.namespaced else (None,))
        )

    async def synced(self) -> None:
        """Wait until every kind has been listed. Errors, missing CRDs among them, are waited out."""
        for informer in self._informers:
            await informer.synced.wait()

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run(), name=f"informer of {informer.resource.plural}")


def _complain(resource: Resource, error: KubeError) -> None:
    _LOG.warning("not followed for now", kind=resource.kind, error=str(error))
