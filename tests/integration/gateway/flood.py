"""Clients that fill a gateway's memory, in a process of their own: `python flood.py KIND PORT CLIENTS`.

KIND is `length` (all of a body of 32 MiB but its last byte), `chunks` (the same without a length), `small`
(small bodies that never end) or `streams` (100 such bodies on each HTTP/2 connection). Each client begins
again when it is refused, until the process is killed.
"""

import socket
import sys
import threading
from contextlib import suppress

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import ProtocolError

LENGTH = 32 * 2**20 - 1
PIECE = bytes(2**18)
SMALL = 100_000
SECONDS = 5.0
"""How long a client waits for the gateway before it begins again."""


def _head(length: str) -> bytes:
    return f"POST / HTTP/1.1\r\nhost: flooded.risk\r\n{length}\r\n\r\n".encode()


def _length(connection: socket.socket) -> None:
    connection.sendall(_head(f"content-length: {LENGTH}"))
    for _ in range(LENGTH // len(PIECE)):
        connection.sendall(PIECE)
    connection.recv(1)


def _chunks(connection: socket.socket) -> None:
    connection.sendall(_head("transfer-encoding: chunked"))
    for _ in range(LENGTH // len(PIECE)):
        connection.sendall(f"{len(PIECE):x}\r\n".encode() + PIECE + b"\r\n")
    connection.recv(1)


def _small(connection: socket.socket) -> None:
    connection.sendall(_head(f"content-length: {SMALL + 1}") + PIECE[:SMALL])
    connection.recv(1)


def _streams(connection: socket.socket) -> None:
    protocol = H2Connection(H2Configuration(client_side=True))
    protocol.initiate_connection()
    head = [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "flooded.risk")]
    streams = range(1, 200, 2)
    for stream in streams:
        protocol.send_headers(stream, head)
    while True:
        for stream in streams:
            with suppress(ProtocolError):
                while room := min(
                    protocol.local_flow_control_window(stream), protocol.max_outbound_frame_size
                ):
                    protocol.send_data(stream, PIECE[:room])
        connection.sendall(protocol.data_to_send())
        data = connection.recv(65_536)
        if not data:
            return
        protocol.receive_data(data)


KINDS = {"length": _length, "chunks": _chunks, "small": _small, "streams": _streams}


def _forever(kind: str, port: int) -> None:
    while True:
        with (
            suppress(OSError, ProtocolError),
            socket.create_connection(("127.0.0.1", port), SECONDS) as connection,
        ):
            KINDS[kind](connection)


def main(kind: str, port: int, clients: int) -> None:
    """Start the clients, and never end."""
    threads = [threading.Thread(target=_forever, args=(kind, port)) for _ in range(clients)]
    for thread in threads:
        thread.start()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
