"""What a HardwareClass has, and who uses it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tailbound.api.hardwareclass import HardwareClass, HardwareClassStatus
from tailbound.objects.pod import Pod
from tailbound.reconcile.class_usage import ClassCount, PodOfClass, class_status, usage

from tests.support.simulated.objects import hardware_class

GPU = "nvidia.com/gpu"
TAINT = {"key": GPU, "effect": "NoSchedule", "value": "present"}


def node(name: str, gpus: int = 0, *taints: dict[str, str], **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": {"cpu": "4", **({GPU: str(gpus)} if gpus else {})}},
    }


NODES = (
    node("plain"),
    node("two", 2, kind="l4"),
    node("four", 4, TAINT, kind="l4"),
    node("soft", 1, {"key": "a", "effect": "PreferNoSchedule"}),
    {**node("cordoned", 8), "spec": {"unschedulable": True}},
)


def gpu_class(**fields: Any) -> dict[str, Any]:
    return {"resources": [{"name": GPU, "count": 1}, {"name": "nvidia.com/gpumem", "count": 8000}], **fields}


FITTING: dict[str, tuple[dict[str, Any], tuple[int, int | None]]] = {
    "no-devices": ({}, (3, None)),
    "not-tainted": (gpu_class(), (2, 3)),
    "labels": (gpu_class(nodeSelector={"kind": "l4"}), (1, 2)),
    "tolerates-every-value": (gpu_class(tolerations=[{"key": GPU, "operator": "Exists"}]), (3, 7)),
    "tolerates-this-value": (gpu_class(tolerations=[{"key": GPU, "value": "present"}]), (3, 7)),
    "tolerates-another-value": (gpu_class(tolerations=[{"key": GPU, "value": "x"}]), (2, 3)),
    "tolerates-another-effect": (
        gpu_class(tolerations=[{"key": GPU, "operator": "Exists", "effect": "NoExecute"}]),
        (2, 3),
    ),
    "tolerates-all": (gpu_class(tolerations=[{"operator": "Exists"}]), (3, 7)),
    "device-class": (
        {"resources": [{"name": "deviceclass.resource.kubernetes.io/gpu.example.com", "count": 1}]},
        (3, None),
    ),
    "absent-device": ({"resources": [{"name": "a.b/c", "count": 1}]}, (0, 0)),
}


@pytest.mark.parametrize(("fields", "wanted"), FITTING.values(), ids=FITTING)
def test_nodes_and_devices_by_table(fields: dict[str, Any], wanted: tuple[int, int | None]) -> None:
    made = HardwareClass.model_validate(hardware_class("a", **fields))
    found = usage([made], NODES, [])["a"]
    assert (found.nodes, found.devices) == wanted
    assert found.held == (None if found.devices is None else 0)
    assert found.room == (None if found.devices is None else found.devices)


def test_room_is_what_single_nodes_have() -> None:
    made = HardwareClass.model_validate(hardware_class("a", resources=[{"name": GPU, "count": 2}]))
    assert usage([made], (*NODES[:2], node("three", 3), node("one", 1)), [])["a"].room == 2
    claiming: dict[str, Any] = {
        "resourceClaim": {"requests": [{"name": "gpu", "deviceClass": "gpu.example.com"}]}
    }
    claimed = HardwareClass.model_validate(hardware_class("b", **claiming))
    assert usage([claimed], NODES, [])["b"].room is None


def pod(service: str, where: str | None, gpus: int, phase: str = "Running") -> PodOfClass:
    raw = {
        "metadata": {"namespace": "risk", "name": "p", "labels": {"tailbound.dev/service": service}},
        "spec": {
            "nodeName": where or "",
            "containers": [{"resources": {"limits": {"cpu": "1", GPU: str(gpus)}}}, {}],
        },
        "status": {"phase": phase},
    }
    return PodOfClass(Pod(raw), "a")


def test_pods_hold_devices_on_their_nodes_and_wait_without_one() -> None:
    made = HardwareClass.model_validate(hardware_class("a", **gpu_class()))
    other = HardwareClass.model_validate(hardware_class("b", **gpu_class()))
    pods = [
        pod("churn", "two", 1),
        pod("churn", "four", 4),
        pod("fraud", None, 1, "Pending"),
        pod("old", "soft", 1, "Failed"),
    ]
    found = usage([made, other], NODES, pods)
    assert found["a"] == ClassCount(nodes=2, devices=3, room=3, services=2, waiting=1, held=1, taken=1)
    assert found["b"] == ClassCount(nodes=2, devices=3, room=3, services=0, waiting=0, held=1, taken=1)


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_installations_that_see_other_pods_write_the_same_sums() -> None:
    made = HardwareClass.model_validate(hardware_class("a", **gpu_class()))
    ours = usage([made], NODES, [pod("churn", "two", 1), pod("fraud", None, 1, "Pending")])["a"]
    theirs = usage([made], NODES, [pod("churn", "two", 1), pod("late", "soft", 1)])["a"]
    status = class_status(ours, "ours", HardwareClassStatus(), NOW)
    assert (status.free, status.room, status.services, status.waiting) == (2, 2, 2, 1)
    status = class_status(theirs, "theirs", status, NOW)
    assert (status.free, status.room, status.services, status.waiting) == (0, 0, 4, 1)
    for hour in (0.0, 0.9):
        later = NOW + timedelta(hours=hour)
        assert (
            class_status(ours, "ours", status, later)
            == class_status(theirs, "theirs", status, later)
            == status
        )
    renewed = class_status(ours, "ours", status, NOW + timedelta(hours=2))
    assert renewed.free == status.free
    alone = class_status(ours, "ours", renewed, NOW + timedelta(hours=3))
    assert (alone.free, [each.name for each in alone.installations]) == (2, ["ours"])


def test_an_entry_of_the_future_is_renewed_and_that_of_another_ends() -> None:
    made = HardwareClass.model_validate(hardware_class("a"))
    count = usage([made], NODES, [])["a"]
    status = class_status(count, "ours", HardwareClassStatus(), NOW + timedelta(days=9))
    assert class_status(count, "ours", status, NOW).installations[0].renewed_at == NOW
    assert [each.name for each in class_status(count, "theirs", status, NOW).installations] == ["theirs"]
