"""Inferences of all protocols, from their bodies to their answers; inference.py goes from tensors to tensors.

| a request | is answered |
|---|---|
| is short, and so is its run (inline.py) | before `infer` returns |
| is short, and its run is not | when its run is over: a Pending, then `run_is_over` |
| takes long to read, or its answer to write or to pack | by a coroutine, which leaves that to a thread |
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import structlog

from tailbound_runtime import reception
from tailbound_runtime.budget import Budget, Share
from tailbound_runtime.errors import ApiError
from tailbound_runtime.inference import FAILURES, check_room, in_words, infer
from tailbound_runtime.model import Model
from tailbound_runtime.models import Models
from tailbound_runtime.pending import Pending
from tailbound_runtime.protocol import is_long
from tailbound_runtime.queue import Job
from tailbound_runtime.reception import Head, Intake, Limits
from tailbound_runtime.responses import Response, success
from tailbound_runtime.shedding import Bound
from tailbound_runtime.short import Short
from tailbound_runtime.signature import InferRequest, Signature
from tailbound_runtime.tensors import Array
from tailbound_runtime.wire import REST
from tailbound_runtime.worker import InferenceThread

T = TypeVar("T")

UNEXPECTED: Final = ApiError(500, "internal error: the server's log has the details")

log = structlog.get_logger(__name__)


class Inferences:
    """All inferences of one server, for the loop's thread only.

    An inference is begun when its head is there, receives its body, and is inferred; or it has left.

    at_once: whether short ones may be answered in one step
    budget: of the memory of all requests
    """

    at_once = True

    def __init__(self, models: Models, limits: Limits, budget: Budget) -> None:
        self.models = models
        self._limits = limits
        self.budget = budget
        self._loop = asyncio.get_running_loop()
        # One thread: what takes long is done one after the other, and liveness is answered in between.
        self._long = ThreadPoolExecutor(1, "long")

    def begin_whole(self, intake: Intake, now: float) -> Response | Pending | Coroutine[Any, Any, Response]:
        """Begin and infer a request that is there with all of its body; outcomes as of `infer`."""
        intake.model.metrics.begun()
        intake.model.take()
        try:
            _, thread = intake.model.loaded()
            check_room(thread, intake.model.metrics)
        except ApiError as error:
            return self._refused(intake, error)
        return self.infer(intake, now)

    def read(self, head: Head, body: bytes, since: float) -> Short | Pending | Response | None:
        """Read a request whose whole short body came at this time of `perf_counter`.

        | then | it is |
        |---|---|
        | its run may be short | a Short: `run` comes next |
        | it waits for a run, as those do that share one | a Pending |
        | it is refused | the answer |
        | it is long, or its stages are measured | None: it begins, receives and is inferred |
        """
        target = self.models.targets.get(head.path)
        model = None if target is None else target.model
        if model is None or model.service is None or not self.at_once or head.encoding is not None:
            return None
        _, thread = model.service
        if len(body) > model.codec.short_bytes or thread.is_full:
            return None
        try:
            request = model.codec.parse(body, head.json_length, _unlimited)
        except Exception as error:
            return self._failed(self._taken(head, body, since, model), error, None)
        now = time.perf_counter()
        if thread.runs_here(now):
            return Short(head, body, model, since, now, request)
        intake = self._taken(head, body, since, model)
        return self._counted(intake, now) or self._asked(intake, request, thread)

    def run(self, short: Short) -> None:
        """Run it, if its run is short; `answer` comes next."""
        _, thread = short.model.loaded()
        try:
            short.arrays = thread.here(short.request, short.decoded)
        except Exception as error:
            short.error = error
        short.executed = time.perf_counter()

    def answer(self, short: Short) -> Response | Pending | Intake:
        """The answer to a read request: Pending if it waits for a run, an intake if it has more steps."""
        given = short.head, short.body, short.since, short.model
        try:
            if short.error is not None:
                raise short.error
            response = self._known(short)
        except Exception as error:
            return self._failed(self._taken(*given), error, short.request)
        if response is None:
            intake = self._taken(*given)
            refused = self._counted(intake, short.decoded)
            if refused is not None:
                return refused
            if short.arrays is None:
                return self._asked(intake, short.request, short.model.loaded()[1])
            intake.parsed = short.request, short.arrays
            return intake
        metrics, decoding = short.model.metrics, short.decoded - short.since
        response.sent = metrics.sent
        ended = time.perf_counter()
        metrics.answered_at_once(
            0.0, decoding, ended - short.executed, ended - short.since, REST.name, len(short.body)
        )
        return response

    def _known(self, short: Short) -> Response | None:
        """The answer, if its outputs are there, and it is like one that was written before."""
        if short.arrays is None:
            return None
        answer = short.model.codec.known_answer(short.request, short.arrays)
        if answer is None:
            return None
        response = success(answer)
        return None if short.head.packs and response.size >= reception.LEAST_PACKED_BYTES else response

    def _taken(self, head: Head, body: bytes, since: float, model: Model) -> Intake:
        model.metrics.begun()
        model.take()
        intake = Intake(head, since, self._limits, Share(self.budget), model, REST)
        intake.body = body
        return intake

    def _counted(self, intake: Intake, decoded: float) -> Response | None:
        """Count what came as a whole and is read now; an answer if there is no memory for it."""
        metrics = intake.model.metrics
        metrics.received(0.0)
        metrics.decoded(decoded - intake.received)
        try:
            intake.share.hold(len(intake.body))
        except ApiError as error:
            return self._refused(intake, error)
        return None

    def receive(self, intake: Intake, part: bytes) -> Response | None:
        """Take in a part of the body; an answer if that refuses it."""
        try:
            intake.add(part)
        except ApiError as error:
            return self._refused(intake, error)
        return None

    def received(self, intake: Intake, size: int) -> Response | None:
        """Count `size` bytes that came into the room of the intake; the answer if they are refused."""
        try:
            intake.share.need(size)
        except ApiError as error:
            return self._refused(intake, error)
        return None

    def late(self, intake: Intake) -> Response:
        """The answer to a body that has not arrived in time."""
        return self._refused(intake, self._limits.too_slow())

    def left(self, intake: Intake, complete: bool) -> None:
        """The client has gone before its turn came, with all of its body sent or not."""
        self._end(intake, 499 if complete else 400)

    def sent(self, intake: Intake, seconds: float) -> None:
        """Writing the answer to an inference took so long."""
        intake.model.metrics.sent(seconds)

    def _refused(self, intake: Intake, error: ApiError) -> Response:
        self._end(intake, error.status)
        return intake.wire.refusal(error)

    def _end(self, intake: Intake, code: int) -> None:
        if not intake.ended:
            body_bytes = len(intake.body)
            intake.end()
            seconds = time.perf_counter() - intake.started
            intake.model.metrics.answered(code, seconds, intake.wire.name, body_bytes)
            intake.model.give()

    def infer(self, intake: Intake, now: float) -> Response | Pending | Coroutine[Any, Any, Response]:
        """The answer to a request whose last byte has come now: at once, or what becomes of it."""
        intake.received = now
        request = None
        try:
            signature, thread = intake.model.loaded()
            arrays: Sequence[Array] | None
            if intake.parsed is not None:
                request, arrays = intake.parsed
            elif intake.wire.takes_long(intake):
                return self._later(intake)
            else:
                request = intake.wire.parse(intake)
                self._decoded(intake)
                arrays = thread.here(request)
            if arrays is None:
                return self._asked(intake, request, thread)
            return self._inferred_here(intake, request, signature, arrays)
        except Exception as error:
            return self._failed(intake, error, request)

    def _asked(self, intake: Intake, request: InferRequest, thread: InferenceThread) -> Pending | Response:
        """Let a request wait for a run; an answer if it is refused."""
        pending = Pending(intake, request, self.given_up)
        try:
            pending.job = thread.ask(request, _deadline(intake, request), _bound(intake), pending.ends)
        except Exception as error:
            return self._failed(intake, error, request)
        return pending

    def given_up(self, pending: Pending) -> None:
        """The client has gone before the run was over."""
        _, thread = pending.intake.model.loaded()
        thread.leave(pending.job)
        self._end(pending.intake, 499)

    def run_is_over(self, pending: Pending) -> Response | Coroutine[Any, Any, Response]:
        """The answer to an inference whose run is over."""
        intake, job = pending.intake, pending.job
        signature, thread = intake.model.loaded()
        try:
            return self._inferred_here(intake, pending.request, signature, job.outcome())
        except Exception as error:
            thread.leave(job)
            return self._failed(intake, error, pending.request)

    def _failed(self, intake: Intake, error: Exception, request: InferRequest | None) -> Response:
        if isinstance(error, FAILURES):
            error = in_words(error, intake.model.metrics, intake.limits.seconds, request)
        if not isinstance(error, ApiError):
            log.error("inference failed unexpectedly", exc_info=error)
            error = UNEXPECTED
        return self._refused(intake, error)

    def _inferred_here(
        self, intake: Intake, request: InferRequest, signature: Signature, arrays: Sequence[Array]
    ) -> Response | Coroutine[Any, Any, Response]:
        if is_long(request, signature, arrays):
            return self._later(intake, request, arrays)
        response = self._written(intake, request, arrays)
        if intake.head.packs and intake.wire.packing(intake, response) is not None:
            return self._later(intake, response=response)
        self._end(intake, 200)
        return response

    async def _later(
        self,
        intake: Intake,
        request: InferRequest | None = None,
        arrays: Sequence[Array] | None = None,
        response: Response | None = None,
    ) -> Response:
        """The answer, from what is there of it."""
        code = 499  # the client left before the answer was there
        try:
            if response is None:
                response = await self._inferred(intake, request, arrays)
            packed_with = intake.wire.packing(intake, response)
            if packed_with is not None:
                response = await self._packed(packed_with, response)
            code = 200
            return response
        except ApiError as error:
            code = error.status
            return intake.wire.refusal(error)
        except Exception:
            log.exception("inference failed unexpectedly")
            code = 500
            return intake.wire.refusal(UNEXPECTED)
        finally:
            self._end(intake, code)

    async def _inferred(
        self, intake: Intake, request: InferRequest | None, arrays: Sequence[Array] | None
    ) -> Response:
        signature, thread = intake.model.loaded()
        if request is None:
            request = await self.aside(lambda: self._parsed_aside(intake))
        if arrays is None:
            deadline = _deadline(intake, request)
            metrics, seconds = intake.model.metrics, intake.limits.seconds
            watch = self._watch(intake)
            arrays = await infer(request, thread, metrics, seconds, deadline, _bound(intake), watch)
        if not is_long(request, signature, arrays):
            return self._written(intake, request, arrays)
        known, there = request, arrays
        return await self.aside(lambda: self._written(intake, known, there, aside=True))

    def _watch(self, intake: Intake) -> Callable[[Job], None] | None:
        """The function that gets the job of a long request once it has run; None if none does."""
        return None

    def _parsed_aside(self, intake: Intake) -> InferRequest:
        request = intake.wire.parse_aside(intake)
        self._decoded(intake)
        return request

    def _decoded(self, intake: Intake) -> None:
        metrics = intake.model.metrics
        metrics.received(intake.received - intake.started)
        metrics.decoded(time.perf_counter() - intake.received)

    def _written(
        self, intake: Intake, request: InferRequest, arrays: Sequence[Array], aside: bool = False
    ) -> Response:
        """The answer, written in the loop's thread or `aside`."""
        began = time.perf_counter()
        response = intake.wire.write(intake, request, arrays, aside)
        intake.model.metrics.encoded(time.perf_counter() - began)
        return response

    async def _packed(self, packing: bytes, response: Response) -> Response:
        packed = await self.aside(lambda: reception.pack(packing, b"".join(response.parts)))
        return Response(response.status, [*response.headers, (b"content-encoding", packing)], [packed])

    async def aside(self, work: Callable[[], T]) -> T:
        """The result of this work, which takes long, done in a thread of its own."""
        return await self._loop.run_in_executor(self._long, work)


def _unlimited(size: int) -> None:
    """Short bodies are not counted."""


def _deadline(intake: Intake, request: InferRequest) -> float:
    due = intake.started + intake.limits.seconds
    if request.timeout_seconds is None:
        return due
    return min(due, intake.received + request.timeout_seconds)


def _bound(intake: Intake) -> Bound | None:
    """When an answer is late, as the gateways measure it: from the last byte of the request on."""
    return None if intake.head.bound_seconds is None else Bound(intake.received, intake.head.bound_seconds)
