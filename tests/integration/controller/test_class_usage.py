"""The status of a HardwareClass with two installations in one cluster, against a real API server."""

from datetime import UTC, datetime
from typing import Any

from tailbound.controller.class_usage import ClassUsage
from tailbound.controller.stores import Stores
from tailbound.kube.resources import CONTROLLER_REVISIONS, HARDWARE_CLASSES, NODES, PODS
from tailbound.objects.fields import Object

from tests.integration.controller.environment import Environment
from tests.integration.controller.test_claims import existing

DEVICE = "gpu.example.com/installations"


class Installation:
    """One operator's count, and the pods that it sees."""

    def __init__(self, environment: Environment, name: str, hardware_class: str, pods: int) -> None:
        self._cluster, self._class = environment.cluster, hardware_class
        self.stores = Stores(lambda _: None)
        now = datetime(2026, 1, 1, tzinfo=UTC)
        self._usage = ClassUsage(environment.cluster, self.stores, lambda: True, name, lambda: now)
        self.stores.of[CONTROLLER_REVISIONS].upsert(_revision(name, hardware_class))
        for number in range(pods):
            self.stores.of[PODS].upsert(_pod(name, str(number), hardware_class))

    async def watch(self) -> None:
        """Get the class as the API server has it."""
        stored = await self._cluster.get(HARDWARE_CLASSES, None, self._class)
        assert stored is not None
        self.stores.of[HARDWARE_CLASSES].upsert(stored)

    async def look(self) -> Any:
        """Count once; the class as it is then."""
        await self._usage.look()
        return await self._cluster.get(HARDWARE_CLASSES, None, self._class)


def _revision(namespace: str, hardware_class: str) -> Object:
    return {
        "metadata": {
            "name": "r1",
            "namespace": namespace,
            "uid": f"{namespace}/r1",
            "resourceVersion": "1",
            "labels": {"tailbound.dev/service": "r"},
        },
        "data": {"hardwareClass": hardware_class},
    }


def _pod(namespace: str, name: str, hardware_class: str) -> Object:
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"{namespace}/{name}",
            "resourceVersion": "1",
            "labels": {"tailbound.dev/service": name, "tailbound.dev/revision": "r1"},
            "annotations": {"tailbound.dev/hardware-class": hardware_class},
        },
        "spec": {"nodeName": hardware_class, "containers": [{"resources": {"limits": {DEVICE: "1"}}}]},
    }


async def test_two_installations_write_the_same_sums_and_then_nothing(environment: Environment) -> None:
    name = f"usage-{environment.namespace}"
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {DEVICE: "8"}},
    }
    await environment.cluster.insert(NODES, node)
    spec = {"resources": [{"name": DEVICE, "count": 1}], "tolerations": [{"operator": "Exists"}]}
    async with existing(environment, HARDWARE_CLASSES, name, spec):
        first, second = Installation(environment, "a", name, 3), Installation(environment, "b", name, 2)
        for each in (first, second):
            await each.watch()
        await first.look()
        refused = await second.look()  # it has not heard of the first one's write, and overwrites nothing
        assert [each["name"] for each in refused["status"]["installations"]] == ["a"]
        await second.watch()
        written = await second.look()
        sums = {key: written["status"][key] for key in ("devices", "free", "room", "services", "waiting")}
        assert sums == {"devices": 8, "free": 3, "room": 3, "services": 5, "waiting": 0}
        for each in (first, second) * 2:
            await each.watch()
            assert await each.look() == written
