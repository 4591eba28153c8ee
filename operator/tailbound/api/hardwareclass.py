"""HardwareClass: hardware that services may request, and how the cluster provides it."""

from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AwareDatetime, Field, StrictInt, StringConstraints

from tailbound.api.devices import DEVICE_CLASS_PREFIX, DeviceResource
from tailbound.api.meta import DNS_LABEL, LabelValue, NamespaceName, NodeLabels, ObjectMeta, ObjectName
from tailbound.api.model_size import Bytes
from tailbound.api.schema import ATOMIC, SET, Model, Rule, list_map, matches, unreadable_as

_MOST_DEVICES: Final = 32
"""The most devices that the scheduler allocates to one claim."""

RequestName = Annotated[
    str,
    StringConstraints(max_length=63),
    matches(DNS_LABEL, "'{value}' is not the name of a request: write lower-case letters, digits and dashes"),
]
Expression = Annotated[str, StringConstraints(min_length=1, max_length=10 * 1024)]


class DeviceRequest(Model):
    """Devices of one kind."""

    name: RequestName
    """Name of the request, for example gpu."""

    device_class: ObjectName
    """Name of the DeviceClass."""

    count: Annotated[StrictInt, Field(ge=1, le=_MOST_DEVICES)] = 1
    """Devices per pod."""

    selectors: Annotated[tuple[Expression, ...], Field(max_length=32), ATOMIC] = ()
    """CEL expressions that a device must meet, all of them, beside the selectors of its DeviceClass. For
    example device.attributes["gpu.example.com"].model == "L4"."""


class ResourceClaim(Model):
    """The devices of each pod."""

    rules = (
        Rule(
            cel=f"self.requests.map(r, has(r.count) ? r.count : 1).sum() <= {_MOST_DEVICES}",
            holds=lambda claim: claim.devices <= _MOST_DEVICES,
            message="the requests ask for {value} devices in all, and a claim has at most "
            f"{_MOST_DEVICES}: lower a count",
            value_cel="string(self.requests.map(r, has(r.count) ? r.count : 1).sum())",
            value=lambda claim: claim.devices,
        ),
    )

    requests: Annotated[tuple[DeviceRequest, ...], Field(min_length=1, max_length=8), list_map("name")]
    """The devices, by kind."""

    @property
    def devices(self) -> int:
        """Devices of each pod."""
        return sum(request.count for request in self.requests)


class PriceUnit(StrEnum):
    """The unit that a price is for."""

    DEVICE = "Device"
    CPU = "CPU"
    POD = "Pod"


class Price(Model):
    """The price of pods of the class. Nothing is decided by it: status.hardware.costPerHour of a service is
    the sum over its pods that have a node."""

    per_hour: Annotated[
        str,
        StringConstraints(max_length=16),
        matches(
            r"[0-9]{1,7}(?:\.[0-9]{1,6})?",
            "'{value}' is not a price: write a number of at most six decimals without a currency, in quotes, "
            'for example "1.25"',
        ),
    ]
    """Price of one unit for an hour, for example "1.25". A number without a currency: use the same currency
    in all classes of the cluster."""

    unit: PriceUnit | None = None
    """Device: of one device. CPU: of one CPU that the containers of a pod request. Pod: of a whole pod.
    Default: Device, and CPU for a class without devices."""

    @property
    def amount(self) -> Decimal:
        """The price as a number."""
        return Decimal(self.per_hour)


_Count = Annotated[StrictInt, Field(ge=0)]


class TolerationOperator(StrEnum):
    """How a toleration compares a taint."""

    EXISTS = "Exists"
    EQUAL = "Equal"


class TaintEffect(StrEnum):
    """What a taint does to pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Toleration(Model):
    """A toleration of the serving pods, as in a pod spec."""

    rules = (
        Rule(
            cel="self.operator != 'Exists' || !has(self.value) || self.value == ''",
            holds=lambda t: t.operator is not TolerationOperator.EXISTS or not t.value,
            message="value '{value}' has no effect with operator Exists: remove it, or write operator Equal",
            quoted="value",
        ),
        Rule(
            cel="self.operator == 'Exists' || (has(self.key) && self.key != '')",
            holds=lambda t: t.operator is TolerationOperator.EXISTS or bool(t.key),
            message="operator Equal needs a key: write the key of the taint, or operator Exists to tolerate "
            "every taint",
        ),
        Rule(
            cel="!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            holds=lambda t: t.toleration_seconds is None or t.effect is TaintEffect.NO_EXECUTE,
            message="tolerationSeconds needs effect NoExecute: remove it, or set the effect",
        ),
    )

    key: Annotated[str, StringConstraints(max_length=317)] | None = None
    """Key of the taint; absent with operator Exists means every taint."""

    operator: TolerationOperator = TolerationOperator.EQUAL
    """Exists: any value. Equal: exactly `value`."""

    value: LabelValue | None = None
    """Value of the taint."""

    effect: TaintEffect | None = None
    """Effect of the taint; absent means every effect."""

    toleration_seconds: Annotated[StrictInt, Field(ge=0, le=86400)] | None = None
    """Seconds that the pod stays on a node that gets the taint; absent means forever."""


class HardwareClassSpec(Model):
    """The hardware of this class, and how pods are scheduled to it."""

    rules = (
        Rule(
            cel="!has(self.deviceMemory) || has(self.resourceClaim) "
            "|| has(self.resources) && self.resources.size() > 0",
            holds=lambda spec: (
                spec.device_memory is None or spec.resource_claim is not None or bool(spec.resources)
            ),
            message="deviceMemory is {value}, and the pods of this class have no devices: add resources or "
            "resourceClaim, or remove deviceMemory",
            quoted="device_memory",
        ),
        Rule(
            cel="!has(self.price) || !has(self.price.unit) || self.price.unit != 'Device' "
            "|| has(self.resourceClaim) || has(self.resources) && self.resources.size() > 0",
            holds=lambda spec: (
                spec.price is None
                or spec.price.unit is not PriceUnit.DEVICE
                or spec.resource_claim is not None
                or bool(spec.resources)
            ),
            message="price.unit is Device, and the pods of this class have no devices: write CPU or Pod",
        ),
    )

    resources: Annotated[tuple[DeviceResource, ...], Field(max_length=8), list_map("name")] = ()
    """Devices of each pod. Empty for a class of nodes without devices."""

    resource_claim: ResourceClaim | None = None
    """Devices of each pod by a claim of its own, for dynamic resource allocation with CEL selectors. Needs
    Kubernetes 1.34 or newer."""

    device_memory: Bytes | None = None
    """Memory of each device, for example 40Gi; the share of a pod where a device is shared. A service whose
    model.size exceeds that of all devices of a pod is refused. Default: unknown, and nothing is refused."""

    price: Price | None = None
    """What the hardware costs, for the cost of services in their status and as a metric. Default: unknown."""

    node_selector: NodeLabels = Field(default_factory=dict)
    """Labels that the node must carry."""

    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=32), ATOMIC] = ()
    """Taints that serving pods tolerate."""

    runtime_class_name: ObjectName | None = None
    """RuntimeClass of the pods, for example nvidia."""

    priority_class_name: ObjectName | None = None
    """PriorityClass of the pods."""

    allowed_namespaces: Annotated[tuple[NamespaceName, ...], Field(max_length=256), SET] = ()
    """Namespaces whose services may use this class. Empty means all."""

    @property
    def devices(self) -> int:
        """Devices of each pod."""
        claimed = self.resource_claim.devices if self.resource_claim is not None else 0
        return claimed + sum(resource.devices for resource in self.resources)

    @property
    def device_classes(self) -> tuple[str, ...]:
        """The names of the DeviceClasses that its pods need."""
        named = (each.name for each in self.resources if each.name.startswith(DEVICE_CLASS_PREFIX))
        claimed = self.resource_claim.requests if self.resource_claim is not None else ()
        return (
            *(name.removeprefix(DEVICE_CLASS_PREFIX) for name in named),
            *(request.device_class for request in claimed),
        )

    def allows(self, namespace: str) -> bool:
        """Whether services of this namespace may use the class."""
        return not self.allowed_namespaces or namespace in self.allowed_namespaces


class InstallationUsage(Model):
    """What the pods of one installation of Tailbound use of the class."""

    name: Annotated[str, StringConstraints(max_length=320)]
    """Namespace and release of the installation."""

    services: _Count
    """InferenceServices of it with pods of the class."""

    waiting: _Count
    """Pods of these that have no node yet."""

    devices: _Count | None = None
    """Devices of the class's nodes that its pods have been given; absent for a class without devices."""

    room: _Count | None = None
    """Pods of the class that would fit in place of its pods; absent where they are not counted."""

    renewed_at: AwareDatetime
    """When the installation last renewed this entry, which it does each hour. An entry counts no longer if it
    is three hours old, or three hours ahead of the clock of another installation."""


class HardwareClassStatus(Model):
    """What the class has and who uses it, as it was counted within the last minutes. With several
    installations of Tailbound these are the sums over all of them."""

    nodes: _Count | None = None
    """Nodes that pods of the class can be scheduled to."""

    devices: _Count | None = None
    """Devices of these nodes; absent for a class without devices."""

    free: _Count | None = None
    """Devices that no pod of Tailbound has been given. Pods of others are not counted."""

    room: _Count | None = None
    """Further pods of the class for which nodes have devices that no pod of Tailbound has been given; absent
    where they are not counted: without resources, and for devices of a DeviceClass."""

    services: _Count | None = None
    """InferenceServices with pods of the class."""

    waiting: _Count | None = None
    """Pods of the class that have no node yet."""

    installations: Annotated[tuple[InstallationUsage, ...], Field(max_length=64), list_map("name")] = ()
    """What the pods of each installation of Tailbound use."""


class HardwareClass(Model):
    """HardwareClass names hardware that services may ask for, and hides how the cluster provides it."""

    metadata: ObjectMeta
    spec: HardwareClassSpec
    status: Annotated[HardwareClassStatus, unreadable_as(HardwareClassStatus)] = HardwareClassStatus()
