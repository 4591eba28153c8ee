"""One version of a model in this process, from before it is loaded until its last request has its answer.

| state | requests | when |
|---|---|---|
| loading | refused with 503 | until `open` |
| in service | served | until `retire` |
| leaving | those that have it are served, it gets no new ones | until the last one gives it back |
| closed | none; its threads end, and the engine's memory is freed | |
"""

from typing import TYPE_CHECKING

from tailbound_runtime.budget import RETRY_AFTER
from tailbound_runtime.codec import Codec
from tailbound_runtime.errors import ApiError
from tailbound_runtime.metrics import Metrics
from tailbound_runtime.signature import Signature
from tailbound_runtime.worker import InferenceThread

if TYPE_CHECKING:
    from tailbound_runtime.grpc_codec import RpcCodec


class Model:
    """The loop's own; what it has once it is open, any thread may use.

    size_bytes: of its files
    codec: of its requests over HTTP; there once it is open
    rpc: the codec of its calls over gRPC, once there was one
    service: what a request needs; None before it is open, and once it is closed
    closed: whether nothing of it is left
    """

    def __init__(self, name: str, version: str, metrics: Metrics, size_bytes: int = 0) -> None:
        self.name = name
        self.version = version
        self.metrics = metrics
        self.size_bytes = size_bytes
        self.closed = False
        self.codec: Codec
        self.rpc: RpcCodec | None = None
        self.service: tuple[Signature, InferenceThread] | None = None
        self._users = 0
        self._retired = False

    def open(self, signature: Signature, thread: InferenceThread) -> None:
        """Serve requests from now on."""
        self.codec = Codec(signature)
        self.service = (signature, thread)

    @property
    def is_open(self) -> bool:
        """Whether it is loaded."""
        return self.service is not None

    def loaded(self) -> tuple[Signature, InferenceThread]:
        """What a request needs. Raises ApiError 503 before it is there."""
        if self.service is None:
            raise ApiError(503, f"model {self.name!r} is still loading", [RETRY_AFTER])
        return self.service

    def take(self) -> None:
        """One request more needs this model until it gives it back."""
        self._users += 1

    def give(self) -> None:
        """A request that has taken this model is answered, or given up."""
        self._users -= 1
        if self._retired and not self._users:
            self._close()

    def retire(self) -> None:
        """No request takes it any more: end once the last one has given it back."""
        self._retired = True
        if not self._users:
            self._close()

    def _close(self) -> None:
        if self.service is not None:
            self.service[1].close()
            del self.codec
            self.rpc = None
        self.service = None
        self.closed = True
