"""The connections of one server, over HTTP and gRPC together: so many at once, and no more.

| connections there are | a new one |
|---|---|
| fewer than the limit | is taken |
| as many, and some are idle | is taken, and the one that has been idle for longest ends |
| as many, all at work, and fewer than SPARE beside them | is turned away with a reason |
| more | ends at once |

One over HTTP that is turned away has one request answered: a probe as always, an inference with 503.
"""

import resource
from enum import Enum
from typing import Final, Protocol

import structlog

from tailbound_runtime.errors import ApiError

SPARE: Final = 64
_OTHER_FILES: Final = 256

log = structlog.get_logger(__name__)


class Admission(Enum):
    """What becomes of a new connection."""

    TAKEN = 1
    TURNED_AWAY = 2
    ENDED = 3


class Held(Protocol):
    """A connection."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is asked, or waits to be read."""

    @property
    def used(self) -> float:
        """When it was last, in the time of `perf_counter`."""

    def give_way(self) -> None:
        """End it, as it is idle."""


class Connections:
    """Those that are open. For the loop's thread only."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: set[Held] = set()
        self._turned_away: set[Held] = set()

    def admit(self, connection: Held) -> Admission:
        """A new one has come."""
        if len(self._open) >= self._most:
            unused = [each for each in self._open if each.is_idle]
            idle = min(unused, key=lambda each: each.used, default=None)
            if idle is None and len(self._turned_away) >= SPARE:
                return Admission.ENDED
            if idle is None:
                self._turned_away.add(connection)
                return Admission.TURNED_AWAY
            self._open.discard(idle)
            idle.give_way()
        self._open.add(connection)
        return Admission.TAKEN

    def left(self, connection: Held) -> None:
        """Forget a connection that has ended."""
        self._open.discard(connection)
        self._turned_away.discard(connection)

    def refusal(self) -> ApiError:
        """The answer to a connection that is refused."""
        return ApiError(
            503,
            f"this server has {self._most} connections at work, the most it may have "
            "(TAILBOUND_MAX_CONNECTIONS): use fewer, or ask again later",
            [(b"retry-after", b"1")],
        )


def allow_files(connections: int) -> None:
    """Let this process open as many files as so many connections take; says so in the log if it may not."""
    wanted = connections + SPARE + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        log.warning("fewer files may be open than the connections take", files=allowed, wanted=wanted)
