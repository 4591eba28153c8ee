"""Devices that a HardwareClass gives to each pod: extended resources of the nodes, by name.

Some plugins offer a part of a device by a second resource, as `nvidia.com/gpumem: 8000` beside
`nvidia.com/gpu: 1`. Such a resource is an amount and no device: `_AMOUNTS` knows these names. MIG profiles,
time-sliced GPUs, and the devices of AMD, Intel, Google, AWS and others count as one device each.

Devices of dynamic resource allocation have the name of their DeviceClass behind `DEVICE_CLASS_PREFIX`: the
scheduler makes the claim of a pod from that class, with its CEL selectors and the number of devices that the
pod asks for. (In Kubernetes 1.37, and 1.36 by default; older schedulers find no node for such a pod.)
"""

import re
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, StrictInt, StringConstraints

from tailbound.api.meta import DNS_LABEL, NAME_PART
from tailbound.api.schema import InOrder, Model, Rule, cel_string, matches

DEVICE_CLASS_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
MOST_DEVICES: Final = 1024
"""The most devices of one kind in a pod."""
_MOST_UNITS: Final = 10**15

_AMOUNTS: Final = "|".join(
    (
        # Memory and percent of cores: HAMi, Volcano, Alibaba, Tencent, Koordinator, Intel, Huawei, Cambricon.
        r".*[-_./](?:gpu|dcu|v|vgpu)?(?:mem|memory|cores?|millicores|percentage|ratio)"
        r"(?:[-.](?:max|percentage|ratio))?",
        r"nvidia\.com/priority",
        r"gpu\.intel\.com/.*_monitoring",
        # Network cards that go with devices.
        r"vpc\.amazonaws\.com/efa",
        r"nvidia\.com/(?:hostdev|rdma.*|.*_sriov.*|.*roce.*)",
    )
)
_IS_AMOUNT: Final = re.compile(_AMOUNTS, re.IGNORECASE)
_AMOUNT_CEL: Final = (
    f"!self.name.startsWith('{DEVICE_CLASS_PREFIX}') && self.name.matches({cel_string(f'^(?i:{_AMOUNTS})$')})"
)


def _is_amount(name: str) -> bool:
    return not name.startswith(DEVICE_CLASS_PREFIX) and _IS_AMOUNT.fullmatch(name) is not None


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
            cel=f"self.startsWith('{DEVICE_CLASS_PREFIX}') "
            "|| !self.contains('kubernetes.io/') && !self.startsWith('requests.')",
            holds=lambda name: (
                name.startswith(DEVICE_CLASS_PREFIX)
                or ("kubernetes.io/" not in name and not name.startswith("requests."))
            ),
            message="'{value}' is a name of Kubernetes itself: name the resource that a device plugin "
            f"offers, for example nvidia.com/gpu, or {DEVICE_CLASS_PREFIX} and a DeviceClass",
        ),
    ),
]


class DeviceUnit(StrEnum):
    """What a resource counts."""

    DEVICE = "Device"
    OTHER = "Other"


class DeviceResource(Model):
    """Devices that each serving pod gets, as an extended resource of the node."""

    rules = (
        Rule(
            cel=f"self.count <= {MOST_DEVICES} || has(self.unit) && self.unit == 'Other' "
            f"|| !has(self.unit) && {_AMOUNT_CEL}",
            holds=lambda device: device.count <= MOST_DEVICES or device.devices == 0,
            message=f"count is {{value}}, and a pod has at most {MOST_DEVICES} devices of a kind: lower it, "
            "or write unit Other if this resource counts no devices, but for example memory",
            quoted="count",
        ),
    )

    name: DeviceName
    """Name of the extended resource, for example nvidia.com/gpu; for dynamic resource allocation
    deviceclass.resource.kubernetes.io/ and the name of a DeviceClass."""

    count: Annotated[StrictInt, Field(ge=1, le=_MOST_UNITS)]
    """Units of it per pod."""

    unit: DeviceUnit | None = None
    """Device: it counts devices, whose number runtimes know as hardware.devices. Other: it counts for
    example the memory or the percent of the cores of a shared device, or network cards. Default: Other for
    the known names of this kind, as nvidia.com/gpumem, nvidia.com/gpucores and vpc.amazonaws.com/efa, and
    Device for all others."""

    @property
    def devices(self) -> int:
        """Devices per pod; 0 for a resource that counts something else."""
        unit = self.unit or (DeviceUnit.OTHER if _is_amount(self.name) else DeviceUnit.DEVICE)
        return self.count if unit is DeviceUnit.DEVICE else 0
