"""Which inputs the model has refused lately, so that the same ones do not spoil another shared run."""

import hashlib
from collections import OrderedDict
from typing import Final

from tailbound_runtime.signature import InferRequest
from tailbound_runtime.tensors import content_of, exceed

MOST: Final = 256
SECONDS: Final = 60.0
MOST_BYTES: Final = 64 * 2**10
"""Larger inputs are not remembered: to know them again would take too long."""


class Refused:
    """The last refused inputs, each with the reason. Time is a parameter, in seconds."""

    def __init__(self) -> None:
        self._reasons: OrderedDict[bytes, tuple[float, str]] = OrderedDict()

    @property
    def any(self) -> bool:
        """Whether any inputs are remembered."""
        return bool(self._reasons)

    def add(self, request: InferRequest, reason: str, now: float) -> None:
        """Remember these inputs."""
        if not exceed(request.inputs.values(), MOST_BYTES):
            self._reasons[_digest(request)] = (now, reason)
            while len(self._reasons) > MOST:
                self._reasons.popitem(last=False)

    def why(self, request: InferRequest, now: float) -> str | None:
        """Why these inputs were refused lately; None if they were not."""
        while self._reasons and now - next(iter(self._reasons.values()))[0] > SECONDS:
            self._reasons.popitem(last=False)
        if not self._reasons or exceed(request.inputs.values(), MOST_BYTES):
            return None
        found = self._reasons.get(_digest(request))
        return None if found is None else found[1]


def _digest(request: InferRequest) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for name, array in sorted(request.inputs.items()):
        digest.update(f"{name}{array.dtype}{array.shape}".encode())
        digest.update(content_of(array))
    return digest.digest()
