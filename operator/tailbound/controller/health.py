"""/healthz and /readyz for the kubelet, /metrics for Prometheus."""

from collections.abc import Callable, Iterable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

Check = Callable[[], str | None]
"""What is wrong, or None."""


def _probe(check: Check) -> Callable[[web.Request], "web.Response"]:
    def answer(_: web.Request) -> web.Response:
        problem = check()
        return web.Response(text=(problem or "ok") + "\n", status=200 if problem is None else 503)

    return answer


async def serve_health(port: int, healthy: Check, ready: Check) -> web.AppRunner:
    """Answer 200 or 503 with the reason. `cleanup()` of the result stops it."""

    async def healthz(request: web.Request) -> web.Response:
        return _probe(healthy)(request)

    async def readyz(request: web.Request) -> web.Response:
        return _probe(ready)(request)

    return await _serve(port, [web.get("/healthz", healthz), web.get("/readyz", readyz)])


async def serve_metrics(
    port: int, registry: CollectorRegistry, further: Iterable[web.RouteDef]
) -> web.AppRunner:
    """Answer /metrics in the Prometheus text format, and `further` routes beside it."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return await _serve(port, [web.get("/metrics", metrics), *further])


async def _serve(port: int, routes: list[web.RouteDef]) -> web.AppRunner:
    application = web.Application()
    application.add_routes(routes)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner
