"""One inference, from the tensors of a request to those of its answer: whatever protocol it came by."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from tailbound_runtime.budget import RETRY_AFTER
from tailbound_runtime.contract import SHED_HEADER
from tailbound_runtime.errors import (
    ApiError,
    Header,
    MemoryShortError,
    ModelFailedError,
    ModelInputError,
    TooLargeError,
)
from tailbound_runtime.metrics import Metrics
from tailbound_runtime.queue import Job, QueueFullError
from tailbound_runtime.shedding import Bound, WouldBeLateError
from tailbound_runtime.signature import InferRequest
from tailbound_runtime.tensors import Array
from tailbound_runtime.worker import InferenceThread

SHED = (SHED_HEADER.encode(), b"true")

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Words:
    """What is said of a failure. Without `logged` it says nothing of the model."""

    raised: type[Exception]
    status: int
    message: str
    headers: tuple[Header, ...] = ()
    logged: str | None = None


_WORDS: Final = (
    _Words(QueueFullError, 503, "{error} requests wait for the model already", (RETRY_AFTER,)),
    _Words(
        WouldBeLateError,
        503,
        "this server is overloaded, and the answer would come later than is wanted of this service",
        (RETRY_AFTER, SHED),
    ),
    _Words(TimeoutError, 504, "no answer within {seconds:g} s, the time-out of this {whose}"),
    _Words(
        TooLargeError,
        413,
        "the memory of the server's device does not suffice for this request: send fewer rows at once, or "
        "smaller ones",
        logged="the device's memory does not suffice for a request",
    ),
    _Words(
        MemoryShortError,
        503,
        "the memory of the server's device does not suffice at present",
        (RETRY_AFTER,),
        logged="the device has no memory left",
    ),
    _Words(
        ModelInputError,
        400,
        "the model refused the input: its names, types and shapes are right, but the model cannot compute "
        "these values or these sizes; the server's log says at which of its operators",
        logged="the model refused an input",
    ),
    _Words(
        ModelFailedError, 500, "the model failed: the server's log has the details", logged="model failed"
    ),
)
"""The first that fits. ONNX Runtime's own words stay in the log."""

FAILURES: Final = tuple(words.raised for words in _WORDS)
"""What the inference thread raises."""


def in_words(
    error: Exception, metrics: Metrics, timeout_seconds: float, request: InferRequest | None
) -> ApiError:
    """The answer to one of FAILURES, which is counted and logged.

    timeout_seconds: of the service; the request, None before it is known, may have a shorter one
    """
    own = None if request is None else request.timeout_seconds
    of_request = own is not None and own < timeout_seconds
    words = next(words for words in _WORDS if isinstance(error, words.raised))
    if isinstance(error, WouldBeLateError):
        metrics.shed()
    if words.logged is not None:
        log.warning(words.logged, error=str(error))
    message = words.message.format(
        error=error,
        seconds=own if of_request else timeout_seconds,
        whose="request" if of_request else "service",
    )
    return ApiError(words.status, message, words.headers)


def check_room(thread: InferenceThread, metrics: Metrics) -> None:
    """Raises ApiError 503 if a request would be refused now."""
    try:
        thread.check_room()
    except QueueFullError as error:
        raise in_words(error, metrics, 0, None) from None


async def infer(
    request: InferRequest,
    thread: InferenceThread,
    metrics: Metrics,
    timeout_seconds: float,
    deadline: float,
    bound: Bound | None,
    ran: Callable[[Job], None] | None = None,
) -> Sequence[Array]:
    """The outputs that the request asks for. Raises ApiError; the deadline is in the time of `perf_counter`.

    `ran` gets the job once it has run.
    """
    try:
        return await thread.wait(request, deadline, bound, ran)
    except FAILURES as error:
        raise in_words(error, metrics, timeout_seconds, request) from None
