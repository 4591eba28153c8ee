"""When SIGTERM may reach a server that cuts what is in flight.

| time passed | connections | the server gets SIGTERM |
|---|---|---|
| less than `least` | any | later: gateways may not know yet that the pod goes |
| `longest` or more | any | now: the pod's grace period ends |
| between | unknown | later |
| between | one has a request, or had one within `settled` | later |
| between | none has a request | now |

A connection has a request unless the server was the last to send and both sides have been silent for
`QUIET_SECONDS`. A gateway closes its connections to a pod that goes as soon as their requests are answered;
the silent ones are those of other clients, for example of a Prometheus that scrapes the same port.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tailbound.hold.connections import Connections, TcpConnection
from tailbound.objects.unknown import Unknown

QUIET_SECONDS: Final = 30.0


@dataclass(frozen=True)
class HoldTimes:
    """The times of a hold, in seconds."""

    least: float
    """Time for which SIGTERM is kept back at least: gateways hear within it that the pod goes."""
    longest: float
    """Time after which SIGTERM is kept back no longer."""
    settled: float = 1.0
    """Time without a request after which the server is idle."""
    poll: float = 0.25


def has_request(connection: TcpConnection) -> bool:
    """Whether a request may be open on the connection."""
    answered = connection.sent_ago <= connection.received_ago and not connection.pending
    return not answered or connection.sent_ago < QUIET_SECONDS


@dataclass
class Hold:
    """One hold from its begin on; `now` is always in seconds of the same monotonic clock."""

    times: HoldTimes
    begun: float
    _last_request: float | None = None
    _seen: str = "nothing was seen yet"

    def release(self, connections: Connections, now: float) -> str | None:
        """Why the server gets SIGTERM now; None: not yet."""
        if isinstance(connections, Unknown):
            self._last_request, self._seen = now, connections.reason
        else:
            requests = sum(map(has_request, connections))
            self._seen = f"{requests} of {len(connections)} connections have a request"
            if requests:
                self._last_request = now
        passed = now - self.begun
        if passed >= self.times.longest:
            return f"gave up after {passed:.1f} s: {self._seen}"
        busy = self._last_request is not None and now - self._last_request < self.times.settled
        if passed < self.times.least or busy:
            return None
        return f"idle after {passed:.1f} s: {self._seen}"


def wait(
    times: HoldTimes,
    look: Callable[[], Connections],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Wait until SIGTERM may reach the server; the reason, for the log."""
    hold = Hold(times, clock())
    while (why := hold.release(look(), clock())) is None:
        sleep(times.poll)
    return why
