"""An HTTP proxy on the loopback address through which client libraries reach only the hosts that may be used.

A library that resolves names and connects by itself would bypass every check of addresses. Its connections
all go through this proxy instead, which connects with a `Dialer`: TLS passes through as it is (CONNECT), and
plain HTTP has its first line rewritten. One connection carries one request of plain HTTP.
"""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

from tailbound.fetch.dial import Dialer
from tailbound.fetch.failures import FetchFailedError

_HEAD_LIMIT_BYTES: Final = 64 * 1024
_CHUNK_BYTES: Final = 256 * 1024
_REFUSED: Final = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_UNREACHABLE: Final = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_CONNECTED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"


class Gate:
    """A proxy that runs while it is entered. refusal: why a host was refused last, None if none was."""

    def __init__(self, dialer: Dialer) -> None:
        self._dialer = dialer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.refusal: FetchFailedError | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="gate", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), name="gate", daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError, ValueError):
            client.settimeout(self._dialer.time_outs.stall_seconds)
            head, rest = _read_head(client)
            method, target, version = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
            tunnel = method == "CONNECT"
            parts = urlsplit(f"//{target}" if tunnel else target)
            try:
                server = self._dialer.dial(parts.hostname or "", parts.port or 80)
            except FetchFailedError as refusal:
                self.refusal = refusal
                client.sendall(_REFUSED)
                return
            except OSError:
                client.sendall(_UNREACHABLE)
                return
            with server:
                server.settimeout(self._dialer.time_outs.stall_seconds)
                if tunnel:
                    client.sendall(_CONNECTED)
                    server.sendall(rest)
                else:
                    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                    server.sendall(_origin_form(head, f"{method} {path} {version}") + rest)
                client.settimeout(None)  # while it downloads it says nothing
                _splice(client, server)


def _read_head(client: socket.socket) -> tuple[bytes, bytes]:
    """The head of a request with its empty line, and what came after it. Raises ValueError."""
    received = b""
    while b"\r\n\r\n" not in received:
        more = client.recv(_CHUNK_BYTES)
        if not more or len(received) > _HEAD_LIMIT_BYTES:
            raise ValueError("no request")
        received += more
    head, _, rest = received.partition(b"\r\n\r\n")
    return head + b"\r\n\r\n", rest


def _origin_form(head: bytes, first: str) -> bytes:
    """The head for the server itself, which is asked to close: a second request could name another host."""
    _, *headers = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    kept = [line for line in headers if not line.lower().startswith((b"connection:", b"proxy-"))]
    return b"\r\n".join([first.encode(), *kept, b"Connection: close", b"", b""])


def _splice(client: socket.socket, server: socket.socket) -> None:
    """Copy both ways until the server ends; the client's end is passed on."""
    upward = threading.Thread(target=_copy, args=(client, server), name="gate", daemon=True)
    upward.start()
    _copy(server, client)
    for sock in (client, server):
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
    upward.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := source.recv(_CHUNK_BYTES):
            sink.sendall(chunk)
        sink.shutdown(socket.SHUT_WR)
