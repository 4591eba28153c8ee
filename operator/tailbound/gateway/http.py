"""The sidecar's HTTP ports: for the kubelet, the operator and Prometheus one each."""

import time
from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from pydantic import ValidationError

from tailbound.api.names import ENVOY_START_METRIC
from tailbound.api.traffic import MOST_ASKED, Observed, ObservedQuestion
from tailbound.gateway.envoy import EnvoyProcess
from tailbound.gateway.fairness import Shared, at_most
from tailbound.gateway.observed import Observer
from tailbound.gateway.service_levels import service_levels
from tailbound.gateway.tokens import Gatekeeper, TokenVerdict
from tailbound.kube.errors import KubeError
from tailbound.traffic.model import Route

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_UNAUTHENTICATED = (
    "send 'Authorization: Bearer TOKEN' with a ServiceAccount token whose audience is tailbound-gateway"
)
_BUSY = "other tokens of this address are being checked, or were refused just now: try again in 1 s"
_FORBIDDEN = "only the Tailbound operator's ServiceAccount may read this"


# Requests of one address in flight. The operator asks about many batches of services at once.
_MOST_OF_OPERATOR = 32
_MOST_OF_OTHERS = 8


def health_app(observer: Observer) -> web.Application:
    """Answers probes, in plain text."""
    return _app(_MOST_OF_OTHERS, web.get("/healthz", _healthz), web.get("/readyz", _readyz(observer)))


def observed_app(observer: Observer, gatekeeper: Gatekeeper) -> web.Application:
    """Answers the operator, in JSON whatever happens."""
    return _app(
        _MOST_OF_OPERATOR,
        web.get("/observed", _guarded(gatekeeper, _everything(observer))),
        web.post("/observed", _guarded(gatekeeper, _asked(observer))),
    )


def metrics_app(
    observer: Observer, envoy: EnvoyProcess, routes: Callable[[], Iterable[Route]]
) -> web.Application:
    """Answers Prometheus, in its text format."""
    return _app(_MOST_OF_OTHERS, web.get("/metrics", _metrics(observer, envoy, routes)))


def _app(most_in_flight: int, *routes: web.AbstractRouteDef) -> web.Application:
    app = web.Application(middlewares=[at_most(most_in_flight)])
    app.add_routes(routes)
    return app


async def _healthz(_: web.Request) -> web.Response:
    """The event loop turns. A task that fails ends the process by itself."""
    return web.Response(text="ok\n")


def _readyz(observer: Observer) -> Handler:
    shared = Shared(observer.why_not_ready, time.monotonic)

    async def readyz(_: web.Request) -> web.Response:
        why = await shared.get()
        return web.Response(text="ok\n" if why is None else f"{why}\n", status=200 if why is None else 503)

    return readyz


def _guarded(gatekeeper: Gatekeeper, answer: Handler) -> Handler:
    """`answer`, for the operator only."""

    async def guarded(request: web.Request) -> web.StreamResponse:
        try:
            verdict = await gatekeeper.check(request.headers.get("Authorization"), request.remote or "")
        except (KubeError, TimeoutError) as error:
            return _error(503, f"the token cannot be checked now: {error or type(error).__name__}")
        if verdict is TokenVerdict.UNAUTHENTICATED:
            return _error(401, _UNAUTHENTICATED, {"WWW-Authenticate": "Bearer"})
        if verdict is TokenVerdict.BUSY:
            return _error(429, _BUSY, {"Retry-After": "1"})
        if verdict is TokenVerdict.FORBIDDEN:
            return _error(403, _FORBIDDEN)
        return await answer(request)

    return guarded


def _everything(observer: Observer) -> Handler:
    async def everything(_: web.Request) -> web.Response:
        return _json(await observer.everything())

    return everything


def _asked(observer: Observer) -> Handler:
    async def asked(request: web.Request) -> web.Response:
        try:
            question = ObservedQuestion.model_validate_json(await request.read())
        except web.HTTPRequestEntityTooLarge:
            return _error(413, f"the body is too large: ask for at most {MOST_ASKED} services at a time")
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "the body"
            return _error(400, f'{field}: {first["msg"]}; send {{"services": ["NAMESPACE/NAME"]}}')
        return _json(await observer.answer(question))

    return asked


def _json(document: Observed) -> web.Response:
    return web.Response(text=document.model_dump_json(by_alias=True), content_type="application/json")


def _metrics(observer: Observer, envoy: EnvoyProcess, routes: Callable[[], Iterable[Route]]) -> Handler:
    registry = CollectorRegistry()
    for gauge in (service_levels(routes), *observer.gauges()):
        registry.register(gauge)

    async def read() -> str:
        # An Envoy that took another's place between two readings has other counters: they are left out then.
        start = await envoy.start_if_live()
        of_envoy = await envoy.metrics()
        if await envoy.start_if_live() != start or start is None:
            of_envoy = None
        text = generate_latest(registry).decode() + _gauge(
            "tailbound_gateway_envoy_up", int(of_envoy is not None)
        )
        if of_envoy is not None and start is not None:
            text += _gauge(ENVOY_START_METRIC, start.timestamp()) + of_envoy
        return text

    shared = Shared(read, time.monotonic)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(
            text=await shared.get(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    return metrics


def _gauge(name: str, value: float) -> str:
    return f"# TYPE {name} gauge\n{name} {value!r}\n"


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"error": message}, status=status, headers=headers)
