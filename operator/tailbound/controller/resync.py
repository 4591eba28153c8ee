"""Full lists of the kinds that kopf watches: what decides on a service is there first, and what a watch lost.

kopf does not say when its first list is complete, and no service may be decided on before the runtimes and
the classes are there: these few are listed once more at the start. Every few minutes they are listed again,
to find what was deleted while a watch was broken.
"""

import asyncio
import random
from collections.abc import Callable, Sequence

from tailbound.controller.stores import SHARED, Stores
from tailbound.kube.errors import KubeError
from tailbound.kube.protocol import KubeClient
from tailbound.kube.resources import Resource
from tailbound.telemetry.logs import logger

_LOG = logger(__name__)
PERIOD_SECONDS = 300.0
RETRY_SECONDS = 1.0


class Resync:
    """Lists each kind and compares it with the store. `heard` gets the kind, and the missed differences."""

    def __init__(
        self,
        cluster: KubeClient,
        stores: Stores,
        namespaces: Sequence[str],
        heard: Callable[[Resource, int], None],
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._cluster = cluster
        self._stores = stores
        self._namespaces: tuple[str | None, ...] = tuple(namespaces) or (None,)
        self._heard = heard
        self._jitter = jitter

    async def first(self) -> None:
        """List what services are decided by. Errors, missing CRDs among them, are waited out."""
        for resource in SHARED:
            while True:
                try:
                    await self._list(resource)
                    self._heard(resource, 0)
                    break
                except KubeError as error:
                    _LOG.warning("not listed", kind=resource.kind, error=str(error))
                    await asyncio.sleep(RETRY_SECONDS * (0.5 + self._jitter()))

    async def run(self) -> None:
        """List again for ever, every few minutes."""
        while True:
            await asyncio.sleep(PERIOD_SECONDS * (0.8 + 0.4 * self._jitter()))
            await self.once()

    async def once(self) -> None:
        """List every kind. Errors wait for the next period."""
        for resource in SHARED:
            try:
                self._heard(resource, await self._list(resource))
            except KubeError as error:
                _LOG.warning("not listed", kind=resource.kind, error=str(error))

    async def _list(self, resource: Resource) -> int:
        namespaces = self._namespaces if resource.namespaced else (None,)
        store, differences = self._stores.of[resource], 0
        for namespace in namespaces:
            newest = store.newest
            listing = await self._cluster.list(resource, namespace)
            store.overtake(newest, listing.resource_version)
            differences += store.replace(listing.items, listing.resource_version, namespace)
        return differences
