"""The operator's own informers follow the objects that services are made of, which only the operator writes.

Each kind is listed once, without managedFields, and then watched; a list every few minutes finds what was
deleted while a watch was broken. A fleet has about seven such objects for each service, and kopf keeps a
task and a memory for every object that it watches.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from tailbound.controller.stores import CHILD_SELECTOR, CHILDREN, Stores
from tailbound.kube.errors import KubeError
from tailbound.kube.informer import Informer
from tailbound.kube.protocol import KubeClient
from tailbound.kube.resources import Resource
from tailbound.telemetry.logs import logger

_LOG = logger(__name__)


class ChildInformers:
    """One informer of each kind and watched namespace."""

    def __init__(
        self,
        cluster: KubeClient,
        stores: Stores,
        namespaces: Sequence[str],
        heard: Callable[[Resource, int], None],
    ) -> None:
        self._informers = tuple(
            Informer(
                cluster,
                resource,
                stores.of[resource],
                namespace=namespace,
                label_selector=CHILD_SELECTOR,
                on_error=partial(_complain, resource),
                on_heard=partial(heard, resource),
            )
            for resource in CHILDREN
            for namespace in (tuple(namespaces) or (None,))
        )

    async def synced(self) -> None:
        """Wait until every kind has been listed. Errors are waited out."""
        for informer in self._informers:
            await informer.synced.wait()

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run(), name=f"informer of {informer.resource.plural}")


def _complain(resource: Resource, error: KubeError) -> None:
    _LOG.warning("not followed for now", kind=resource.kind, error=str(error))
