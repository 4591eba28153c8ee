"""From when on a request is late: its bound is counted from its last byte, however long its body took."""

import json
from collections.abc import Callable
from typing import cast

import pytest
from tailbound_runtime.app import App
from tailbound_runtime.batch import UNBATCHED
from tailbound_runtime.budget import Budget
from tailbound_runtime.engine import TensorSpec
from tailbound_runtime.metrics import Metrics
from tailbound_runtime.model import Model
from tailbound_runtime.models import Models
from tailbound_runtime.pending import Pending
from tailbound_runtime.queue import Job
from tailbound_runtime.reception import Head, Intake, Limits
from tailbound_runtime.shedding import Bound
from tailbound_runtime.signature import InferRequest, Signature
from tailbound_runtime.tensors import BY_ONNX_TYPE
from tailbound_runtime.worker import InferenceThread


class Queueing:
    """Takes requests, and keeps the bound of the last one."""

    bound: Bound | None = None

    def check_room(self) -> None:
        """There always is."""

    def here(self, request: InferRequest) -> None:
        """Never."""

    def ask(
        self, request: InferRequest, deadline: float, bound: Bound | None, then: Callable[[Job], None]
    ) -> Job:
        self.bound = bound
        return Job(request, 0.0)


@pytest.mark.parametrize("body_seconds", [0.0, 0.3, 5.0])
@pytest.mark.parametrize(
    ("headers", "seconds"), [({}, None), ({b"x-tailbound-latency-bound-ms": b"250"}, 0.25)]
)
async def test_the_bound_of_a_request_begins_with_its_last_byte(
    body_seconds: float, headers: dict[bytes, bytes], seconds: float | None
) -> None:
    spec = TensorSpec("x", BY_ONNX_TYPE["tensor(float)"], (1,))
    thread = Queueing()
    model, models = Model("m", "1", Metrics()), Models()
    signature = Signature("m", {"x": spec}, {"y": spec}, UNBATCHED, "test_onnx")
    model.open(signature, cast(InferenceThread, thread))
    models.put(model)
    app = App(models, Limits(1000, 60.0), Budget(10_000))
    head = app.head(b"POST", b"/v2/models/m/infer", headers)
    assert isinstance(head, Head)
    intake = app.begin(head)
    assert isinstance(intake, Intake)
    tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}
    assert app.receive(intake, json.dumps({"inputs": [tensor]}).encode()) is None
    ended = intake.started + body_seconds
    assert isinstance(app.infer(intake, ended), Pending)
    assert thread.bound == (None if seconds is None else Bound(ended, seconds))
