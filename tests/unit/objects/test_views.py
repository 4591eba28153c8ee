"""The views of Kubernetes objects: what they read, and that no object makes them fail."""

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tailbound import objects
from tailbound.objects.fields import Field, Object
from tailbound.objects.metadata import KubernetesObject
from tailbound.objects.pod import Pod


def views() -> list[type[Any]]:
    modules = [
        importlib.import_module(f"tailbound.objects.{each.name}")
        for each in pkgutil.iter_modules(objects.__path__)
    ]
    found = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    return sorted(filter(is_view, found), key=lambda each: each.__name__)


def is_view(value: type[Any]) -> bool:
    return dataclasses.is_dataclass(value) and [each.name for each in dataclasses.fields(value)][:1] == [
        "raw"
    ]


class Everywhere(dict[str, Any]):
    """An object with the same value in each field."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def get(self, _name: str, _default: Any = None) -> Any:
        return self.value

    def __contains__(self, _name: object) -> bool:
        return True


WRONG: tuple[Any, ...] = (None, 5, "text", True, [1, None, {}], {}, {"type": 3, "name": []}, -1.5)


def properties(view: Any) -> Iterator[Any]:
    for name in dir(type(view)):
        if isinstance(getattr(type(view), name), property | Field):
            value = getattr(view, name)
            yield from value if isinstance(value, Iterator) else (value,)


@pytest.mark.parametrize("view", views(), ids=lambda view: view.__name__)
def test_no_object_makes_a_view_fail(view: type[Any]) -> None:
    nested: list[Object] = [Everywhere(value) for value in WRONG]
    for raw in ({}, *nested, *map(Everywhere, nested), *(Everywhere([each]) for each in nested)):
        for value in properties(view(raw)):
            if dataclasses.is_dataclass(value):
                list(properties(value))


def test_the_owner_that_manages_an_object_is_its_controller() -> None:
    other, owner = {"kind": "Node", "name": "n"}, {"kind": "ReplicaSet", "name": "r", "controller": True}
    found = KubernetesObject({"metadata": {"ownerReferences": [other, owner]}}).controller
    assert found is not None
    assert (found.kind, found.name) == ("ReplicaSet", "r")
    assert KubernetesObject({"metadata": {"ownerReferences": [other]}}).controller is None


def test_a_deletion_has_a_time_and_a_grace_period() -> None:
    ends = {"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 0}
    pod = Pod({"metadata": ends})
    assert (pod.terminating, pod.deletion_grace_period) == (True, timedelta())
    assert pod.deletion_timestamp == datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)
    assert (Pod({}).terminating, Pod({}).deletion_timestamp) == (False, None)


def test_a_condition_that_is_not_reported_is_unknown() -> None:
    reported = {"type": "Ready", "status": "True"}
    pod = Pod({"status": {"conditions": [reported]}})
    assert (pod.ready, pod.condition("PodScheduled").status) == (True, "Unknown")
