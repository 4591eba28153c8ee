"""Whether a model fits the memory of the devices that a pod gets.

What its owner declares counts; else what was read from its files, once a Job or a pod has.

| weights | devices and deviceMemory of the class | verdict |
|---|---|---|
| not known | any | none: nothing is compared |
| declared | not both known | Unchecked |
| read from files | not both known | none: it was not asked for |
| with the activations at most their product | known | Fits |
| more | known | TooLarge |
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

from tailbound.api.device_memory import ModelMemory, PodMemory, shown, weights_read
from tailbound.api.hardwareclass import HardwareClass
from tailbound.api.model_size import ModelSize


@dataclass(frozen=True)
class Fits:
    """A model that fits its devices; the text has the arithmetic."""

    text: str


@dataclass(frozen=True)
class TooLarge:
    """A model that does not fit; the message has the arithmetic and the remedy."""

    message: str


@dataclass(frozen=True)
class Unchecked:
    """A model of which it is not known whether it fits; the text says why."""

    text: str


MemoryVerdict: TypeAlias = Fits | TooLarge | Unchecked


def memory_verdict(
    size: ModelSize | None, hardware_class: HardwareClass, read: int | None = None
) -> MemoryVerdict | None:
    """The verdict on a model of this size in the pods of this class; None where its weights are not known.

    `read`: bytes of the weights in its files; None until they are read.
    """
    model = _model(size, read)
    if model is None:
        return None
    spec, name = hardware_class.spec, hardware_class.metadata.name
    declared = size is not None and size.declares_weights
    if not declared and (not spec.devices or spec.device_memory is None):
        return None
    if not spec.devices:
        return Unchecked(f"not checked: HardwareClass {name} has no devices")
    if spec.device_memory is None:
        return Unchecked(f"not checked: HardwareClass {name} does not state deviceMemory")
    pod = PodMemory(name, spec.devices, spec.device_memory)
    lack = pod.lack(model)
    if lack is None:
        return Fits(f"{model.in_words()}; {pod.in_words()}")
    return TooLarge(f"spec.model.size is {lack}" if declared else f"the model has {lack}")


def _model(size: ModelSize | None, read: int | None) -> ModelMemory | None:
    activations = size.activations if size is not None else None
    weights = size.weight_bytes if size is not None else None
    if size is None or weights is None:
        return None if read is None else ModelMemory(Decimal(read), weights_read(read), activations)
    if size.parameters is None or size.dtype is None:
        return ModelMemory(weights, f"{shown(weights)} of weights", activations)
    words = f"{size.parameters} parameters of {size.dtype.bytes.normalize()} bytes ({size.dtype})"
    return ModelMemory(weights, words, activations, calculated=True)
