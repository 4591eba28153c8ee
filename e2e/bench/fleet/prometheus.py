"""A Prometheus that knows every signal of every service, and in which the traffic never changes."""

import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from tailbound.autoscale.model import TICK
from tailbound.controller.signals import QUERIES

from tests.support.signals import batched

_RATE, _ROWS = 10.0, 4.0
_BASE_SECONDS, _ROW_SECONDS = 0.02, 0.005
_PAST = 180
_MOMENT = "@moment@"
_NOT_ANSWERED = frozenset(
    {
        "copies",
        "late",
        "shed",
        "answered",
        "inside",
        "least inside",
        "most inside",
        "replicas",
        "fewest replicas",
    }
)
"""No counter is there twice, no request is late, and what gateways tell of servers is not asked for where
batches are known."""


@dataclass
class StubPrometheus:
    """Answers from texts that are made once, so that its answers cost this process little."""

    namespace: str
    url: str = ""
    revisions: dict[str, str] = field(default_factory=dict)
    """The revision of each service, by its name."""
    asked: int = 0
    _texts: dict[str, str] = field(default_factory=dict)

    def know(self, revisions: dict[str, str]) -> None:
        """These services are there, and no others."""
        self.revisions, self._texts = revisions, {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator["StubPrometheus"]:
        """Listen on a free port."""
        application = web.Application()
        application.add_routes([web.route("*", "/api/v1/query", self._answer)])
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        parameters = {**request.query, **(await request.post())}
        expression = str(parameters["query"])
        if expression not in QUERIES:
            return self._past(expression)
        if expression not in self._texts:
            self._texts[expression] = self._vector(QUERIES[expression])
        self.asked += 1
        text = self._texts[expression].replace(_MOMENT, f"{time.time():.3f}")
        return web.Response(text=text, content_type="application/json")

    def _vector(self, signals: tuple[str, ...]) -> str:
        found = [
            {"metric": self._labels(service, signal=signal), "value": [_MOMENT, str(_value(signal))]}
            for service in self.revisions
            for signal in signals
            if signal not in _NOT_ANSWERED
        ]
        return _success("vector", found).replace(f'"{_MOMENT}"', _MOMENT)

    def _past(self, expression: str) -> web.Response:
        now = time.time()
        values = [[now - TICK * ago, str(_RATE)] for ago in range(_PAST, 0, -1)]
        asked = [name for name in re.findall(r"/([-a-z0-9]+)", expression) if name in self.revisions]
        found = [{"metric": self._labels(service), "values": values} for service in dict.fromkeys(asked)]
        return web.Response(text=_success("matrix", found), content_type="application/json")

    def _labels(self, service: str, **others: str) -> dict[str, str]:
        named = {"namespace": self.namespace, "service": service, "revision": self.revisions[service]}
        return {**named, **others}


def _success(kind: str, result: list[dict[str, Any]]) -> str:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}})


def _value(signal: str) -> float:
    """A server that is lightly loaded."""
    values = {
        **batched(_RATE, _ROWS, _BASE_SECONDS, _ROW_SECONDS),
        "gateways": 1.0,
    }
    return values.get(signal, _RATE)
