"""A session of requests that reads an answer up to a size and for a time.

The time-out of requests is for each piece of an answer: one that comes in small pieces would be read for
ever, and one without end until memory is used up.
"""

import time
from collections.abc import Iterator
from typing import Any, Final

from requests import ReadTimeout, RequestException, Response, Session
from requests.adapters import HTTPAdapter
from urllib3.response import BaseHTTPResponse

_LEAST_BYTES: Final = 2**16


class TooLargeError(RequestException):
    """The answer has more bytes than are read."""


class BoundedSession(Session):
    """`most_bytes` and `seconds` bound each answer; the time begins with the request."""

    def __init__(self, most_bytes: int, seconds: float) -> None:
        super().__init__()
        self._adapter = _BoundedAdapter(most_bytes, seconds)

    def get_adapter(self, url: str | bytes) -> HTTPAdapter:
        """The one adapter, whatever is mounted."""
        return self._adapter

    def close(self) -> None:
        """Close its connections."""
        super().close()
        self._adapter.close()


class _BoundedAdapter(HTTPAdapter):
    def __init__(self, most_bytes: int, seconds: float) -> None:
        super().__init__()
        self._most_bytes = most_bytes
        self._seconds = seconds

    def send(self, *args: Any, **options: Any) -> Response:
        end = time.monotonic() + self._seconds
        response = super().send(*args, **options)
        response.raw = _BoundedBody(response.raw, self._most_bytes, end)
        return response


class _BoundedBody:
    """The body of a response, as far as requests reads one."""

    def __init__(self, raw: BaseHTTPResponse, most_bytes: int, end: float) -> None:
        self._raw = raw
        self._most_bytes = most_bytes
        self._end = end

    def stream(self, amount: int, *, decode_content: bool) -> Iterator[bytes]:
        """Its pieces. Raises TooLargeError, and ReadTimeout."""
        read = 0
        for piece in self._raw.stream(max(amount, _LEAST_BYTES), decode_content=decode_content):
            read += len(piece)
            if read > self._most_bytes:
                raise TooLargeError(f"it has more than {self._most_bytes} bytes")
            if time.monotonic() > self._end:
                raise ReadTimeout("it comes too slowly")
            yield piece

    def close(self) -> None:
        """End the connection: what is left of the answer is not read."""
        self._raw.close()

    def release_conn(self) -> None:
        """Give the connection back."""
        self._raw.release_conn()
