"""Sends what hostile clients send: `python3 - KIND ADDRESS PORT HOST SECONDS`, with the standard library.

bodies   large bodies that lack their last byte, on many connections
tokens   wrong tokens at /observed, over TLS
metrics  /metrics, over and over

It ends after so many seconds, whatever is answered, and prints how many connections it has opened.
"""

import socket
import ssl
import sys
import threading
import time
import uuid
from contextlib import suppress

CLIENTS = {"bodies": 60, "tokens": 8, "metrics": 8}
BODY_BYTES = 4 * 2**20
PIECE = bytes(2**16)
# After each connection: a small machine must have time left for the neighbours.
PAUSE_SECONDS = 0.05
ANSWER_SECONDS = 5.0


def _head(kind: str, host: str) -> bytes:
    model = host.partition(".")[0]
    first, more = {
        "bodies": (f"POST /v2/models/{model}/infer", f"Content-Length: {BODY_BYTES}\r\n"),
        "tokens": ("GET /observed", f"Authorization: Bearer {uuid.uuid4()}\r\n"),
        "metrics": ("GET /metrics", ""),
    }[kind]
    return f"{first} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode()


def _send(connection: socket.socket, kind: str, host: str, end: float) -> None:
    connection.sendall(_head(kind, host))
    if kind == "bodies":
        for _ in range(BODY_BYTES // len(PIECE) - 1):
            connection.sendall(PIECE)
        connection.sendall(PIECE[:-1])
    connection.settimeout(max(0.1, min(ANSWER_SECONDS, end - time.monotonic())))
    while connection.recv(2**16) and kind == "metrics" and time.monotonic() < end:
        pass


def _anybody() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _client(kind: str, address: tuple[str, int], host: str, end: float, opened: list[float]) -> None:
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection(address, ANSWER_SECONDS) as connection:
            opened.append(time.monotonic())
            if kind == "tokens":
                with _anybody().wrap_socket(connection) as secured:
                    _send(secured, kind, host, end)
            else:
                _send(connection, kind, host, end)
        time.sleep(PAUSE_SECONDS)


def main(kind: str, address: str, port: str, host: str, seconds: str) -> None:
    """Attack until the time is over."""
    end, opened = time.monotonic() + float(seconds), list[float]()
    threads = [
        threading.Thread(target=_client, args=(kind, (address, int(port)), host, end, opened))
        for _ in range(CLIENTS[kind])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(len(opened))


if __name__ == "__main__":
    main(*sys.argv[1:])
