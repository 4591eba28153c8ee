"""ModelInfer: the call, and how its messages are read and written."""

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

from tailbound_runtime.errors import ApiError
from tailbound_runtime.grpc_call import SERVICE, code_of
from tailbound_runtime.grpc_codec import RpcCodec
from tailbound_runtime.grpc_message import Asked, split
from tailbound_runtime.grpc_message_call import MessageCall
from tailbound_runtime.model import Model
from tailbound_runtime.pending import Pending
from tailbound_runtime.protocol import Body, is_long
from tailbound_runtime.reception import Intake
from tailbound_runtime.responses import Response
from tailbound_runtime.signature import InferRequest
from tailbound_runtime.tensors import Array


class RpcIntake(Intake):
    """An inference that came as one message.

    asked: its parts
    """

    __slots__ = ("asked",)
    asked: Asked


class Rpc:
    """The Open Inference Protocol over gRPC."""

    name = "grpc"

    def takes_long(self, intake: Intake) -> bool:
        return codec_of(intake.model).takes_long(_asked(intake))

    def parse(self, intake: Intake) -> InferRequest:
        return codec_of(intake.model).parse(_asked(intake), intake.share.need)

    def parse_aside(self, intake: Intake) -> InferRequest:
        return codec_of(intake.model).parse_uncached(_asked(intake), intake.share.need)

    def write(self, intake: Intake, request: InferRequest, arrays: Sequence[Array], aside: bool) -> Response:
        codec = codec_of(intake.model)
        return Response(
            200, (), codec.answer_uncached(request, arrays) if aside else codec.answer(request, arrays)
        )

    def packing(self, intake: Intake, response: Response) -> bytes | None:
        return None

    def refusal(self, error: ApiError) -> Response:
        return Response(error.status, error.headers, [error.message.encode()])

    def attributes(self, code: int) -> Mapping[str, str | int]:
        return {
            "rpc.system": "grpc",
            "rpc.service": SERVICE,
            "rpc.method": "ModelInfer",
            "rpc.grpc.status_code": code_of(code),
        }


RPC: Final = Rpc()


def codec_of(model: Model) -> RpcCodec:
    """The model's, which is made for its first call."""
    if model.rpc is None:
        model.rpc = RpcCodec(model.loaded()[0])
    return model.rpc


def _asked(intake: Intake) -> Asked:
    return cast(RpcIntake, intake).asked


class InferCall(MessageCall):
    """An inference."""

    __slots__ = ()

    def take(self, message: Body) -> None:
        """Infer."""
        now, app = time.perf_counter(), self.surface.app
        asked = split(message)
        model = app.models.find(asked.name, asked.version)
        parsed = self._at_once(model, asked, len(message), now) if app.at_once else None
        if self.over:
            return
        intake = RpcIntake(self.head, self.started, self.limits, self.share, model, RPC)
        intake.asked, intake.body, intake.parsed = asked, message, parsed
        self._go_on(intake, app.begin_whole(intake, now))

    def _at_once(
        self, model: Model, asked: Asked, size: int, now: float
    ) -> tuple[InferRequest, Sequence[Array] | None] | None:
        """Answer a short request whose run is short, without the objects that others need.

        What is known of one that is not answered so: the request, and the outputs if its run is over.
        """
        if not model.is_open:
            return None
        signature, thread = model.loaded()
        codec = codec_of(model)
        if codec.takes_long(asked) or not thread.runs_here(now):
            return None
        try:
            request = codec.parse(asked, self.share.need)
        except Exception:  # it is raised again, and counted, where those of all others are
            return None
        decoded = time.perf_counter()
        arrays = thread.here(request)
        executed = time.perf_counter()
        if arrays is None or is_long(request, signature, arrays):
            return request, arrays
        parts = codec.answer(request, arrays)
        encoded = time.perf_counter()
        self.answer(parts)
        ended = time.perf_counter()
        metrics = model.metrics
        metrics.sent(ended - encoded)
        times = (now - self.started, decoded - now, encoded - executed, ended - self.started)
        metrics.answered_at_once(*times, RPC.name, size)
        return None

    def _go_on(self, intake: Intake, outcome: Response | Pending | Coroutine[Any, Any, Response]) -> None:
        if isinstance(outcome, Response):
            self._respond(intake, outcome)
        elif isinstance(outcome, Pending):
            self._task = outcome
            outcome.then = self._run_is_over
        else:
            self._task = task = self.surface.loop.create_task(outcome)
            task.add_done_callback(partial(self._answered, intake))

    def _run_is_over(self, pending: Pending) -> None:
        self._task = None
        self._go_on(pending.intake, self.surface.app.run_is_over(pending))

    def _answered(self, intake: Intake, task: asyncio.Future[Response]) -> None:
        self._task = None
        if task.cancelled():
            self.surface.app.left(intake, True)
        else:
            self._respond(intake, task.result())

    def _respond(self, intake: Intake, response: Response) -> None:
        began = time.perf_counter()
        if response.status == 200:
            self.answer(response.parts)
        else:
            self.refuse(ApiError(response.status, bytes(response.parts[0]).decode(), response.headers))
        self.surface.app.sent(intake, time.perf_counter() - began)
