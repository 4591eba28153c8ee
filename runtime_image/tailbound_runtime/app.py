"""What a request over HTTP is answered with: bodies and status codes. `routes.py` has the paths.

HEAD goes where GET goes. Every error is {"error": "…"}. The Content-Type of a request is not looked at: the
protocol knows one, curl -d sends another.
"""

import time
from collections.abc import Coroutine, Iterable, Mapping
from enum import Enum
from functools import partial
from typing import Any, Final

import orjson
import structlog

from tailbound_runtime import describe
from tailbound_runtime.budget import RETRY_AFTER, Budget, Share
from tailbound_runtime.control import Call, Control, check_parameters
from tailbound_runtime.errors import ApiError
from tailbound_runtime.exposition import CONTENT_TYPE, Exposition
from tailbound_runtime.inference import check_room
from tailbound_runtime.inferences import UNEXPECTED, Inferences
from tailbound_runtime.models import Models, Target
from tailbound_runtime.pending import Pending
from tailbound_runtime.reception import Head, Intake, Limits
from tailbound_runtime.responses import JSON, Response, refusal
from tailbound_runtime.routes import Route, path_of, repository_call
from tailbound_runtime.wire import REST

log = structlog.get_logger(__name__)


class Phase(Enum):
    """Where the process is in its life; it only moves forward."""

    LOADING = 1
    READY = 2
    DRAINING = 3


class App(Inferences):
    """The answers over HTTP; the gRPC surface uses its models and its inferences, too.

    phase: moved by the server's life cycle
    control: what loads and unloads models; None without the repository API
    """

    def __init__(self, models: Models, limits: Limits, budget: Budget) -> None:
        super().__init__(models, limits, budget)
        self.phase = Phase.LOADING
        self.control: Control | None = None
        self._call_limits = limits.of_calls()
        self._exposition = Exposition(models)

    def head(self, method: bytes, url: bytes, headers: Mapping[bytes, bytes]) -> Head | Response:
        """What a head says, if the body decides, and otherwise what it is answered with."""
        target = self.models.targets.get(url)
        try:
            path = ""
            if target is None:
                path = path_of(url)
                target = self.models.targets.get(path.encode())
            if target is not None and target.route is Route.INFER and method == b"POST":
                return Head(path.encode() or url, headers, self._limits)
            return self._answer(method.decode(), path or path_of(url), target, headers)
        except ApiError as error:
            return refusal(error)
        except Exception:
            log.exception("a request failed unexpectedly")
            return refusal(UNEXPECTED)

    def begin(self, head: Head) -> Intake | Response:
        """Begin an inference, or a call, whose body decides the rest."""
        target = self.models.targets.get(head.path)
        if target is None or target.model is None:  # a call, or its model has gone since
            return self._begun(head)
        model = target.model
        model.metrics.begun()
        model.take()
        intake = Intake(head, time.perf_counter(), self._limits, Share(self.budget), model, REST)
        if model.is_open and head.refusal is not None:
            return self._refused(intake, head.refusal)
        try:
            _, thread = model.loaded()
            check_room(thread, model.metrics)
        except ApiError as error:
            return self._refused(intake, error)
        return intake

    def _answer(
        self, method: str, path: str, target: Target | None, headers: Mapping[bytes, bytes]
    ) -> Head | Response:
        call = repository_call(path) if target is None else None
        route = call[0] if call is not None else None if target is None else target.route
        if route is None:
            raise self._not_found(path)
        allowed = route.partition(" ")[0]
        if method != allowed and not (allowed == "GET" and method == "HEAD"):
            raise ApiError(405, f"{path} takes {allowed}, not {method}", [(b"allow", allowed.encode())])
        if route is Route.METRICS:
            return Response(200, [(b"content-type", CONTENT_TYPE)], [self._exposition.render()])
        if call is not None and self.control is None:
            raise _UNCONTROLLED
        if call is not None:
            return Head(path.encode(), headers, self._call_limits)
        model = None if target is None else target.model
        status, described = describe.answer(route, self.models, model, self.phase is Phase.READY)
        return Response(status, [JSON], [orjson.dumps(described)])

    def _begun(self, head: Head) -> Intake | Response:
        path = head.path.decode()
        call = repository_call(path)
        if call is None or self.control is None:
            return refusal(self._not_found(path))
        if head.refusal is not None:
            return refusal(head.refusal)
        work = self.control.load if call[0] is Route.LOAD else self.control.unload
        share = Share(self.budget)
        return Call(head, time.perf_counter(), self._call_limits, share, partial(work, call[1]))

    def _not_found(self, path: str) -> ApiError:
        if path.startswith("/v2/models/"):
            return ApiError(404, f"this server has no {path}: {self.models.known()}")
        return ApiError(404, f"this server has no {path}: GET /v2 says what answers here")

    def infer(self, intake: Intake, now: float) -> Response | Pending | Coroutine[Any, Any, Response]:
        """Infer, or answer a call of the repository API; outcomes as of Inferences."""
        if isinstance(intake, Call):
            return self._called(intake)
        return super().infer(intake, now)

    async def _called(self, call: Call) -> Response:
        try:
            call.check()
            self._check_ready()
            await call.work()
            return Response(200, [JSON], [b"{}"])
        except ApiError as error:
            return refusal(error)
        except Exception:
            log.exception("a call of the repository API failed unexpectedly")
            return refusal(UNEXPECTED)
        finally:
            call.end()

    def controlled(self, parameters: Iterable[str]) -> Control:
        """What loads and unloads models, for a call with these parameters. Raises ApiError."""
        if self.control is None:
            raise _UNCONTROLLED
        check_parameters(parameters)
        self._check_ready()
        return self.control

    def _check_ready(self) -> None:
        if self.phase is not Phase.READY:
            raise ApiError(503, "this server is not ready, or about to end", [RETRY_AFTER])


_UNCONTROLLED: Final = ApiError(
    400,
    "this server has its models from its start to its end, and no other: start it with --model-control "
    "explicit, or TAILBOUND_MODEL_CONTROL=explicit, to load and unload them",
)
