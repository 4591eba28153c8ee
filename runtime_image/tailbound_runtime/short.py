"""A short request, which is answered without the steps that others take."""

from collections.abc import Sequence

from tailbound_runtime.model import Model
from tailbound_runtime.reception import Head
from tailbound_runtime.signature import InferRequest
from tailbound_runtime.tensors import Array


class Short:
    """A short request that is there as a whole, on its way to its answer without the steps of others.

    since: when it was there; decoded, executed: when its tensors were, and its outputs; of `perf_counter`
    arrays: its outputs; None if its run is not short
    error: what its run failed with
    """

    __slots__ = ("arrays", "body", "decoded", "error", "executed", "head", "model", "request", "since")

    def __init__(
        self, head: Head, body: bytes, model: Model, since: float, decoded: float, request: InferRequest
    ) -> None:
        self.head = head
        self.body = body
        self.model = model
        self.since = since
        self.request = request
        self.decoded = self.executed = decoded
        self.arrays: Sequence[Array] | None = None
        self.error: Exception | None = None
