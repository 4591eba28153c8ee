"""An HTTP server in the fetch container that answers how far the download is, while it runs."""

import contextlib
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import TCPServer
from typing import Final

from tailbound.fetch.progress import Emit

_FETCHING: Final = "fetching"
_SECONDS: Final = 1.0
"""Time that a client has to send its request."""


class _Server(HTTPServer):
    """A server of one request at a time, so that no client can take much memory."""

    def server_bind(self) -> None:
        """Binds, and does not look up the name of the host: that can take seconds, and nothing uses it."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "", self.server_address[1]


class _DualServer(_Server):
    """A server that listens on IPv6 and IPv4."""

    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


class ProgressReport:
    """The newest line of progress. It passes every line on to the log."""

    def __init__(self, log: Emit) -> None:
        self._log = log
        self._newest: dict[str, object] = {}
        self.port = 0

    def emit(self, event: str, **fields: object) -> None:
        """One line of the log."""
        if event == _FETCHING:
            self._newest = fields
        self._log(event, **fields)

    def serve(self, port: int) -> None:
        """Answer GET at this port of all addresses until the process ends; a port in use is no failure."""
        report = self

        class Handler(BaseHTTPRequestHandler):
            timeout = _SECONDS

            def do_GET(self) -> None:
                body = json.dumps(report._newest).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """The log is for lines of progress."""

        for kind in (_DualServer, _Server):
            with contextlib.suppress(OSError):
                server = kind(("", port), Handler)
                self.port = server.server_port
                threading.Thread(target=server.serve_forever, name="progress", daemon=True).start()
                return
