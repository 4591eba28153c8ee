"""Leaving without losing a request: what the preStop hook of the Envoy container waits for.

1. Readiness fails, and every response asks its client to connect elsewhere; new connections are still
   served, because the news of our leaving takes its time through the cluster.
2. Wait until that news should have arrived, and until no new connection says that it has not.
3. Wait until no request is under way, and until the connections are closed or have been silent for a while.
"""

import asyncio
import time
from dataclasses import dataclass

from tailbound.gateway.admin import EnvoyAdmin, EnvoyAway, EnvoySlow
from tailbound.gateway.bootstrap import RunDirectory
from tailbound.gateway.listener import STAT_PREFIX

_REQUESTS = f"http.{STAT_PREFIX}.downstream_rq_active"
_CONNECTIONS = f"http.{STAT_PREFIX}.downstream_cx_active"
_EVER_CONNECTED = f"http.{STAT_PREFIX}.downstream_cx_total"
_PATTERN = f"^http.{STAT_PREFIX}.downstream_(rq_active|cx_active|cx_total)$"


@dataclass(frozen=True)
class DrainTimes:
    """The times of a drain, in seconds."""

    propagation: float = 5.0
    """How long at least other nodes may go on sending new connections."""
    quiet: float = 2.0
    """Without a new connection for so long, no client sends any more."""
    idle: float = 15.0
    """After this, connections without a request are given up, and new ones are a probe's."""
    longest: float = 300.0
    """After this, requests are given up too."""
    poll: float = 0.25


async def drain(run: RunDirectory, times: DrainTimes) -> str:
    """Drain, and say how it ended. An Envoy that is gone already is drained; one that is slow is not."""
    run.draining.touch()
    async with EnvoyAdmin(run.admin_socket) as admin:
        try:
            return await _leave(admin, times)
        except EnvoyAway as error:
            return f"Envoy is gone: {error}"


async def _leave(admin: EnvoyAdmin, times: DrainTimes) -> str:
    begun = newest = time.monotonic()
    failing, requests, ever_connected = False, 0, -1
    while (passed := time.monotonic() - begun) < times.longest:
        try:
            if not failing:
                await admin.fail_health()
                failing = True
            gauges = await admin.gauges(_PATTERN)
        except EnvoySlow:
            await asyncio.sleep(times.poll)
            continue
        requests, connections = gauges.get(_REQUESTS, 0), gauges.get(_CONNECTIONS, 0)
        if gauges.get(_EVER_CONNECTED, 0) != ever_connected:
            ever_connected, newest = gauges.get(_EVER_CONNECTED, 0), time.monotonic()
        left = connections == 0 and time.monotonic() - newest >= times.quiet
        if requests == 0 and passed >= times.propagation and (left or passed > times.idle):
            return f"drained after {passed:.1f} s, with {connections} idle connections left"
        await asyncio.sleep(times.poll)
    return f"gave up after {times.longest:.0f} s with {requests} requests under way"
