"""Pods and clients that end a request in every way there is. What a pod does is in the path of the request.

HTTP/1: `/ACTION` or `/ACTION-SECONDS`, to be done after so long; ACTION is a status code, `reset`, `close`,
`junk`, `truncate`, `stall`, `stall500`, `shed` (503: the answer would be late) or `bound` (200 to requests
with a latency bound of 600 ms, else 500). gRPC: `/test.Odd/ACTION-STATUS` or `…-SECONDS`; ACTION is `only` (a
response of trailers only), `headers`, `trailers`, `stream`, `mute` (no status at all), `reset`.
"""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

import grpc.aio
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import RequestReceived, StreamEnded
from h2.exceptions import ProtocolError

Handler: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

FOREVER = 30.0
MESSAGE = b"\0\0\0\0\2ok"


class OddPods:
    """Servers, stopped together."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, address: str, http: int, grpc: int) -> None:
        for port, handler in ((http, _serve_http), (grpc, self._serve_grpc)):
            self._servers.append(await asyncio.start_server(self._guarded(handler), address, port))

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _guarded(self, handler: Handler) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                with suppress(ConnectionError, asyncio.IncompleteReadError):
                    await handler(reader, writer)
            finally:
                writer.close()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._spawn(guarded(reader, writer))

        return accept

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve_grpc(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = H2Connection(H2Configuration(client_side=False))
        connection.initiate_connection()
        writer.write(connection.data_to_send())
        while data := await reader.read(65536):
            for event in connection.receive_data(data):
                if isinstance(event, RequestReceived):
                    path = dict(event.headers)[b":path"].decode()
                    self._spawn(_answer_grpc(connection, writer, event.stream_id, path))
            writer.write(connection.data_to_send())


async def _serve_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        lengths = [
            line.partition(":")[2] for line in head.split("\r\n") if line.startswith("content-length:")
        ]
        await reader.readexactly(int(lengths[0]) if lengths else 0)
        action, _, seconds = head.split(" ")[1].strip("/").partition("-")
        await asyncio.sleep(float(seconds or 0))
        if action == "bound":
            action = "200" if "\r\nx-tailbound-latency-bound-ms: 600\r\n" in head else "500"
        if not await _answer_http(writer, action):
            return


async def _answer_http(writer: asyncio.StreamWriter, action: str) -> bool:
    """Whether the connection goes on."""
    if action.isdecimal():
        writer.write(f"HTTP/1.1 {action} Odd\r\ncontent-length: 2\r\n\r\nok".encode())
        return True
    if action == "shed":
        writer.write(b"HTTP/1.1 503 Odd\r\nx-tailbound-shed: true\r\ncontent-length: 2\r\n\r\nok")
        return True
    if action == "reset":
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
    elif action == "junk":
        writer.write(b"JUNK\r\n\r\n")
    elif action != "close":
        status = "500" if action == "stall500" else "200"
        writer.write(f"HTTP/1.1 {status} Odd\r\ncontent-length: 20\r\n\r\nok".encode())
        await asyncio.sleep(0.1 if action == "truncate" else FOREVER)
    return False


async def _answer_grpc(
    connection: H2Connection, writer: asyncio.StreamWriter, stream: int, path: str
) -> None:
    action, status, *rest = path.rpartition("/")[2].split("-")
    seconds = float(rest[0]) if rest else 0.0
    start = [(":status", "200"), ("content-type", "application/grpc")]
    end = [("grpc-status", status)]

    def flush() -> None:
        writer.write(connection.data_to_send())

    # The client may have reset the stream while the answer was waiting.
    with suppress(ProtocolError, ConnectionError):
        if action == "stream":
            connection.send_headers(stream, start)
            for _ in range(3):
                connection.send_data(stream, MESSAGE)
                flush()
                await asyncio.sleep(seconds / 3)
        else:
            await asyncio.sleep(seconds)
        if action == "only":
            connection.send_headers(stream, start + end, end_stream=True)
        elif action == "headers":
            connection.send_headers(stream, start + end)
            connection.send_data(stream, b"", end_stream=True)
        elif action == "stream":
            connection.send_headers(stream, end, end_stream=True)
        else:
            connection.send_headers(stream, start)
            connection.send_data(stream, MESSAGE, end_stream=action == "mute")
            if action == "reset":
                flush()
                await asyncio.sleep(0.05)
                connection.reset_stream(stream, ErrorCodes.INTERNAL_ERROR)
            elif action == "trailers":
                connection.send_headers(stream, end, end_stream=True)
        flush()


async def http1(port: int, host: str, path: str, *, leave_after: float | None = None) -> None:
    """One request on a connection of its own, which is closed after the response or after so many seconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
    with suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(leave_after or FOREVER):
            await reader.read()
    writer.close()


async def http2(
    port: int,
    host: str,
    path: str,
    *,
    reset_after: float | None = None,
    complete: bool = True,
    **headers: str,
) -> None:
    """One stream; reset after so many seconds, or read to its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    connection = H2Connection(H2Configuration(client_side=True))
    connection.initiate_connection()
    pseudo = [(":method", "POST"), (":path", f"/{path}"), (":scheme", "http"), (":authority", host)]
    more = [(name.replace("_", "-"), value) for name, value in headers.items()]
    connection.send_headers(1, pseudo + more, end_stream=complete)
    writer.write(connection.data_to_send())
    with suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(reset_after or FOREVER):
            while data := await reader.read(65536):
                if any(isinstance(event, StreamEnded) for event in connection.receive_data(data)):
                    break
    if reset_after is not None:
        connection.reset_stream(1, ErrorCodes.CANCEL)
    writer.write(connection.data_to_send())
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.close()


async def call_grpc(port: int, host: str, method: str, *, deadline: float | None = None) -> grpc.StatusCode:
    """One gRPC call, its messages read to the end."""
    options = [("grpc.default_authority", host), ("grpc.enable_http_proxy", 0)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        call = channel.unary_stream(f"/test.Odd/{method}")(b"", timeout=deadline)
        with suppress(grpc.aio.AioRpcError):
            async for _ in call:
                pass
        return await call.code()
