"""A model server that can be told to misbehave. It answers each prediction with its revision's name.

    POST /v2/models/NAME/infer   {"revision": REVISION}, or a fault
    POST /models/NAME/answer     the same, by a protocol of its own
    GET /models/NAME/schema      its inputs and outputs; INPUTS is the number of its inputs, 1 if not given
    GET /v2/health/ready         200; 503 while it is to be never ready, or drains; /alive says the same
    GET /v2/health/live          200
    POST /_faults                {"ERROR_FRACTION": 0.5, ...}: these hold from now on, the others stay
    GET /_counts                 {"good": 12, "failed": 3, "first_bad": SECONDS or null, ...}
    GET /metrics                 what the real runtime says of its batches, queue and requests

The environment sets what holds at first:

    SLOW_FRACTION, DELAY_MS   this part of the requests is answered so much later
    ERROR_FRACTION            this part is answered with 500
    HANG_FRACTION             this part is never answered
    CRASH_AFTER               the process ends with status 1 at that many requests; 0: as it starts
    NEVER_READY               1: readiness always answers 503

and how fast the model is, which stays:

    SERVICE_SECONDS_BASE, SERVICE_SECONDS_PER_ROW, MAX_BATCH
        a batch of n requests takes BASE + PER_ROW * n seconds, at most MAX_BATCH requests form one, and
        there is one at a time; without these, predictions take no time. What would be answered later than the
        header x-tailbound-latency-bound-ms allows is refused, as the real runtime does it.
    NO_METRICS                1: /metrics answers 404
    NO_SHEDDING               1: that header is ignored
    FORGED_METRICS            what /metrics says besides, in the Prometheus text format
    RPC_PORT                  it answers gRPC at this port too: see rpc.py

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
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from aiohttp import web

from .service_time import Measured, ServiceTime, SleepingModel, WouldBeLateError

PORT = 8080
HANG_SECONDS = 3600
BOUND_HEADER = "x-tailbound-latency-bound-ms"


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
    service_time: ServiceTime = field(default_factory=ServiceTime)
    timeout_seconds: float = 30.0
    inputs: int = 1
    tells_metrics: bool = True
    sheds: bool = True
    forged: bytes = b""
    draining: bool = False
    first_bad: float | None = None
    counts: Counter[str] = field(default_factory=Counter)
    dice: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self.measured = Measured()
        self.model = SleepingModel(self.service_time, self.measured)

    async def infer(self, request: web.Request) -> web.Response:
        """One prediction, or one fault."""
        with self.measured.in_flight.track_inprogress():
            response = await self._infer(request)
        self.measured.requests.labels(str(response.status)).inc()
        return response

    async def _infer(self, request: web.Request) -> web.Response:
        await request.read()
        bound_seconds = float(request.headers.get(BOUND_HEADER, "inf")) / 1000 if self.sheds else float("inf")
        try:
            if not await self.predicted(bound_seconds):
                return web.json_response({"revision": self.revision, "error": "told to fail"}, status=500)
        except WouldBeLateError:
            self.counts["shed"] += 1
            headers = {"Retry-After": "1", "X-Tailbound-Shed": "true"}
            return web.json_response({"error": "overloaded"}, status=503, headers=headers)
        except TimeoutError:
            return web.json_response({"revision": self.revision, "error": "too late"}, status=504)
        headers = {"Connection": "close"} if self.draining else {}
        return web.json_response({"revision": self.revision}, headers=headers)

    async def predicted(self, bound_seconds: float) -> bool:
        """Whether one prediction succeeds, after the time it takes.

        Raises WouldBeLateError for one that is refused, and TimeoutError.
        """
        if self.counts.total() >= self.faults.crash_after:
            os._exit(1)
        kind = self.faults.choose(self.dice.random())
        self.counts[kind] += 1
        if kind != "good" and self.first_bad is None:
            self.first_bad = time.time()
        if kind == "failed":
            return False
        if kind != "good":
            await asyncio.sleep(HANG_SECONDS if kind == "hung" else self.faults.delay_ms / 1000)
        await self.model.infer(self.timeout_seconds, bound_seconds)
        return True

    async def schema(self, request: web.Request) -> web.Response:
        """The inputs and outputs of the model."""
        inputs = [_tensor(f"x{number}") for number in range(self.inputs)]
        name = request.match_info["name"]
        return web.json_response({"name": name, "inputs": inputs, "outputs": [_tensor("y")]})

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

    async def metrics(self, _: web.Request) -> web.Response:
        """The Prometheus text format."""
        if not self.tells_metrics:
            return web.Response(status=404)
        return web.Response(body=self.measured.render() + self.forged, content_type="text/plain")

    async def _run_model(self, _: web.Application) -> AsyncIterator[None]:
        running = asyncio.create_task(self.model.run())
        yield
        running.cancel()

    def application(self) -> web.Application:
        """Every path."""
        app = web.Application()
        app.add_routes(
            [
                web.post("/v2/models/{name}/infer", self.infer),
                web.post("/models/{name}/answer", self.infer),
                web.get("/models/{name}/schema", self.schema),
                web.get("/alive", self.ready),
                web.get("/v2/health/ready", self.ready),
                web.get("/v2/health/live", self.live),
                web.post("/_faults", self.set_faults),
                web.get("/_counts", self.tell),
                web.get("/metrics", self.metrics),
            ]
        )
        app.cleanup_ctx.append(self._run_model)
        return app


def _tensor(name: str) -> dict[str, object]:
    return {"name": name, "datatype": "FP32", "shape": [-1, -1]}


def service_time(given: Mapping[str, str]) -> ServiceTime:
    """What the environment says of the model's speed."""
    return ServiceTime(
        float(given.get("SERVICE_SECONDS_BASE", 0)),
        float(given.get("SERVICE_SECONDS_PER_ROW", 0)),
        int(given.get("MAX_BATCH", 1)),
    )


async def serve(server: Server, drain_seconds: float, rpc_port: int | None) -> None:
    """Serve until SIGTERM, and for so long after it."""
    told_to_stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told_to_stop.set)
    # The requests that wait for the model are answered before it ends; a hung one is not waited for.
    longest = server.timeout_seconds if server.service_time.takes_time else 1
    runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=longest)
    await runner.setup()
    async with AsyncExitStack() as stack:
        if rpc_port is not None:
            from .rpc import answering  # gRPC takes seconds to import in a small pod

            await stack.enter_async_context(answering(server, rpc_port, longest))
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
    server = Server(
        os.environ["TAILBOUND_REVISION"],
        faults,
        service_time(os.environ),
        float(os.environ["TAILBOUND_REQUEST_TIMEOUT_SECONDS"]),
        inputs=int(os.environ.get("INPUTS", "1")),
        tells_metrics=os.environ.get("NO_METRICS") != "1",
        sheds=os.environ.get("NO_SHEDDING") != "1",
        forged=os.environ.get("FORGED_METRICS", "").encode(),
    )
    rpc_port = os.environ.get("RPC_PORT")
    drain_seconds = float(os.environ["TAILBOUND_DRAIN_SECONDS"])
    asyncio.run(serve(server, drain_seconds, int(rpc_port) if rpc_port else None))
    return 0


if __name__ == "__main__":
    sys.exit(main())
