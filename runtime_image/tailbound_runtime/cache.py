"""Answers that are given again: a request whose tensors were answered before needs no run.

| a request | then |
|---|---|
| asks the same version for the same outputs with the same tensors, bit for bit | has its answer again |
| has inputs of more than MOST_INPUT_BYTES | is run and not remembered: to know it again takes too long |
| failed, or its caller left before the end | nothing is remembered |
| was answered, and its answer fits into the limit | it is remembered; those not asked for for longest go |

Whether the model would answer the same again is for its owner to know: one that draws random numbers, or
keeps a state, must not have its answers remembered.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tailbound_runtime.batch import Batching
from tailbound_runtime.engine import Engine
from tailbound_runtime.errors import ModelBrokenError
from tailbound_runtime.metrics import Metrics
from tailbound_runtime.queue import Job
from tailbound_runtime.shedding import Bound
from tailbound_runtime.signature import InferRequest
from tailbound_runtime.tensors import Array, content_of, exceed, size_of
from tailbound_runtime.worker import InferenceThread

MOST_INPUT_BYTES: Final = 2**20
ENTRY_BYTES: Final = 512
"""What an entry takes beside its tensors."""


@dataclass(frozen=True)
class _Key:
    """owner: one load of one version of a model; digest: of what was asked"""

    owner: object
    digest: bytes


class Cache:
    """The last answers of all models of a server, least recently used first. Any thread may use it."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._lock = threading.Lock()
        self._answers: OrderedDict[_Key, tuple[list[Array], int]] = OrderedDict()
        self._used = 0

    @property
    def used(self) -> int:
        """Bytes."""
        return self._used

    def get(self, owner: object, digest: bytes) -> list[Array] | None:
        """The answer; None if it is not here."""
        with self._lock:
            key = _Key(owner, digest)
            found = self._answers.get(key)
            if found is None:
                return None
            self._answers.move_to_end(key)
            return found[0]

    def put(self, owner: object, digest: bytes, arrays: Sequence[Array]) -> None:
        """Remember a copy: what was answered may be a part of a whole batch."""
        size = ENTRY_BYTES + sum(map(size_of, arrays))
        if size > self._limit:
            return
        kept = [array.copy() for array in arrays]
        for array in kept:
            array.setflags(write=False)
        key = _Key(owner, digest)
        with self._lock:
            self._used -= self._answers.pop(key, ((), 0))[1]
            self._answers[key] = (kept, size)
            self._used += size
            while self._used > self._limit:
                self._used -= self._answers.popitem(last=False)[1][1]

    def forget(self, owner: object) -> None:
        """Drop all answers of an owner that ends."""
        with self._lock:
            for key in [key for key in self._answers if key.owner is owner]:
                self._used -= self._answers.pop(key)[1]


class CachingThread(InferenceThread):
    """An inference thread that runs nothing that the cache answers."""

    def __init__(
        self,
        engine: Engine,
        batching: Batching,
        queue_limit: int,
        metrics: Metrics,
        broken: Callable[[ModelBrokenError], None],
        cache: Cache,
    ) -> None:
        self._cache = cache
        # Not this object, which entries would keep; nor its id, which a later one may have again.
        self._owner = object()
        super().__init__(engine, batching, queue_limit, metrics, broken)
        metrics.cached_bytes = lambda: cache.used

    def runs_here(self, now: float) -> bool:
        """Any request may be answered `here`."""
        return True

    def here(self, request: InferRequest, since: float | None = None) -> list[Array] | None:
        """The remembered answer, or else that of a short run."""
        digest = digest_of(request)
        found = self._found(request, digest)
        if found is not None:
            return found
        arrays = super().here(request, since)
        if arrays is not None and digest is not None:
            self._metrics.missed()
            self._cache.put(self._owner, digest, arrays)
        return arrays

    async def wait(
        self,
        request: InferRequest,
        deadline: float,
        bound: Bound | None = None,
        ran: Callable[[Job], None] | None = None,
    ) -> list[Array]:
        """The remembered answer, or else that of the thread."""
        found = self._found(request, digest_of(request))
        return await super().wait(request, deadline, bound, ran) if found is None else found

    def ask(
        self, request: InferRequest, deadline: float, bound: Bound | None, then: Callable[[Job], None]
    ) -> Job:
        """Run a request whose answer is not in the cache, and remember that before `then`."""
        digest = digest_of(request)
        if digest is None:
            return super().ask(request, deadline, bound, then)
        job = super().ask(request, deadline, bound, partial(self._remember, digest, then))
        self._metrics.missed()
        return job

    def close(self) -> None:
        """End the threads, and forget the answers."""
        super().close()
        self._cache.forget(self._owner)

    def _found(self, request: InferRequest, digest: bytes | None) -> list[Array] | None:
        found = None if digest is None else self._cache.get(self._owner, digest)
        if found is not None:
            self._metrics.hit()
        return found

    def _remember(self, digest: bytes, then: Callable[[Job], None], job: Job) -> None:
        if job.arrays is not None and not self._closed:
            self._cache.put(self._owner, digest, job.arrays)
        then(job)


def digest_of(request: InferRequest) -> bytes | None:
    """Equal for requests whose answers are; None if the inputs are too large to be looked at."""
    if request.digest is None:
        request.digest = _digest(request)
    return request.digest


def _digest(request: InferRequest) -> bytes | None:
    inputs = sorted(request.inputs.items())
    if exceed(request.inputs.values(), MOST_INPUT_BYTES):
        return None
    described = [(name, array.dtype.str, array.shape) for name, array in inputs]
    digest = hashlib.blake2b(repr((request.outputs, described)).encode(), digest_size=32)
    for _, array in inputs:
        digest.update(content_of(array))
    return digest.digest()
