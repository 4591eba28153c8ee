"""What a model takes and gives, and one request that agrees with it: whatever protocol it came by."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tailbound_runtime.batch import Batching
from tailbound_runtime.engine import TensorSpec
from tailbound_runtime.tensors import Array

MODEL_VERSION: Final = "1"


@dataclass(frozen=True)
class Signature:
    """What a model takes and gives, by name, and how its requests are batched.

    inputs: what one request may send
    platform: the library that runs it and the model's format, with an underscore between them
    """

    name: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    batching: Batching
    platform: str
    version: str = MODEL_VERSION


@dataclass(slots=True, eq=False)
class InferRequest:
    """A request that agrees with the signature. Nothing changes it but its digest; checking that would cost
    each one time.

    id: None if the client gave none
    rows: how much of a batch it makes up
    binary: the outputs that are wanted as binary tensors
    priority: 1 goes first; 0 if the client gave none
    timeout_seconds: from its last byte to its answer; None if the client gave none
    digest: what the cache knows it by; None before it is found out, and for a request that is not remembered
    """

    id: str | None
    inputs: Mapping[str, Array]
    outputs: tuple[str, ...]
    rows: int
    binary: frozenset[str] = frozenset()
    priority: int = 0
    timeout_seconds: float | None = None
    digest: bytes | None = field(default=None, init=False)
