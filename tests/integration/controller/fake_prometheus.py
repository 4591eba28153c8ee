"""A Prometheus of one service whose traffic a test decides on, in a time that runs faster than ours."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web
from tailbound.controller.signals import LATENCY_WINDOW, QUERIES

from tests.support.signals import batched

SPEED: Final = 20
"""Seconds that pass here in one of ours: a value is believed for 45 of them, and a busy machine may take two
of ours to come to it."""


@dataclass
class FakePrometheus:
    """Answers the autoscaler's queries for the revisions that it is told of.

    A batch takes base + per_row * n seconds and holds `rows` requests.
    """

    namespace: str
    service: str = "churn"
    rates: dict[str, float] = field(default_factory=dict)
    """Requests per second by revision."""
    late: float = 0.0
    rows: float = 4.0
    base: float = 0.05
    per_row: float = 0.0125
    gateways: int = 2
    url: str = ""
    _began: float = field(default_factory=time.time)

    def now(self) -> float:
        """Unix time, as it passes here."""
        return self._began + (time.time() - self._began) * SPEED

    @asynccontextmanager
    async def running(self) -> AsyncIterator["FakePrometheus"]:
        """Listen on a free port."""
        application = web.Application()
        application.add_routes([web.route("*", "/api/v1/{what}", self._query)])
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _query(self, request: web.Request) -> web.Response:
        parameters = {**request.query, **(await request.post())}
        expression = str(parameters.get("query"))
        signals = QUERIES.get(expression, ())
        answer = [self._series(name, each) for name in self.rates for each in signals if each != "copies"]
        kind = "vector" if expression in QUERIES else "matrix"
        return web.json_response({"status": "success", "data": {"resultType": kind, "result": answer}})

    def _series(self, revision: str, signal: str) -> dict[str, Any]:
        labels = {
            "namespace": self.namespace,
            "service": self.service,
            "revision": revision,
            "signal": signal,
        }
        return {"metric": labels, "value": [self.now(), str(self._value(self.rates[revision], signal))]}

    def _value(self, rate: float, signal: str) -> float:
        values = {
            **batched(rate, self.rows, self.base, self.per_row),
            "gateways": float(self.gateways),
            "late": rate * LATENCY_WINDOW * self.late,
        }
        return values.get(signal, rate)
