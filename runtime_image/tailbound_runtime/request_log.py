"""A line of the log for one of N inference requests: when it came, how it ended, and how long it took.

It holds metadata only. What is in tensors, ids and parameters may be private, and is never logged.
"""

from itertools import count
from typing import Final

import structlog

NONE: Final = 0

log = structlog.get_logger(__name__)


class RequestLog:
    """Logs the first request and each `every`-th one after it; none with 0. Any thread may use it."""

    def __init__(self, every: int = NONE) -> None:
        self.every = every
        self._numbers = count()

    def answered(self, protocol: str, code: int, seconds: float, body_bytes: int) -> None:
        """Count one request that was answered with this HTTP status, and log it if it is its turn."""
        if self.every and next(self._numbers) % self.every == 0:
            log.info(
                "request",
                protocol=protocol,
                code=code,
                seconds=round(seconds, 6),
                body_bytes=body_bytes,
                one_in=self.every,
            )
