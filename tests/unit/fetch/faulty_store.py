"""A real HTTP server on loopback that serves one file, and misbehaves as told, request by request."""

import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Reply = Callable[[BaseHTTPRequestHandler, "FaultyStore"], None]


@dataclass
class FaultyStore:
    """content and etag may change between requests; `replies` are used up first, then it behaves."""

    content: bytes
    etag: str | None = '"v1"'
    last_modified: str | None = None
    replies: deque[Reply] = field(default_factory=deque)
    requests: list[Message] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    def url(self, path: str = "/model.onnx") -> str:
        return f"http://localhost:{self.port}{path}"


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up are part of the tests."""


@contextmanager
def running(content: bytes, tls: ssl.SSLContext | None = None) -> Iterator[FaultyStore]:
    store = FaultyStore(content)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            store.requests.append(self.headers)
            store.paths.append(self.path)
            reply = store.replies.popleft() if store.replies else well
            reply(self, store)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = _QuietServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    store.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield store
    finally:
        store.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _head(handler: BaseHTTPRequestHandler, store: FaultyStore, status: int, length: int | None) -> None:
    handler.send_response(status)
    if length is not None:
        handler.send_header("Content-Length", str(length))
    if store.etag is not None:
        handler.send_header("ETag", store.etag)
    if store.last_modified is not None:
        handler.send_header("Last-Modified", store.last_modified)


def _wanted(handler: BaseHTTPRequestHandler, store: FaultyStore) -> int:
    """The first byte to send: 0 unless a range is asked for and its If-Range still holds."""
    asked = handler.headers.get("Range")
    if asked is None or handler.headers.get("If-Range") not in (store.etag, store.last_modified):
        return 0
    return int(asked.removeprefix("bytes=").removesuffix("-"))


def _start(handler: BaseHTTPRequestHandler, store: FaultyStore) -> bytes:
    """Send a truthful head; the body that belongs to it."""
    first = _wanted(handler, store)
    body = store.content[first:]
    _head(handler, store, 206 if first else 200, len(body))
    if first:
        handler.send_header("Content-Range", f"bytes {first}-{len(store.content) - 1}/{len(store.content)}")
    handler.end_headers()
    return body


def well(handler: BaseHTTPRequestHandler, store: FaultyStore) -> None:
    handler.wfile.write(_start(handler, store))


def cut_after(count: int) -> Reply:
    def reply(handler: BaseHTTPRequestHandler, store: FaultyStore) -> None:
        handler.wfile.write(_start(handler, store)[:count])
        handler.close_connection = True

    return reply


def stall_after(count: int) -> Reply:
    def reply(handler: BaseHTTPRequestHandler, store: FaultyStore) -> None:
        handler.wfile.write(_start(handler, store)[:count])
        store.released.wait(30)
        handler.close_connection = True

    return reply


def status(code: int, **headers: str) -> Reply:
    def reply(handler: BaseHTTPRequestHandler, store: FaultyStore) -> None:
        handler.send_response(code)
        handler.send_header("Content-Length", "0")
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()

    return reply


def declaring(length: int) -> Reply:
    def reply(handler: BaseHTTPRequestHandler, store: FaultyStore) -> None:
        _head(handler, store, 200, length)
        handler.end_headers()
        handler.close_connection = True

    return reply


def without_length(handler: BaseHTTPRequestHandler, store: FaultyStore) -> None:
    _head(handler, store, 200, None)
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.wfile.write(store.content)


def in_chunks(count: int) -> Reply:
    """A body in chunks, of which this many bytes come, and the last chunk only after all of them."""

    def reply(handler: BaseHTTPRequestHandler, store: FaultyStore) -> None:
        _head(handler, store, 200, None)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b"%x\r\n%s\r\n" % (count, store.content[:count]))
        handler.wfile.write(b"0\r\n\r\n" if count == len(store.content) else b"")
        handler.close_connection = True

    return reply


def wrong_range(handler: BaseHTTPRequestHandler, store: FaultyStore) -> None:
    """A 206 that starts elsewhere than asked."""
    _head(handler, store, 206, 1)
    handler.send_header("Content-Range", f"bytes 0-0/{len(store.content)}")
    handler.end_headers()
    handler.wfile.write(store.content[:1])


def short_range(handler: BaseHTTPRequestHandler, store: FaultyStore) -> None:
    """A 206 of 1000 bytes from where it was asked to begin, instead of the whole rest."""
    start = int(handler.headers["Range"].removeprefix("bytes=").partition("-")[0])
    _head(handler, store, 206, 1000)
    handler.send_header("Content-Range", f"bytes {start}-{start + 999}/{len(store.content)}")
    handler.end_headers()
    handler.wfile.write(store.content[start : start + 1000])


def hang_up(handler: BaseHTTPRequestHandler, store: FaultyStore) -> None:
    handler.close_connection = True
