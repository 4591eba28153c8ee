"""The sidecar's HTTP port: /healthz, /readyz, /observed, /metrics."""

from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from tailbound.api.names import ENVOY_START_METRIC
from tailbound.gateway.envoy import EnvoyProcess
from tailbound.gateway.observed import GatewayMetrics, Observer
from tailbound.gateway.tokens import Gatekeeper, TokenVerdict
from tailbound.kube.errors import KubeError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_UNAUTHENTICATED = (
    "send 'Authorization: Bearer TOKEN' with a ServiceAccount token whose audience is tailbound-gateway"
)
_FORBIDDEN = "only the Tailbound operator's ServiceAccount may read this"


def build_app(observer: Observer, envoy: EnvoyProcess, gatekeeper: Gatekeeper) -> web.Application:
    """The application. /healthz and /readyz answer in plain text, /observed in JSON whatever happens."""
    app = web.Application()
    app.add_routes(
        [
            web.get("/healthz", _healthz),
            web.get("/readyz", _readyz(observer)),
            web.get("/observed", _observed(observer, gatekeeper)),
            web.get("/metrics", _metrics(observer, envoy)),
        ]
    )
    return app


async def _healthz(_: web.Request) -> web.Response:
    """The event loop turns. A task that fails ends the process by itself."""
    return web.Response(text="ok\n")


def _readyz(observer: Observer) -> Handler:
    async def readyz(_: web.Request) -> web.Response:
        why = await observer.why_not_ready()
        return web.Response(text="ok\n" if why is None else f"{why}\n", status=200 if why is None else 503)

    return readyz


def _observed(observer: Observer, gatekeeper: Gatekeeper) -> Handler:
    async def observed(request: web.Request) -> web.Response:
        try:
            verdict = await gatekeeper.check(request.headers.get("Authorization"))
        except (KubeError, TimeoutError) as error:
            return _error(503, f"the token cannot be checked now: {error or type(error).__name__}")
        if verdict is TokenVerdict.UNAUTHENTICATED:
            return _error(401, _UNAUTHENTICATED, {"WWW-Authenticate": "Bearer"})
        if verdict is TokenVerdict.FORBIDDEN:
            return _error(403, _FORBIDDEN)
        document = await observer.observed(request.query.getall("service", []))
        body = document.model_dump_json(by_alias=True)
        return web.Response(text=body, content_type="application/json")

    return observed


def _metrics(observer: Observer, envoy: EnvoyProcess) -> Handler:
    registry = CollectorRegistry()
    registry.register(GatewayMetrics(observer))

    async def metrics(_: web.Request) -> web.Response:
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
        return web.Response(text=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    return metrics


def _gauge(name: str, value: float) -> str:
    return f"# TYPE {name} gauge\n{name} {value!r}\n"


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"error": message}, status=status, headers=headers)
