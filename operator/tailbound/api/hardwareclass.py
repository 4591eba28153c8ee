"""HardwareClass: what a team may ask for, and how the cluster gives it."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StrictInt, StringConstraints

from tailbound.api.meta import (
    DNS_LABEL,
    NAME_PART,
    LabelValue,
    NamespaceName,
    NodeLabels,
    ObjectMeta,
    ObjectName,
)
from tailbound.api.names import DEFAULT_CLASS_ANNOTATION
from tailbound.api.schema import ATOMIC, SET, InOrder, Model, Rule, list_map, matches

DeviceName = Annotated[
    str,
    StringConstraints(max_length=317),
    InOrder(
        matches(
            rf"(?:{DNS_LABEL}\.)+{DNS_LABEL}/{NAME_PART}",
            "'{value}' is not the name of a device resource: write DOMAIN/NAME, for example nvidia.com/gpu; "
            "cpu and memory belong to spec.resources of the InferenceService",
        ),
        Rule(
            cel="!self.contains('kubernetes.io/') && !self.startsWith('requests.')",
            holds=lambda name: "kubernetes.io/" not in name and not name.startswith("requests."),
            message="'{value}' is a name of Kubernetes itself: name the resource that a device plugin "
            "offers, for example nvidia.com/gpu",
        ),
    ),
]


class DeviceResource(Model):
    """Devices that each serving pod gets, as an extended resource of the node."""

    name: DeviceName
    """Name of the extended resource, for example nvidia.com/gpu."""

    count: Annotated[StrictInt, Field(ge=1, le=1024)]
    """Devices per pod."""


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
    """Lets serving pods onto nodes with a matching taint, as in a pod."""

    rules = (
        Rule(
            cel="self.operator != 'Exists' || !has(self.value) || self.value == ''",
            holds=lambda t: t.operator is not TolerationOperator.EXISTS or not t.value,
            message="value '{value}' has no meaning with operator Exists: remove it, or write operator Equal",
            value_cel="self.value",
            value=lambda t: t.value,
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
    """How serving pods of this class get their hardware."""

    resources: Annotated[tuple[DeviceResource, ...], Field(max_length=8), list_map("name")] = ()
    """Devices per pod. None for a class of plain nodes."""

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

    def allows(self, namespace: str) -> bool:
        """Whether services of this namespace may use the class."""
        return not self.allowed_namespaces or namespace in self.allowed_namespaces


class HardwareClass(Model):
    """HardwareClass names hardware that services may ask for, and hides how the cluster provides it."""

    metadata: ObjectMeta
    spec: HardwareClassSpec

    @property
    def is_default(self) -> bool:
        """Whether services that name no class get this one."""
        return self.metadata.annotations.get(DEFAULT_CLASS_ANNOTATION) == "true"
