"""Who follows which kind: each is listed once by the one that watches it, and nothing is decided before."""

import ast
import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
import tailbound.controller.pump
from tailbound.api.names import SERVICE_LABEL
from tailbound.controller.informers import ServiceInformers
from tailbound.controller.resync import Resync
from tailbound.controller.stores import OF_EACH_SERVICE, OPTIONAL, SELECTORS, SHARED, Stores
from tailbound.kube.errors import NotServed, Transient
from tailbound.kube.informer import Informer
from tailbound.kube.protocol import KubeClient, Listing, WatchEvent
from tailbound.kube.resources import (
    DEVICE_CLASSES,
    HARDWARE_CLASSES,
    INFERENCE_SERVICES,
    PODS,
    SERVING_RUNTIMES,
    Resource,
)
from tailbound.kube.store import ObjectStore
from tailbound.objects.fields import Object

from tests.support.tasks import beside

NAMESPACES = ("ads", "risk")


def child(resource: Resource, namespace: str) -> dict[str, Any]:
    meta = {
        "namespace": namespace,
        "name": "a",
        "uid": f"{resource.kind}-{namespace}",
        "resourceVersion": "5",
    }
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}


@dataclass
class Api:
    """Lists one object of each kind and namespace that belongs to a service, and counts."""

    lists: Counter[tuple[Resource, str | None]] = field(default_factory=Counter)
    failures: int = 0
    failure: Exception = field(default_factory=lambda: Transient("the API server is away"))
    watched: list[tuple[Resource, str]] = field(default_factory=list)

    async def list(
        self, resource: Resource, namespace: str | None = None, label_selector: str = "", **_: Any
    ) -> Listing:
        self.lists[resource, namespace] += 1
        if self.failures:
            self.failures -= 1
            raise self.failure
        assert label_selector == SELECTORS.get(resource, "")
        there = resource in OF_EACH_SERVICE and namespace is not None
        return Listing((child(resource, str(namespace)),) if there else (), "9")

    async def pages(
        self, resource: Resource, namespace: str | None = None, label_selector: str = "", **_: Any
    ) -> AsyncIterator[Listing]:
        yield await self.list(resource, namespace, label_selector)

    async def watch(
        self, resource: Resource, resource_version: str, *_: Any, **__: Any
    ) -> AsyncIterator[WatchEvent]:
        self.watched.append((resource, resource_version))
        await asyncio.Event().wait()
        yield WatchEvent("BOOKMARK", {})


async def test_a_service_and_its_children_are_listed_once_in_each_namespace_and_watched_from_there() -> None:
    api, stores, heard = Api(), Stores(lambda _: None), list[tuple[Resource, int]]()
    informers = ServiceInformers(
        cast(KubeClient, api), stores, NAMESPACES, lambda resource, lost: heard.append((resource, lost))
    )
    async with beside(informers.run()):
        await informers.synced()
        for _ in range(3):
            await asyncio.sleep(0)
    of_services: dict[tuple[Resource, str | None], int] = {
        (resource, each): 1 for resource in OF_EACH_SERVICE for each in NAMESPACES
    }
    assert api.lists == {**of_services, (DEVICE_CLASSES, None): 1}
    watched = [*OF_EACH_SERVICE, *OF_EACH_SERVICE, DEVICE_CLASSES]
    assert sorted(api.watched, key=str) == sorted([(each, "9") for each in watched], key=str)
    assert all(len(stores.of[resource]) == len(NAMESPACES) for resource in OF_EACH_SERVICE)
    assert set(heard) == {(resource, 0) for resource in (*OF_EACH_SERVICE, DEVICE_CLASSES)}
    assert all(stores.serves(resource) for resource in OPTIONAL)


async def test_kinds_that_an_older_api_server_lacks_hold_nothing_up_and_are_found_after_an_upgrade() -> None:
    told = list[object]()
    stores, store = Stores(told.append), ObjectStore()
    stores.of[INFERENCE_SERVICES].upsert(child(INFERENCE_SERVICES, "risk"))
    told.clear()
    api = Api(failures=1, failure=NotServed("404"))
    informer = Informer(
        cast(KubeClient, api),
        DEVICE_CLASSES,
        store,
        relist_seconds=0.01,
        on_served=lambda served: stores.heard_whether_served(DEVICE_CLASSES, served),
        on_error=lambda error: pytest.fail(str(error)),
    )
    running = asyncio.create_task(informer.run())
    await informer.synced.wait()
    assert not stores.serves(DEVICE_CLASSES)
    await asyncio.sleep(0.1)
    running.cancel()
    assert api.watched
    assert stores.serves(DEVICE_CLASSES)
    assert told == [("risk", "a")], "services are decided on once more"


async def test_what_services_share_is_listed_before_the_first_decision() -> None:
    api = Api(failures=2)
    resync = Resync(cast(KubeClient, api), Stores(lambda _: None), NAMESPACES, lambda *_: None, lambda: -0.5)
    await resync.first()
    listed = {resource for resource, _ in api.lists}
    assert listed == set(SHARED)


def test_a_child_concerns_a_service_that_is_there() -> None:
    told = list[tuple[str, str]]()
    stores = Stores(told.append)
    pod = child(PODS, "risk")
    pod["metadata"]["labels"] = {SERVICE_LABEL: "a"}
    stores.of[PODS].upsert(pod)
    assert told == []
    stores.of[INFERENCE_SERVICES].upsert(child(INFERENCE_SERVICES, "risk"))
    stores.of[PODS].remove(pod)
    assert told == [("risk", "a")] * 2


async def test_what_a_watch_has_lost_is_found_and_counted() -> None:
    stores, heard = Stores(lambda _: None), dict[Resource, int]()
    ghost: Object = child(SERVING_RUNTIMES, "risk")
    stores.of[SERVING_RUNTIMES].upsert(ghost)
    resync = Resync(
        cast(KubeClient, Api()), stores, NAMESPACES, lambda resource, lost: heard.update({resource: lost})
    )
    await resync.once()
    assert heard == {each: int(each is SERVING_RUNTIMES) for each in SHARED}
    assert stores.runtimes("risk") == {}


def test_a_cluster_wide_kind_is_arranged_by_name_once_for_each_of_its_changes() -> None:
    stores = Stores(lambda _: None)
    classes = stores.of[HARDWARE_CLASSES]
    assert stores.cluster_wide(HARDWARE_CLASSES) == {}
    first = child(HARDWARE_CLASSES, "")
    classes.upsert(first)
    before = stores.cluster_wide(HARDWARE_CLASSES)
    assert before == {"a": first}
    assert stores.cluster_wide(HARDWARE_CLASSES) is before
    newer = {**first, "metadata": {**first["metadata"], "resourceVersion": "6"}}
    classes.upsert(newer)
    assert stores.cluster_wide(HARDWARE_CLASSES) == {"a": newer}
    assert before == {"a": first}
    classes.remove(newer)
    assert stores.cluster_wide(HARDWARE_CLASSES) == {}


def test_no_private_module_of_kopf_is_imported() -> None:
    text = Path(tailbound.controller.pump.__file__).read_text()
    names = [
        name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [getattr(node, "module", None) or "", *(each.name for each in node.names)]
    ]
    assert [name for name in names if name.startswith("kopf")] == ["kopf"]
