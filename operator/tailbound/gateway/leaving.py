"""When a gateway that drains may stop: the decision, from what was seen. The edge is `drain`."""

from dataclasses import dataclass
from typing import TypeAlias

from tailbound.objects.unknown import Unknown


@dataclass(frozen=True)
class DrainTimes:
    """The times of a drain, in seconds."""

    longest: float
    """After this, requests are given up too."""
    propagation: float = 5.0
    """How long at least other nodes may go on sending new connections."""
    quiet: float = 2.0
    """Without a request, or a new connection, for so long, no client sends any more."""
    idle: float = 15.0
    """After this, connections without a request are given up, and new ones without a request are probes'."""
    poll: float = 0.25


@dataclass(frozen=True)
class ClientTraffic:
    """What clients have at this gateway."""

    requests: int
    """Requests under way."""
    answered: int
    """Requests answered since Envoy's start. Those of load balancers, which ask for its health, are none."""
    connections: int
    """Open connections."""
    connected: int
    """Connections accepted since Envoy's start."""
    waiting: int | Unknown
    """Connections in the accept queues."""

    def __str__(self) -> str:
        waiting = self.waiting.reason if isinstance(self.waiting, Unknown) else self.waiting
        return f"requests: {self.requests}, connections: {self.connections}, not accepted yet: {waiting}"


class GoneEnvoy:
    """Seen instead of traffic when no Envoy runs."""


Seen: TypeAlias = ClientTraffic | GoneEnvoy | Unknown


class Leaving:
    """One drain from its begin on; `now` is always in seconds of the same monotonic clock."""

    def __init__(self, times: DrainTimes, begun: float) -> None:
        self._times = times
        self._begun = begun
        self._before: ClientTraffic | None = None
        self._last_request = self._last_connection = begun
        self._known = "nothing was seen yet"

    def outcome(self, seen: Seen, asked: float, now: float) -> str | None:
        """Why the gateway may stop; None: not yet. `seen` is of some moment from `asked` to `now`.

        The first row that holds decides.

        | time passed             | seen                                           | the gateway             |
        |-------------------------|------------------------------------------------|-------------------------|
        | any                     | no Envoy runs                                  | stops: it serves none   |
        | `longest` or more       | anything else                                  | stops: it gives up      |
        | any                     | not known                                      | goes on                 |
        | less than `propagation` | any traffic                                    | goes on                 |
        | any                     | requests under way                             | goes on                 |
        | any                     | a connection waits to be accepted              | goes on                 |
        | any                     | one of these, or an answer, within `quiet`     | goes on: clients come   |
        | `idle` or less          | open connections                               | goes on                 |
        | `idle` or less          | a new connection within `quiet`                | goes on: clients come   |
        | any                     | anything else                                  | stops: it is drained    |

        So clients that still send requests are served up to `longest`. Idle connections, and probes, which
        only connect or ask for the health, delay the end up to `idle`. A kernel that does not tell of its
        accept queues delays nothing: Envoy's counters show the same clients a moment later.
        """
        passed = now - self._begun
        if isinstance(seen, GoneEnvoy):
            return f"Envoy does not run after {passed:.1f} s"
        self._note(seen, now)
        if passed >= self._times.longest:
            return f"gave up after {passed:.1f} s; {self._known}"
        if isinstance(seen, Unknown) or passed < self._times.propagation or self._is_used(seen, asked):
            return None
        if passed <= self._times.idle and self._may_be_used(seen, asked):
            return None
        return f"drained after {passed:.1f} s; {self._known}"

    def _note(self, seen: ClientTraffic | Unknown, now: float) -> None:
        if isinstance(seen, Unknown):
            self._known = seen.reason
            return
        before, self._before, self._known = self._before, seen, str(seen)
        if seen.requests or _waits(seen) or before is None or seen.answered != before.answered:
            self._last_request = now
        if before is None or seen.connected != before.connected:
            self._last_connection = now

    def _is_used(self, seen: ClientTraffic, asked: float) -> bool:
        return bool(seen.requests) or _waits(seen) or asked - self._last_request < self._times.quiet

    def _may_be_used(self, seen: ClientTraffic, asked: float) -> bool:
        return bool(seen.connections) or asked - self._last_connection < self._times.quiet


def _waits(seen: ClientTraffic) -> bool:
    return not isinstance(seen.waiting, Unknown) and seen.waiting > 0
