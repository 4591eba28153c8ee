"""The status of HardwareClasses is written rarely, and concerns no service."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from tailbound.api.names import HARDWARE_CLASS_ANNOTATION, REVISION_LABEL
from tailbound.controller.class_usage import ClassUsage
from tailbound.controller.stores import Stores
from tailbound.kube.objects import Key
from tailbound.kube.protocol import KubeClient, Listing
from tailbound.kube.resources import (
    CONTROLLER_REVISIONS,
    HARDWARE_CLASSES,
    INFERENCE_SERVICES,
    PODS,
    Resource,
)
from tailbound.objects.fields import Object

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NODE = {"metadata": {"name": "n"}, "spec": {}, "status": {"allocatable": {"nvidia.com/gpu": "2"}}}


class _Cluster:
    def __init__(self) -> None:
        self.nodes: list[Object] = [NODE]
        self.written: list[Any] = []

    async def list(self, _resource: Resource) -> Listing:
        return Listing(tuple(self.nodes), "1")

    async def replace_status(self, _resource: Resource, body: Object) -> Object:
        self.written.append(body["status"])
        version = str(10 + len(self.written))
        return {**body, "metadata": {**body["metadata"], "resourceVersion": version}}


def _stored(kind: str, name: str, namespace: str = "", **fields: Any) -> Object:
    metadata = {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "1"}
    return {"apiVersion": "tailbound.dev/v1alpha1", "kind": kind, "metadata": metadata, **fields}


def test_a_status_is_written_when_it_differs_and_looks_at_no_service() -> None:
    seen: list[Key] = []
    stores, cluster = Stores(seen.append), _Cluster()
    stores.of[INFERENCE_SERVICES].upsert(_stored("InferenceService", "churn", "risk", spec={}))
    gpu = _stored("HardwareClass", "gpu", spec={"resources": [{"name": "nvidia.com/gpu", "count": 1}]})
    stores.of[HARDWARE_CLASSES].upsert(gpu)
    seen.clear()
    leads = [True]
    watch = ClassUsage(cast(KubeClient, cluster), stores, lambda: leads[0], "ours/tailbound", lambda: NOW)

    async def rounds() -> None:
        await watch.look()
        await watch.look()
        cluster.nodes.append({**NODE, "metadata": {"name": "m"}})
        leads[0] = False
        await watch.look()
        leads[0] = True
        await watch.look()

    asyncio.run(rounds())
    counted: dict[str, Any] = {"services": 0, "waiting": 0}
    own = {"name": "ours/tailbound", **counted, "devices": 0, "room": 0, "renewedAt": "2026-01-01T00:00:00Z"}
    counted["installations"] = [own]
    assert cluster.written == [
        {"nodes": 1, "devices": 2, "free": 2, "room": 2, **counted},
        {"nodes": 2, "devices": 4, "free": 4, "room": 4, **counted},
    ]
    assert seen == [], "no service is looked at"
    changed = {**gpu, "metadata": {**gpu["metadata"], "resourceVersion": "99"}, "spec": {}}
    stores.of[HARDWARE_CLASSES].upsert(changed)
    assert seen == [("risk", "churn")]


@pytest.mark.parametrize(
    ("label", "said", "counted"),
    [
        ("several", "gpu", ["gpu"]),
        ("several", "cpu", ["cpu"]),
        ("one", None, ["cpu"]),
        ("one", "gpu", []),
        ("none", "gpu", []),
        ("broken", "gpu", []),
    ],
    ids=[
        *("first of several", "second of several", "the only one", "not of its revision"),
        *("no revision", "unreadable revision"),
    ],
)
def test_a_pod_counts_only_for_a_class_of_its_revision(
    label: str, said: str | None, counted: list[str]
) -> None:
    stores = Stores(lambda _: None)
    data = {
        "several": {"hardwareClass": "gpu", "otherClasses": json.dumps([["cpu", "{}"]])},
        "one": {"hardwareClass": "cpu"},
        "broken": {"hardwareClass": "gpu", "otherClasses": "{"},
    }
    for name, each in data.items():
        stores.of[CONTROLLER_REVISIONS].upsert(_stored("ControllerRevision", name, "risk", data=each))
    pod = _stored("Pod", "p", "risk", spec={}, status={"phase": "Pending"})
    pod["metadata"]["labels"] = {REVISION_LABEL: label}
    pod["metadata"]["annotations"] = {} if said is None else {HARDWARE_CLASS_ANNOTATION: said}
    stores.of[PODS].upsert(pod)
    watch = ClassUsage(cast(KubeClient, _Cluster()), stores, lambda: True, "ours/tailbound", lambda: NOW)
    assert [each.hardware_class for each in watch._pods()] == counted
