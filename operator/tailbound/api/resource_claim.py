"""Devices of dynamic resource allocation that a HardwareClass asks for by a claim of its own.

Each pod gets a ResourceClaim of its own, made from a ResourceClaimTemplate with these requests. It says more
than the name of a DeviceClass as a resource does: further CEL selectors, and several kinds in one claim.
"""

from typing import Annotated, Final

from pydantic import Field, StrictInt, StringConstraints

from tailbound.api.meta import DNS_LABEL, ObjectName
from tailbound.api.schema import ATOMIC, Model, Rule, list_map, matches

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
