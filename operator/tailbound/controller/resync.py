"""Full lists of every kind: the first opens the gate, the later ones find what a watch has lost."""

import asyncio
import random
from collections.abc import Callable, Sequence

from tailbound.controller.stores import WATCHED, Stores, selector_of
from tailbound.kube.errors import KubeError
from tailbound.kube.protocol import KubeClient
from tailbound.kube.resources import Resource
from tailbound.telemetry.logs import logger
from tailbound.telemetry.metrics import Metrics

_LOG = logger(__name__)
# The second list comes soon: no watch reports what was deleted between the first one and the first watch.
SECOND_SECONDS = 30.0
PERIOD_SECONDS = 300.0
RETRY_SECONDS = 1.0


class Resync:
    """Lists and takes the set difference."""

    def __init__(
        self,
        cluster: KubeClient,
        stores: Stores,
        namespaces: Sequence[str],
        metrics: Metrics,
        heard: Callable[[Resource], None],
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.synced = asyncio.Event()
        self._cluster = cluster
        self._stores = stores
        self._namespaces: tuple[str | None, ...] = tuple(namespaces) or (None,)
        self._metrics = metrics
        self._heard = heard
        self._jitter = jitter

    async def first(self) -> None:
        """Wait until every kind has been listed. Errors, missing CRDs among them, are waited out."""
        for resource in WATCHED:
            while True:
                try:
                    await self._list(resource)
                    break
                except KubeError as error:
                    _LOG.warning("not listed", kind=resource.kind, error=str(error))
                    await asyncio.sleep(RETRY_SECONDS * (0.5 + self._jitter()))
        self.synced.set()

    async def run(self) -> None:
        """List again for ever, every few minutes."""
        pause = SECOND_SECONDS
        while True:
            await asyncio.sleep(pause * (0.8 + 0.4 * self._jitter()))
            pause = PERIOD_SECONDS
            await self.once()

    async def once(self) -> None:
        """List every kind and count what the watches had not told. Errors wait for the next period."""
        for resource in WATCHED:
            try:
                differences = await self._list(resource)
            except KubeError as error:
                _LOG.warning("not listed", kind=resource.kind, error=str(error))
            else:
                self._metrics.resync_differences.labels(resource.kind).inc(differences)

    async def _list(self, resource: Resource) -> int:
        namespaces = self._namespaces if resource.namespaced else (None,)
        listings = [
            await self._cluster.list(resource, namespace, selector_of(resource)) for namespace in namespaces
        ]
        self._heard(resource)
        items = [item for listing in listings for item in listing.items]
        # The oldest version: an object that is newer than its own namespace's list may be missing there.
        version = min((listing.resource_version for listing in listings), key=int)
        return self._stores.of[resource].replace(items, version)
