"""How many frames that ask for work and bring none a connection may send: floods end it.

| event | changes the credit by |
|---|---|
| a second passes | PER_SECOND |
| a call is answered | PER_CALL: its window updates and pings |
| DATA is sent | PER_FRAME |
| RST_STREAM, PING, PRIORITY, WINDOW_UPDATE, CONTINUATION, empty DATA, what is unknown | -1 |
| SETTINGS | -1, and -1 for each setting |
| DATA of fewer than STRAY_BYTES (http2_streams.py) for a stream that is over | -1 |
| HEADERS of a call that is refused | -1 |

The credit is MOST at first and never more. Below 0 the connection ends with ENHANCE_YOUR_CALM.
"""

import time
from typing import Final

from tailbound_runtime.http2_frames import Code, Http2Error

MOST: Final = 1000.0
PER_SECOND: Final = 33.0
PER_CALL: Final = 8.0
PER_FRAME: Final = 2.0


class Allowance:
    """The credit of one connection."""

    __slots__ = ("_credit", "_since")

    def __init__(self, now: float) -> None:
        self._credit = MOST
        self._since = now

    def spend(self) -> None:
        """One more of these frames has come. Raises Http2Error."""
        self._credit -= 1
        if self._credit < 0:
            now = time.perf_counter()
            self.earn((now - self._since) * PER_SECOND)
            self._since = now
            if self._credit < 0:
                raise Http2Error(Code.ENHANCE_YOUR_CALM, "too many frames that bring nothing")

    def earn(self, credit: float) -> None:
        """Add credit for what the connection has done."""
        self._credit = min(MOST, self._credit + credit)
