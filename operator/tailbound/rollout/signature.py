"""How the inputs and outputs of a candidate's model differ from those of the stable one. Pure.

Breaks says whether a request or a reader that is right for the stable model fails with the candidate:

| difference | breaks |
|---|---|
| an input was removed, or has another name | yes: requests hold an input that does not exist |
| an input was added | yes: requests lack it |
| an output was removed, has another name or another position | yes: readers miss it |
| an output was added behind the others | no |
| the type of an input or output | yes |
| an input or output has another number of dimensions | yes |
| a dimension of an input: any size before, one size now, or another size | yes: it was narrowed |
| a dimension of an input: one size before, any size now | no |
| a dimension of an output: one size before, any size now, or another size | yes: it was changed |
| a dimension of an output: any size before, one size now | no |

| spec.rollout.signature | what rejects a candidate |
|---|---|
| any | nothing |
| compatible | a difference that breaks |
| same | any difference |
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from tailbound.api.rollout import SignaturePolicy
from tailbound.objects.printable import shortened
from tailbound.objects.signature import ANY_SIZE, ModelSignature, ModelTensor
from tailbound.objects.unknown import Unknown

_MOST_NAMED: Final = 4
"""Differences that a message names."""
_LONGEST_MESSAGE: Final = 400
"""Characters of one of them: names and shapes come from servers, and have no bound of their own."""


@dataclass(frozen=True)
class SignatureDifference:
    """One difference between two signatures."""

    message: str
    breaks: bool


@dataclass(frozen=True)
class SignatureComparison:
    """The differences between two known signatures; none where they are the same."""

    differences: tuple[SignatureDifference, ...] = ()

    def refused(self, policy: SignaturePolicy) -> tuple[SignatureDifference, ...]:
        """The differences that reject the candidate."""
        if policy is SignaturePolicy.ANY:
            return ()
        return tuple(each for each in self.differences if each.breaks or policy is SignaturePolicy.SAME)


@dataclass(frozen=True)
class SignatureAwaited:
    """A signature has not been read yet, and is expected within seconds."""

    revision: str
    stable: bool
    """Whether it is the signature of the stable revision; else it is that of the candidate."""


CompareResult: TypeAlias = SignatureComparison | SignatureAwaited | Unknown
NO_ROLLOUT: Final = Unknown("there is no rollout")


def listed(differences: tuple[SignatureDifference, ...]) -> str:
    """The differences in words, those that break clients first."""
    ordered = sorted(differences, key=lambda each: not each.breaks)
    more = len(ordered) - _MOST_NAMED
    rest = [f"{more} more differences"] if more > 0 else []
    return "; ".join([*(shortened(each.message, _LONGEST_MESSAGE) for each in ordered[:_MOST_NAMED]), *rest])


def compared(old: ModelSignature, new: ModelSignature) -> SignatureComparison:
    """The differences, inputs first."""
    return SignatureComparison((*_inputs(old, new), *_outputs(old, new)))


def _inputs(old: ModelSignature, new: ModelSignature) -> Iterator[SignatureDifference]:
    before, now = _by_name(old.inputs), _by_name(new.inputs)
    for name, tensor in before.items():
        if name not in now:
            yield SignatureDifference(f"input {name} ({tensor}) does not exist any more", breaks=True)
        elif (other := now[name]) != tensor:
            yield SignatureDifference(
                f"input {name} is {other}, and was {tensor}", breaks=not _takes(other, tensor)
            )
    for name, tensor in now.items():
        if name not in before:
            yield SignatureDifference(f"input {name} ({tensor}) is new", breaks=True)


def _outputs(old: ModelSignature, new: ModelSignature) -> Iterator[SignatureDifference]:
    before, now = _by_name(old.outputs), _by_name(new.outputs)
    positions = {tensor.name: position for position, tensor in enumerate(new.outputs, start=1)}
    for position, (name, tensor) in enumerate(before.items(), start=1):
        if name not in now:
            yield SignatureDifference(f"output {name} ({tensor}) does not exist any more", breaks=True)
            continue
        if (other := now[name]) != tensor:
            yield SignatureDifference(
                f"output {name} is {other}, and was {tensor}", breaks=not _takes(tensor, other)
            )
        if positions[name] != position:
            yield SignatureDifference(
                f"output {name} is number {positions[name]} of the outputs, and was number {position}",
                breaks=True,
            )
    for name, tensor in now.items():
        if name not in before:
            yield SignatureDifference(f"output {name} ({tensor}) is new", breaks=False)


def _takes(wide: ModelTensor, narrow: ModelTensor) -> bool:
    """Every value that fits the second tensor fits the first one, too."""
    same = wide.datatype == narrow.datatype and len(wide.shape) == len(narrow.shape)
    return same and all(
        size in (ANY_SIZE, other) for size, other in zip(wide.shape, narrow.shape, strict=True)
    )


def _by_name(tensors: tuple[ModelTensor, ...]) -> dict[str, ModelTensor]:
    return {tensor.name: tensor for tensor in tensors}
