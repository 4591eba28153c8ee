"""Leaving without losing a request: what the preStop hook of the Envoy container waits for.

1. Readiness fails, and every response asks its client to connect anew elsewhere; new connections are still
   served, because the news of our leaving takes its time through the cluster.
2. Wait until that news must have arrived.
3. Wait until no request is under way, and until the connections are closed or have been silent for a while.
"""

import asyncio
import time
from dataclasses import dataclass

from tailbound.gateway.admin import EnvoyAdmin, EnvoyAway
from tailbound.gateway.bootstrap import RunDirectory
from tailbound.gateway.listener import STAT_PREFIX

_REQUESTS = f"http.{STAT_PREFIX}.downstream_rq_active"
_CONNECTIONS = f"http.{STAT_PREFIX}.downstream_cx_active"


@dataclass(frozen=True)
class DrainTimes:
    """In seconds."""

    propagation: float = 5.0
    """How long other nodes may go on sending new connections."""
    idle: float = 15.0
    """After this, connections without a request are given up."""
    longest: float = 300.0
    """After this, requests are given up too."""
    poll: float = 0.25


async def drain(run: RunDirectory, times: DrainTimes) -> str:
    """Drain, and say how it ended. An Envoy that is gone already is drained."""
    run.draining.touch()
    begun = time.monotonic()
    async with EnvoyAdmin(run.admin_socket) as admin:
        try:
            await admin.fail_health()
            await asyncio.sleep(times.propagation)
            while (passed := time.monotonic() - begun) < times.longest:
                gauges = await admin.gauges(f"^http.{STAT_PREFIX}.downstream_(rq|cx)_active$")
                requests, connections = gauges.get(_REQUESTS, 0), gauges.get(_CONNECTIONS, 0)
                if requests == 0 and (connections == 0 or passed > times.idle):
                    return f"drained after {passed:.1f} s, with {connections} idle connections left"
                await asyncio.sleep(times.poll)
        except EnvoyAway as error:
            return f"Envoy is gone: {error}"
    return f"gave up after {times.longest:.0f} s with {requests} requests under way"
