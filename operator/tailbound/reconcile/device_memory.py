"""Whether a model fits the memory of the devices that a pod gets.

A model is spread over all devices of its pod, so that twice the devices hold twice as much.

| model.size | devices and deviceMemory of the class | verdict |
|---|---|---|
| absent | any | none: nothing is asked |
| declared | not both known | Unchecked |
| at most their product | known | Fits |
| more | known | TooLarge |
"""

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, TypeAlias

from tailbound.api.hardwareclass import HardwareClass
from tailbound.api.model_size import ModelSize

_GIGA: Final = Decimal(10**9)
_MEGA: Final = Decimal(10**6)


@dataclass(frozen=True)
class Fits:
    """It fits; the text has the arithmetic."""

    text: str


@dataclass(frozen=True)
class TooLarge:
    """It does not fit; the message has the arithmetic and the remedy."""

    message: str


@dataclass(frozen=True)
class Unchecked:
    """It is not known whether it fits; the text says why."""

    text: str


MemoryVerdict: TypeAlias = Fits | TooLarge | Unchecked


def memory_verdict(size: ModelSize | None, hardware_class: HardwareClass) -> MemoryVerdict | None:
    """The verdict on a model of this size in the pods of this class; None without a size."""
    if size is None:
        return None
    spec, name = hardware_class.spec, hardware_class.metadata.name
    if not spec.devices:
        return Unchecked(f"not checked: HardwareClass {name} has no devices")
    if spec.device_memory is None:
        return Unchecked(f"not checked: HardwareClass {name} does not state deviceMemory")
    each, needed = spec.device_memory.amount, size.total_bytes
    holds = "holds" if spec.devices == 1 else "hold"
    there = f"{_devices(spec.devices)} of {spec.device_memory} {holds} {_shown(spec.devices * each)}"
    if needed <= spec.devices * each:
        return Fits(f"{_sum(size)}; in HardwareClass {name}, {there}")
    return TooLarge(
        f"spec.model.size is {_sum(size)}, and in HardwareClass {name}, {there} per pod: choose a class with "
        f"at least {_devices(math.ceil(needed / each))} of this memory per pod, or with larger ones, or "
        "smaller weights"
    )


def _sum(size: ModelSize) -> str:
    parts = [_weights(size)]
    if size.activations is not None:
        parts.append(f"{_shown(size.activations.amount)} of activations")
    total = f" = {_shown(size.total_bytes)}" if size.parameters is not None or len(parts) > 1 else ""
    return " + ".join(parts) + total


def _weights(size: ModelSize) -> str:
    if size.parameters is None or size.dtype is None:
        return f"{_shown(size.weight_bytes)} of weights"
    return f"{size.parameters} parameters of {size.dtype.bytes.normalize()} bytes ({size.dtype})"


def _devices(count: int) -> str:
    return f"{count} device" if count == 1 else f"{count} devices"


def _shown(amount: Decimal) -> str:
    """Bytes in GB or MB, with at most one decimal."""
    unit, name = (_GIGA, "GB") if amount >= _GIGA else (_MEGA, "MB")
    text = f"{amount / unit:.1f}"
    return f"{text.removesuffix('.0')} {name}"
