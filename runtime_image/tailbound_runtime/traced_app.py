"""The application with a span for each inference, and one for each of its stages.

The stages are those of `tailbound_runtime_stage_seconds`. A run on the event loop has no queue and no batch.
"""

import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from tailbound_runtime.app import App
from tailbound_runtime.budget import Budget
from tailbound_runtime.control import Call
from tailbound_runtime.metrics import Stage
from tailbound_runtime.models import Models
from tailbound_runtime.pending import Pending
from tailbound_runtime.queue import Job
from tailbound_runtime.reception import Intake, Limits
from tailbound_runtime.responses import Response
from tailbound_runtime.signature import InferRequest, Signature
from tailbound_runtime.tensors import Array
from tailbound_runtime.tracing import Spent, Tracer


class _Trace:
    """stages: so far; span: of the request, once that has ended"""

    __slots__ = ("span", "stages")

    def __init__(self) -> None:
        self.stages: list[Spent] = []
        self.span: Any = None


class TracedApp(App):
    """Notes when each stage of a request begins and ends, and makes spans of that at its end."""

    at_once = False  # the stages could not be measured

    def __init__(self, models: Models, limits: Limits, budget: Budget, tracer: Tracer) -> None:
        super().__init__(models, limits, budget)
        self._tracer = tracer

    def given_up(self, pending: Pending) -> None:
        """Note when it waited and ran, if it has run."""
        self._ran(pending.intake, pending.job)
        super().given_up(pending)

    def run_is_over(self, pending: Pending) -> Response | Coroutine[Any, Any, Response]:
        """Note when it waited and ran."""
        self._ran(pending.intake, pending.job)
        return super().run_is_over(pending)

    def sent(self, intake: Intake, seconds: float) -> None:
        """Note how long writing the answer took."""
        super().sent(intake, seconds)
        now, span = time.perf_counter(), _of(intake).span
        if span is not None:
            self._tracer.stage(span, Spent(Stage.SEND, now - seconds, now))

    def _watch(self, intake: Intake) -> Callable[[Job], None]:
        return lambda job: self._ran(intake, job)

    def _ran(self, intake: Intake, job: Job) -> None:
        if job.ran is not None:
            taken, started, ended = job.ran
            times = ((Stage.QUEUE, job.arrived, taken), (Stage.BATCH, taken, started))
            _of(intake).stages += [Spent(*each) for each in (*times, (Stage.EXECUTE, started, ended))]

    def _decoded(self, intake: Intake) -> None:
        now = time.perf_counter()
        super()._decoded(intake)
        _of(intake).stages += [
            Spent(Stage.RECEIVE, intake.started, intake.received),
            Spent(Stage.DECODE, intake.received, now),
        ]

    def _inferred_here(
        self, intake: Intake, request: InferRequest, signature: Signature, arrays: Sequence[Array]
    ) -> Response | Coroutine[Any, Any, Response]:
        stages = _of(intake).stages
        if stages and stages[-1].stage == Stage.DECODE:  # no job ran it: it was run here, after this
            stages.append(Spent(Stage.EXECUTE, stages[-1].ended, time.perf_counter()))
        return super()._inferred_here(intake, request, signature, arrays)

    def _written(
        self, intake: Intake, request: InferRequest, arrays: Sequence[Array], aside: bool = False
    ) -> Response:
        began = time.perf_counter()
        response = super()._written(intake, request, arrays, aside)
        _of(intake).stages.append(Spent(Stage.ENCODE, began, time.perf_counter()))
        return response

    def _end(self, intake: Intake, code: int) -> None:
        if not intake.ended and not isinstance(intake, Call):
            trace, model = _of(intake), intake.model
            attributes: dict[str, str | int] = {
                **intake.wire.attributes(code),
                "tailbound.model.name": model.name,
                "tailbound.model.version": model.version,
            }
            spent = Spent("", intake.started, time.perf_counter())
            name = f"infer {model.name}"
            trace.span = self._tracer.request(
                name, intake.head.headers, spent, trace.stages, attributes, failed=code >= 500
            )
        super()._end(intake, code)


def _of(intake: Intake) -> _Trace:
    if intake.trace is None:
        intake.trace = _Trace()
    trace: _Trace = intake.trace
    return trace
