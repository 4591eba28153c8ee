"""The memory of the devices of a pod beside what a model needs, with the arithmetic in words. Pure.

The operator compares before there is a pod, and the fetch container once it has read the model's files. A
model is spread over all devices of its pod, so that twice the devices hold twice as much.
"""

import json
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from tailbound.api.quantities import Quantity

_GIGA: Final = Decimal(10**9)
_MEGA: Final = Decimal(10**6)


@dataclass(frozen=True)
class ModelMemory:
    """What one copy of a model needs."""

    weights: Decimal
    """Bytes of the weights."""
    source: str
    """What the weights are, in words."""
    activations: Quantity | None = None
    calculated: bool = False
    """The words leave the bytes of the weights to be said."""

    @property
    def total(self) -> Decimal:
        """Bytes of weights and activations."""
        return self.weights + (self.activations.amount if self.activations is not None else 0)

    def in_words(self) -> str:
        """The sum."""
        parts = [self.source]
        if self.activations is not None:
            parts.append(f"{shown(self.activations.amount)} of activations")
        total = f" = {shown(self.total)}" if self.calculated or len(parts) > 1 else ""
        return " + ".join(parts) + total


@dataclass(frozen=True)
class PodMemory:
    """The devices of a pod."""

    hardware_class: str
    devices: int
    each: Quantity
    activations: Quantity | None = None
    """What the owner of the model declares beside its weights."""

    def in_words(self) -> str:
        """What they hold."""
        holds = "holds" if self.devices == 1 else "hold"
        there = f"{_devices(self.devices)} of {self.each} {holds} {shown(self.devices * self.each.amount)}"
        return f"in HardwareClass {self.hardware_class}, {there}"

    def lack(self, model: ModelMemory) -> str | None:
        """What to do about a model that does not fit; None if it does."""
        if model.total <= self.devices * self.each.amount:
            return None
        fewest = _devices(math.ceil(model.total / self.each.amount))
        return (
            f"{model.in_words()}, and {self.in_words()} per pod: choose a class with at least {fewest} of "
            "this memory per pod, or with larger ones, or smaller weights"
        )

    def written(self) -> str:
        """The text in the environment of the fetch container."""
        stored = {"class": self.hardware_class, "devices": self.devices, "memory": str(self.each)}
        beside = {"activations": str(self.activations)} if self.activations is not None else {}
        return json.dumps(stored | beside, sort_keys=True)

    @classmethod
    def read(cls, text: str) -> "PodMemory":
        """The devices in such a text. Raises ValueError."""
        match json.loads(text):
            case {"class": str(name), "devices": int(devices), "memory": str(memory), **others}:
                beside = others.get("activations")
                activations = Quantity.parse(str(beside)) if beside is not None else None
                return cls(name, devices, Quantity.parse(memory), activations)
        raise ValueError(f"{text!r} holds no class, devices and memory")


def weights_read(size_bytes: int) -> str:
    """Weights whose size was read from files, in words."""
    return f"{shown(Decimal(size_bytes))} of weights in its files"


def shown(amount: Decimal) -> str:
    """Bytes in GB or MB, with at most one decimal."""
    unit, name = (_GIGA, "GB") if amount >= _GIGA else (_MEGA, "MB")
    text = f"{amount / unit:.1f}"
    return f"{text.removesuffix('.0')} {name}"


def _devices(count: int) -> str:
    return f"{count} device" if count == 1 else f"{count} devices"
