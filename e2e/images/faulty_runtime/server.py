"""A model server that can be told to misbehave. It answers each prediction with its revision's name.

    POST /v2/models/NAME/infer   {"revision": REVISION}, or a fault
    GET /v2/health/ready         200; 503 while it is to be never ready, or drains
    GET /v2/health/live          200
    POST /_faults                {"ERROR_FRACTION": 0.5, ...}: these hold from now on, the others stay
    GET /_counts                 {"good": 12, "failed": 3, "first_bad": SECONDS or null, ...}

The environment sets what holds at first:

    SLOW_FRACTION, DELAY_MS   this part of the requests is answered so much later
    ERROR_FRACTION            this part is answered with 500
    HANG_FRACTION             this part is never answered
    CRASH_AFTER               the process ends with status 1 at that many requests; 0: as it starts
    NEVER_READY               1: readiness always answers 503

Like every runtime it reads its model before it is ready, and serves on for TAILBOUND_DRAIN_SECONDS after
SIGTERM.
"""

import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from aiohttp import web

PORT = 8080
HANG_SECONDS = 3600


@dataclass(frozen=True)
class Faults:
    """What goes wrong. Raises ValueError for parts that are more than the whole."""

    slow_fraction: float = 0.0
    delay_ms: float = 0.0
    error_fraction: float = 0.0
    hang_fraction: float = 0.0
    crash_after: float = float("inf")
    never_ready: float = 0.0

    def __post_init__(self) -> None:
        parts = self.slow_fraction + self.error_fraction + self.hang_fraction
        if not 0 <= parts <= 1:
            raise ValueError(f"the fractions sum up to {parts:g}: give parts of 1")

    def with_values(self, given: Mapping[str, object]) -> "Faults":
        """These faults with those of the given ones that have a value."""
        names = {one.name.upper(): one.name for one in fields(self)}
        values = {names[key]: float(str(value)) for key, value in given.items() if key in names}
        return replace(self, **values)

    def choose(self, chance: float) -> str:
        """What becomes of the request that this number from 0 to 1 was drawn for."""
        for kind, part in (
            ("failed", self.error_fraction),
            ("hung", self.hang_fraction),
            ("slow", self.slow_fraction),
        ):
            if chance < part:
                return kind
            chance -= part
        return "good"


@dataclass
class Server:
    """The faults that hold now, and what was served so far."""

    revision: str
    faults: Faults
    draining: bool = False
    first_bad: float | None = None
    counts: Counter[str] = field(default_factory=Counter)
    dice: random.Random = field(default_factory=random.Random)

    async def infer(self, _: web.Request) -> web.Response:
        """One prediction, or one fault."""
        if self.counts.total() >= self.faults.crash_after:
            os._exit(1)
        kind = self.faults.choose(self.dice.random())
        self.counts[kind] += 1
        if kind != "good" and self.first_bad is None:
            self.first_bad = time.time()
        if kind == "failed":
            return web.json_response({"revision": self.revision, "error": "told to fail"}, status=500)
        if kind != "good":
            await asyncio.sleep(HANG_SECONDS if kind == "hung" else self.faults.delay_ms / 1000)
        headers = {"Connection": "close"} if self.draining else {}
        return web.json_response({"revision": self.revision}, headers=headers)

    async def ready(self, _: web.Request) -> web.Response:
        """Readiness."""
        return web.Response(status=503 if self.draining or self.faults.never_ready else 200)

    async def live(self, _: web.Request) -> web.Response:
        """Liveness."""
        return web.Response()

    async def set_faults(self, request: web.Request) -> web.Response:
        """Other faults from now on."""
        self.faults = self.faults.with_values(await request.json())
        self.first_bad = None
        return web.json_response({"at": time.time()})

    async def tell(self, _: web.Request) -> web.Response:
        """What was served so far."""
        return web.json_response({**self.counts, "first_bad": self.first_bad})

    def application(self) -> web.Application:
        """Every path."""
        app = web.Application()
        app.add_routes(
            [
                web.post("/v2/models/{name}/infer", self.infer),
                web.get("/v2/health/ready", self.ready),
                web.get("/v2/health/live", self.live),
                web.post("/_faults", self.set_faults),
                web.get("/_counts", self.tell),
            ]
        )
        return app


async def serve(server: Server, drain_seconds: float) -> None:
    """Serve until SIGTERM, and for so long after it."""
    told_to_stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told_to_stop.set)
    runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, port=PORT).start()
    await told_to_stop.wait()
    server.draining = True
    await asyncio.sleep(drain_seconds)
    await runner.cleanup()


def main() -> int:
    """Read the model, then serve. The exit status is 1 if it is to crash at once."""
    faults = Faults().with_values(os.environ)
    if faults.crash_after == 0:
        return 1
    Path(os.environ["TAILBOUND_MODEL_PATH"]).read_bytes()
    server = Server(os.environ["TAILBOUND_REVISION"], faults)
    asyncio.run(serve(server, float(os.environ.get("TAILBOUND_DRAIN_SECONDS", "1"))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
