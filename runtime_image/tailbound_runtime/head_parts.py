"""The parts of a request's head, as the HTTP parser finds them."""

from typing import Final

MOST_HEADERS: Final = 256


class HeadTooLongError(Exception):
    """The head has more headers, or bytes, than a server takes."""


class HeadParts:
    """Called back by the parser, for one request after the other."""

    def __init__(self) -> None:
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._in_head = False
        self._between = True  # the parser is after the end of a request
        self._head_bytes = 0

    def on_message_begin(self) -> None:
        """The first byte of a head."""
        self._in_head = True
        self._between = False
        self._head_bytes = 0
        self._url = b""
        self._headers = []

    def on_url(self, url: bytes) -> None:
        """A part of what is asked for."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or one after the body, which has no meaning here. Raises HeadTooLongError."""
        if self._in_head:
            if len(self._headers) >= MOST_HEADERS:
                raise HeadTooLongError
            self._headers.append((name.lower(), value))
