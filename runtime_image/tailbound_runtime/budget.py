"""The memory that requests may use together: bodies as they arrive, tensors, and answers that have to wait.

| a request uses | it takes |
|---|---|
| at most SHORT_BYTES, and there is room | from what is for short ones alone |
| at most SHORT_BYTES, and there is none | from the limit |
| more | all of it from the limit |

What is for short ones alone is an eighth of the limit, beside it. So they get through while long ones fill
the memory, and together they have a limit, too.
"""

import threading
from typing import Final

from tailbound_runtime.errors import ApiError, Header

SHORT_BYTES: Final = 64 * 2**10
RETRY_AFTER: Final[Header] = (b"retry-after", b"1")  # seconds
_PART_FOR_SHORT: Final = 8


class Budget:
    """How many bytes are in use, of which each request has a share. Any thread may use it.

    lock: a share holds it while it looks at this, or changes it
    room: bytes that are left of what is for short requests alone
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self.room = limit // _PART_FOR_SHORT
        self.lock = threading.Lock()

    def take(self, size: int, more: int) -> None:
        """Bytes for a request that uses `size` then, `more` than before.

        Raises ApiError 503, or 413 for what never fits.
        """
        if size > self._limit:
            raise ApiError(
                413,
                f"the request takes {size} bytes, but the limit of this server is {self._limit}",
            )
        if self._used + more > self._limit:
            raise ApiError(
                503,
                f"the requests that are here take {self._used} bytes, and this one would take {more} "
                f"more: the limit of this server is {self._limit}",
                [RETRY_AFTER],
            )
        self._used += more

    def give(self, size: int) -> None:
        """Give back what was taken."""
        self._used -= size

    @property
    def used(self) -> int:
        """Bytes in use now."""
        return self._used + self._limit // _PART_FOR_SHORT - self.room


class Share:
    """What one request uses until `end`; a context in which it does. `end` may come from another thread."""

    __slots__ = ("_budget", "_ended", "_short", "_taken")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._ended = False
        self._short = self._taken = 0  # one of them is 0

    def need(self, more: int) -> None:
        """Hold `more` bytes beside those held. Raises ApiError 503, 413, and 499 after the end."""
        self.hold(self._short + self._taken + more)

    def hold(self, size: int) -> None:
        """Hold `size` bytes in place of those held. Raises as `need` does if that is more."""
        budget = self._budget
        with budget.lock:
            if self._ended:
                raise ApiError(499, "the client has left")
            if not self._taken and size <= SHORT_BYTES and size - self._short <= budget.room:
                budget.room -= size - self._short
                self._short = size
                return
            budget.take(size, size - self._taken)
            budget.room += self._short
            self._short, self._taken = 0, size

    def end(self) -> None:
        """Give back what it used; it gets no more."""
        budget = self._budget
        with budget.lock:
            self._ended = True
            budget.room += self._short
            if self._taken:
                budget.give(self._taken)
            self._short = self._taken = 0

    def __enter__(self) -> "Share":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
