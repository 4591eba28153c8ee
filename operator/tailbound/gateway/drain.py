"""Leaving without losing a request: what the preStop hook of the Envoy container waits for.

1. Readiness fails, and every response asks its client to connect elsewhere; new connections are still
   served, because the news of our leaving takes its time through the cluster. A kubelet that shuts its node
   down or evicts ends pods that were not deleted: only their readiness takes those out of Services.
2. Wait until that news should have arrived, and until no client shows that it has not.
3. Wait until no request is under way, and until the connections are closed or have been silent for a while.

`leaving` decides.
"""

import asyncio
import time

from tailbound.api.names import GATEWAY_HTTP_PORT
from tailbound.gateway.admin import EnvoyAdmin, EnvoyAwayError, NoAnswerError
from tailbound.gateway.bootstrap import RunDirectory
from tailbound.gateway.leaving import ClientTraffic, DrainTimes, GoneEnvoy, Leaving, Seen
from tailbound.gateway.listener import STAT_PREFIX
from tailbound.objects.unknown import Unknown
from tailbound.sock_diag import TcpState, tcp_sockets

_DOWNSTREAM = f"http.{STAT_PREFIX}.downstream"
_PATTERN = f"^{_DOWNSTREAM}_(rq_active|rq_completed|cx_active|cx_total)$"


async def drain(run: RunDirectory, times: DrainTimes, port: int = GATEWAY_HTTP_PORT) -> str:
    """Drain the gateway whose Envoy listens on `port`, and say how it ended."""
    run.draining.touch()
    leaving = Leaving(times, time.monotonic())
    async with EnvoyAdmin(run.admin_socket) as admin:
        watch = _Watch(admin, port)
        while True:
            asked = time.monotonic()
            if (why := leaving.outcome(await watch.look(), asked, time.monotonic())) is not None:
                return why
            await asyncio.sleep(times.poll)


class _Watch:
    """Asks Envoy to say that it leaves, once, and what its clients do."""

    def __init__(self, admin: EnvoyAdmin, port: int) -> None:
        self._admin = admin
        self._port = port
        self._is_told = False

    async def look(self) -> Seen:
        try:
            if not self._is_told:
                await self._admin.fail_health()
                self._is_told = True
            # First, so that a connection which Envoy accepts meanwhile is seen at least once.
            waiting = waiting_connections(self._port)
            values = await self._admin.gauges(_PATTERN)
        except EnvoyAwayError:
            return GoneEnvoy()
        except NoAnswerError as error:
            return Unknown(str(error))
        try:
            return ClientTraffic(
                requests=values[f"{_DOWNSTREAM}_rq_active"],
                answered=values[f"{_DOWNSTREAM}_rq_completed"],
                connections=values[f"{_DOWNSTREAM}_cx_active"],
                connected=values[f"{_DOWNSTREAM}_cx_total"],
                waiting=waiting,
            )
        except KeyError as error:
            return Unknown(f"Envoy does not tell {error}")


def waiting_connections(port: int) -> int | Unknown:
    """Connections to a TCP port that the kernel has made and Envoy has not accepted: each worker has a queue.

    No counter of Envoy shows them, and the kernel resets them when Envoy ends.
    """
    try:
        return sum(each.unread for each in tcp_sockets(TcpState.LISTEN) if each.port == port)
    except OSError as error:
        return Unknown(f"the kernel does not list its sockets: {error}")
