"""Downloads the rest of a large file over several connections at once, in blocks that are given in order.

Memory is constant: at most `_AHEAD` blocks are on their way or wait for their turn. The file on disk only
grows at its end, so that a fetch which is killed goes on from there, whatever the other connections had.

| a connection | next |
|---|---|
| has its block | the next block |
| breaks off, stalls, is refused for now (429, 5xx) | closed unless it is the last; a pause; the same block |
| several such ends in a row without a byte gained | SourceUnreachable |
| gets no range, or of another version of the file | no ranges any more: one connection goes on |
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from tailbound.fetch.failures import TransientError
from tailbound.fetch.remote import RangedRemote, Version

BLOCK_BYTES: Final = 8 * 1024 * 1024
CONNECTIONS: Final = 4
LEAST_BYTES: Final = 8 * BLOCK_BYTES
"""A smaller rest of a file is not worth further connections."""
_AHEAD: Final = 2 * CONNECTIONS


@dataclass(frozen=True)
class Rest:
    """The bytes of a version of a file from `start` on."""

    start: int
    version: Version


class RangeDownload:
    """The rest of one file. pause: waits after a number of failures in a row, or raises FetchFailedError."""

    def __init__(
        self, remote: RangedRemote, rest: Rest, pause: Callable[[int, TransientError], None]
    ) -> None:
        self._rest = rest
        self._pause = pause
        self._connections: queue.Queue[RangedRemote] = queue.Queue()
        self._left = CONNECTIONS
        for _ in range(CONNECTIONS):
            self._connections.put(remote.another())
        self._stopped = threading.Event()
        self._lock = threading.Lock()

    def blocks(self) -> Generator[bytes, None, None]:
        """The blocks in their order. Raises FetchFailedError or TransientError."""
        starts = iter(range(self._rest.start, self._rest.version.total, BLOCK_BYTES))
        pending: deque[Future[bytes]] = deque()
        with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="range") as pool:
            try:
                while True:
                    while len(pending) < _AHEAD and (start := next(starts, None)) is not None:
                        pending.append(pool.submit(self._block, start))
                    if not pending:
                        return
                    yield pending.popleft().result()
            finally:
                self._stopped.set()
                for each in pending:
                    each.cancel()

    def _block(self, start: int) -> bytes:
        end = min(start + BLOCK_BYTES, self._rest.version.total)
        block = bytearray()
        failed = 0
        while start + len(block) < end:
            before = len(block)
            connection = self._connections.get()
            try:
                self._read(connection, start, end, block)
            except TransientError as error:
                self._give_up_one(connection)
                failed = failed + 1 if len(block) == before else 1
                self._pause(failed, error)
            except BaseException:
                self._connections.put(connection)
                raise
            else:
                self._connections.put(connection)
        return bytes(block)

    def _read(self, connection: RangedRemote, start: int, end: int, block: bytearray) -> None:
        try:
            self._check_wanted()
            read = connection.part(start + len(block), end, self._rest.version)
            while start + len(block) < end:
                self._check_wanted()
                chunk = read()
                if not chunk:
                    raise TransientError(f"{connection.shown} broke off within a range")
                block += chunk[: end - start - len(block)]
        finally:
            connection.close()

    def _give_up_one(self, connection: RangedRemote) -> None:
        """A source that refuses for now, or breaks off, may be asked too much at once."""
        with self._lock:
            last = self._left == 1
            self._left -= not last
        if last:
            self._connections.put(connection)

    def _check_wanted(self) -> None:
        """Ends the thread once another block has failed for good."""
        if self._stopped.is_set():
            raise CancelledError
