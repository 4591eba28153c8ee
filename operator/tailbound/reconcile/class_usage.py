"""The nodes and devices of each HardwareClass, their use by pods of this installation, and its status. Pure.

A node counts for a class if it can be scheduled to, has the labels of nodeSelector, no taint that the class
does not tolerate, and at least one of the devices. What other pods of the cluster hold is not seen. Devices
of a DeviceClass are not counted: no node reports them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from tailbound.api.devices import DEVICE_CLASS_PREFIX, DeviceResource
from tailbound.api.hardwareclass import (
    HardwareClass,
    HardwareClassSpec,
    HardwareClassStatus,
    InstallationUsage,
    TaintEffect,
    Toleration,
    TolerationOperator,
)
from tailbound.api.names import SERVICE_LABEL
from tailbound.api.quantities import Quantity
from tailbound.objects.fields import Object, child, children, flag, text
from tailbound.objects.metadata import KubernetesObject
from tailbound.objects.pod import Pod

_REPELS: Final = frozenset({TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE})


@dataclass
class _Tally:
    services: set[tuple[str, str]] = field(default_factory=set)
    waiting: int = 0


@dataclass(frozen=True)
class ClassCount:
    """A class: what its nodes have, and what the known pods use.

    devices, room: None for a class without devices, and where they are not counted; held, taken as well.
    """

    nodes: int
    devices: int | None
    """The devices of these nodes."""
    room: int | None
    """Pods of the class for which the nodes have devices."""
    services: int
    waiting: int
    """Pods without a node."""
    held: int | None
    """Devices that pods have been given, those of other classes as well."""
    taken: int | None
    """Pods of the class for which the known pods leave no devices."""


@dataclass(frozen=True)
class PodOfClass:
    """A pod, and the class that it is for."""

    pod: Pod
    hardware_class: str


def usage(
    classes: Iterable[HardwareClass], nodes: Iterable[Object], pods: Iterable[PodOfClass]
) -> Mapping[str, ClassCount]:
    """The count of each class."""
    held: Counter[tuple[str, str]] = Counter()
    tallies: dict[str, _Tally] = {}
    for each in pods:
        if each.pod.finished:
            continue
        tally = tallies.setdefault(each.hardware_class, _Tally())
        tally.services.add((each.pod.namespace, each.pod.label(SERVICE_LABEL) or ""))
        node = text(child(each.pod.raw, "spec"), "nodeName")
        tally.waiting += not node
        held.update({(node, name): amount for name, amount in _devices_of(each.pod) if node})
    known = tuple(nodes)
    return {
        each.metadata.name: _count(each.spec, known, held, tallies.get(each.metadata.name, _Tally()))
        for each in classes
    }


def _count(
    spec: HardwareClassSpec, nodes: Iterable[Object], held: Mapping[tuple[str, str], int], tally: _Tally
) -> ClassCount:
    names = (each.name for each in spec.resources if each.devices)
    needed = {each.name: each for each in spec.resources}
    countable = bool(needed) and not spec.device_classes
    device = next((name for name in names if not name.startswith(DEVICE_CLASS_PREFIX)), None)
    fitting = [node for node in nodes if _fits(spec, node) and (device is None or _amount(node, device))]
    devices = in_use = None
    if device is not None:
        devices = sum(_amount(node, device) for node in fitting)
        in_use = sum(held.get((KubernetesObject(node).name, device), 0) for node in fitting)
    room = sum(_room(node, needed, {}) for node in fitting) if countable else None
    left = sum(_room(node, needed, held) for node in fitting)
    return ClassCount(
        nodes=len(fitting),
        devices=devices,
        room=room,
        services=len(tally.services),
        waiting=tally.waiting,
        held=in_use,
        taken=None if room is None else room - left,
    )


def _room(node: Object, needed: Mapping[str, DeviceResource], held: Mapping[tuple[str, str], int]) -> int:
    """The number of further pods for which the node has devices. Other amounts count if it has them."""
    name, reported = KubernetesObject(node).name, child(node, "status", "allocatable")
    counted = [each for each in needed.values() if each.devices or each.name in reported]
    left = ((_amount(node, each.name) - held.get((name, each.name), 0)) // each.count for each in counted)
    return max(min(left, default=0), 0)


def _fits(spec: HardwareClassSpec, node: Object) -> bool:
    wanted, labels = spec.node_selector, KubernetesObject(node).labels
    if flag(child(node, "spec"), "unschedulable") or any(labels.get(k) != v for k, v in wanted.items()):
        return False
    taints = children(child(node, "spec"), "taints")
    return all(_tolerated(taint, spec.tolerations) for taint in taints if text(taint, "effect") in _REPELS)


def _tolerated(taint: Object, tolerations: Iterable[Toleration]) -> bool:
    return any(
        (each.effect is None or each.effect == text(taint, "effect"))
        and (not each.key or each.key == text(taint, "key"))
        and (each.operator is TolerationOperator.EXISTS or (each.value or "") == text(taint, "value"))
        for each in tolerations
    )


def _amount(node: Object, resource: str) -> int:
    """Units of a resource that the node offers to pods; 0 for what cannot be read."""
    return _number(child(node, "status", "allocatable").get(resource))


def _devices_of(pod: Pod) -> Iterable[tuple[str, int]]:
    for container in children(child(pod.raw, "spec"), "containers"):
        for name, amount in child(container, "resources", "limits").items():
            if "/" in name:
                yield name, _number(amount)


def _number(amount: object) -> int:
    try:
        return Quantity.parse(str(amount)).ceil()
    except ValueError:
        return 0


_RENEWED_EACH: Final = timedelta(hours=1)
_GONE_AFTER: Final = timedelta(hours=3)


def class_status(
    count: ClassCount, installation: str, stored: HardwareClassStatus, now: datetime
) -> HardwareClassStatus:
    """The status of the class, which all installations of a cluster write together.

    count: what this installation sees; stored: as the last writer left it. Nodes and their devices are the
    same for all. Pods are not: an installation sees those of its own namespaces only, and writes what they
    have in an entry of its own. The sums are over all entries, so that each writer writes the same ones. An
    installation renews its entry each hour; one that was not renewed for three hours is of an installation
    that is gone. So is one that is as far in the future: a clock was wrong, and it would stay for good.
    """
    entries = {
        each.name: each
        for each in stored.installations
        if each.name != installation and abs(now - each.renewed_at) < _GONE_AFTER
    }
    before = next((each for each in stored.installations if each.name == installation), None)
    entries[installation] = _entry(count, installation, before, now)
    installations = tuple(entries[name] for name in sorted(entries))
    return HardwareClassStatus(
        nodes=count.nodes,
        devices=count.devices,
        free=_left(count.devices, [each.devices for each in installations]),
        room=_left(count.room, [each.room for each in installations]),
        services=sum(each.services for each in installations),
        waiting=sum(each.waiting for each in installations),
        installations=installations,
    )


def _entry(
    count: ClassCount, installation: str, before: InstallationUsage | None, now: datetime
) -> InstallationUsage:
    young = before is not None and timedelta() <= now - before.renewed_at < _RENEWED_EACH
    return InstallationUsage(
        name=installation,
        services=count.services,
        waiting=count.waiting,
        devices=count.held,
        room=count.taken,
        renewed_at=before.renewed_at if before is not None and young else now.replace(microsecond=0),
    )


def _left(whole: int | None, taken: list[int | None]) -> int | None:
    """Devices that the installations leave; None where they are not counted."""
    return None if whole is None else max(whole - sum(filter(None, taken)), 0)
