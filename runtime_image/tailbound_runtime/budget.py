"""The memory that requests may use together: bodies as they arrive, and the tensors made of them.

Short bodies are not counted: so many cannot come at once that they matter, and they must get through while
long ones fill the memory.
"""

import threading
from typing import Final

from tailbound_runtime.errors import ApiError, Header

FREE_BYTES: Final = 64 * 2**10
"""The first bytes of each request, which are not counted."""
RETRY_AFTER: Final[Header] = (b"retry-after", b"1")  # seconds


class Budget:
    """How many bytes are in use. Any thread may use it.

    lock: held while it is looked at and changed; a share holds it around both
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self.lock = threading.RLock()

    def take(self, size: int) -> None:
        """Raises ApiError 503, or 413 for what never fits."""
        with self.lock:
            if size > self._limit:
                raise ApiError(
                    413,
                    f"the request's tensors take {size} bytes, but the limit of this server is {self._limit}",
                )
            if self._used + size > self._limit:
                raise ApiError(
                    503,
                    f"the requests that are here take {self._used} bytes, and this one would take {size} "
                    f"more: the limit of this server is {self._limit}",
                    [RETRY_AFTER],
                )
            self._used += size

    def give(self, size: int) -> None:
        """Give back what was taken."""
        with self.lock:
            self._used -= size

    @property
    def used(self) -> int:
        """Bytes in use now."""
        return self._used


class Share:
    """What one request uses until `end`; a context in which it does. `end` may come from another thread."""

    __slots__ = ("_budget", "_ended", "_needed", "_taken")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._ended = False
        self._needed = self._taken = 0

    def need(self, size: int) -> None:
        """So many bytes more. Raises ApiError 503, 413, and 499 after the end."""
        self._needed += size
        more = self._needed - FREE_BYTES - self._taken
        if more > 0:
            with self._budget.lock:
                if self._ended:
                    raise ApiError(499, "the client has left")
                self._budget.take(more)
                self._taken += more

    def end(self) -> None:
        """Give back what it used; it gets no more."""
        with self._budget.lock:
            self._ended = True
            self._budget.give(self._taken)
            self._taken = 0

    def __enter__(self) -> "Share":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
