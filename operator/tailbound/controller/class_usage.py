"""Keeps the status of HardwareClasses: nodes, devices, and who uses them.

All installations of a cluster do, each for its own pods (`reconcile.class_usage`).

Nothing of it is computed when something changes. Once a period all nodes are listed and all known pods are
counted, and a status is written only if it differs.
"""

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final

from tailbound.api.hardwareclass import HardwareClass, HardwareClassStatus
from tailbound.api.names import REVISION_LABEL
from tailbound.api.parsing import InvalidObject, parse
from tailbound.controller.stores import Stores
from tailbound.kube.errors import Conflict, KubeError
from tailbound.kube.objects import Key
from tailbound.kube.protocol import KubeClient
from tailbound.kube.resources import CONTROLLER_REVISIONS, HARDWARE_CLASSES, NODES, PODS
from tailbound.objects.pod import Pod
from tailbound.reconcile.class_usage import PodOfClass, class_status, usage
from tailbound.reconcile.pod_classes import class_of
from tailbound.revisions.record import class_names
from tailbound.telemetry.logs import logger

_LOG = logger(__name__)
PERIOD_SECONDS: Final = 60.0


class ClassUsage:
    """Writes the status of every HardwareClass while this process leads. installation: its name there."""

    def __init__(
        self,
        cluster: KubeClient,
        stores: Stores,
        holds: Callable[[], bool],
        installation: str,
        now: Callable[[], datetime],
    ) -> None:
        self._cluster = cluster
        self._installation = installation
        self._now = now
        self._stores = stores
        self._holds = holds

    async def run(self) -> None:
        """Look once a period, for ever. Errors are logged, and the next round tries again.

        Not at once: a process that has just begun has services to look at.
        """
        while True:
            await asyncio.sleep(PERIOD_SECONDS)
            try:
                await self.look()
            except KubeError as error:
                _LOG.warning("status of hardware classes not written", error=str(error))

    async def look(self) -> None:
        """One round. Raises KubeError."""
        parsed = (parse(HardwareClass, stored) for stored in self._stores.of[HARDWARE_CLASSES])
        classes = [each for each in parsed if not isinstance(each, InvalidObject)]
        if not classes:
            return
        nodes = (await self._cluster.list(NODES)).items
        found = usage(classes, nodes, self._pods())
        for each in classes:
            count = found[each.metadata.name]
            status = class_status(count, self._installation, each.status, self._now())
            if each.status != status:
                await self._write(each.metadata.name, status)

    async def _write(self, name: str, status: HardwareClassStatus) -> None:
        store = self._stores.of[HARDWARE_CLASSES]
        stored = store.get("", name)
        if stored is None or not self._holds():
            return
        document = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        try:
            written = await self._cluster.replace_status(HARDWARE_CLASSES, {**stored, "status": document})
        except Conflict:  # another installation was first: the next round counts what it has written
            return
        store.upsert(written)

    def _pods(self) -> Iterator[PodOfClass]:
        """The pods of revisions. What a pod says of its class counts if its revision has that class: a
        user who may make pods could otherwise fill any class."""
        known: dict[Key, tuple[str, ...]] = {}
        for pod in map(Pod, self._stores.of[PODS]):
            key = (pod.namespace, pod.label(REVISION_LABEL) or "")
            if key not in known:
                known[key] = class_names(self._stores.of[CONTROLLER_REVISIONS].get(*key) or {})
            said = class_of(pod)
            name = next((each for each in known[key] if said in (None, each)), None)
            if name is not None:
                yield PodOfClass(pod, name)
