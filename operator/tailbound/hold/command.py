"""The command line of `tailbound hold`: an HTTP server whose answer to GET /release lets SIGTERM through.

The preStop hook of the server container asks for it, and the kubelet sends SIGTERM when it has the answer.
Every other path answers 404.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6, IPPROTO_IPV6, IPV6_V6ONLY, has_dualstack_ipv6
from socketserver import TCPServer
from typing import Final

from tailbound.api.runtime_contract import HOLD_PATH
from tailbound.hold.connections import connections_to
from tailbound.hold.release import HoldTimes, wait

MOST_AT_ONCE: Final = 8


class HoldServer(ThreadingHTTPServer):
    """Answers GET /release when no request is open on the watched ports."""

    daemon_threads = True
    request_queue_size = MOST_AT_ONCE
    address_family = AF_INET6 if has_dualstack_ipv6() else AF_INET

    def __init__(self, port: int, watched: tuple[int, ...], times: HoldTimes) -> None:
        self.watched, self.times = watched, times
        super().__init__(("", port), _Handler)

    def server_bind(self) -> None:
        """Bind for both address families; without the look-up of a host name that HTTPServer makes."""
        if self.address_family == AF_INET6:
            self.socket.setsockopt(IPPROTO_IPV6, IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)


class _Handler(BaseHTTPRequestHandler):
    server: HoldServer
    timeout = 10.0

    def do_GET(self) -> None:
        if self.path != HOLD_PATH:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        why = wait(self.server.times, lambda: connections_to(self.server.watched))
        sys.stdout.write(f"SIGTERM may reach the server: {why}\n")
        sys.stdout.flush()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", "0")
        self.end_headers()


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM, which comes when the server has ended. 1: its port is taken; 2: wrong usage."""
    arguments = _arguments(argv)
    times = HoldTimes(least=arguments.least, longest=arguments.longest)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        server = HoldServer(arguments.port, tuple(arguments.watch), times)
    except OSError as problem:
        sys.stderr.write(
            f"port {arguments.port} is not free ({problem.strerror}): without it nothing keeps SIGTERM back "
            "from the server. Let the container that listens there use another one, or name it in a probe\n"
        )
        return 1
    with server:
        server.serve_forever()
    return 0


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tailbound hold", description="Keep SIGTERM back while requests are open on a neighbour's ports."
    )
    parser.add_argument("--port", required=True, type=int, help="port of this server")
    parser.add_argument("--watch", required=True, type=int, nargs="+", help="ports whose requests count")
    parser.add_argument("--least", required=True, type=float, help="seconds to wait at least")
    parser.add_argument("--longest", required=True, type=float, help="seconds to wait at most")
    return parser.parse_args(argv)
