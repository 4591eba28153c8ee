"""The memory that a model needs on devices, as its owner declares it."""

from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Final

from pydantic import StringConstraints

from tailbound.api.quantities import Quantity
from tailbound.api.quantity_fields import quantity_between
from tailbound.api.schema import Model, Rule, matches

_POWERS: Final = {"K": 3, "M": 6, "B": 9, "T": 12}

ParameterCount = Annotated[
    str,
    StringConstraints(max_length=12),
    matches(
        r"[0-9]{1,4}(?:\.[0-9]{1,3})?[KMBT]",
        "'{value}' is not a number of parameters: write a number with one of the units K, M, B (10^9), T, "
        "for example 70B or 1.5B, in quotes",
    ),
]
Bytes = Annotated[
    Quantity, quantity_between("1M", "1P", "an amount of memory with its unit, for example 40Gi")
]


class WeightType(StrEnum):
    """The type of a weight as it is loaded."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT8 = "float8"
    INT8 = "int8"
    INT4 = "int4"

    @property
    def bytes(self) -> Decimal:
        """What one weight takes."""
        return Decimal(_BITS[self]) / 8


_BITS: Final = {
    WeightType.FLOAT32: 32,
    WeightType.FLOAT16: 16,
    WeightType.BFLOAT16: 16,
    WeightType.FLOAT8: 8,
    WeightType.INT8: 8,
    WeightType.INT4: 4,
}


class ModelSize(Model):
    """The memory that one copy of the model needs on the devices of a pod, all of them together."""

    rules = (
        Rule(
            cel="has(self.weights) != has(self.parameters) "
            "|| !has(self.weights) && !has(self.parameters) && has(self.activations)",
            holds=lambda size: (
                (size.weights is None) != (size.parameters is None)
                or (size.weights is None and size.activations is not None)
            ),
            message="write exactly one of weights and parameters, or activations alone: then the weights are "
            "read from the model's files",
        ),
        Rule(
            cel="has(self.parameters) == has(self.dtype)",
            holds=lambda size: (size.parameters is None) == (size.dtype is None),
            message="parameters and dtype go together: write both, or neither",
        ),
    )

    parameters: ParameterCount | None = None
    """Number of parameters, for example 70B."""

    dtype: WeightType | None = None
    """Type of the weights as they are loaded."""

    weights: Bytes | None = None
    """Memory of the weights, instead of parameters and dtype."""

    activations: Bytes | None = None
    """Memory beside the weights: activations, key-value cache, workspace."""

    @property
    def declares_weights(self) -> bool:
        """Whether it says what the weights take; otherwise they are read from the model's files."""
        return self.weight_bytes is not None

    @property
    def weight_bytes(self) -> Decimal | None:
        """Memory of the weights; None where activations alone are declared."""
        if self.parameters is None or self.dtype is None:
            return self.weights.amount if self.weights is not None else None
        return Decimal(self.parameters[:-1]).scaleb(_POWERS[self.parameters[-1]]) * self.dtype.bytes
