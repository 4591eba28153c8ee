"""The price of hardware: what cost is calculated from, and nothing is decided by."""

from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from pydantic import StringConstraints

from tailbound.api.schema import Model, matches


class PriceUnit(StrEnum):
    """What a price is of."""

    DEVICE = "Device"
    CPU = "CPU"
    POD = "Pod"


class Price(Model):
    """What pods of the class cost. Nothing is decided by it: status.hardware.costPerHour of a service is the
    sum over its pods that have a node."""

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
