"""Pods and clients that end a request in every way there is. What a pod does is in its request.

HTTP/1: `/v2/models/SERVICE/versions/ACTION/infer` or `/ACTION`, and `ACTION-SECONDS`, to be done after so
long; ACTION is a status code, `reset`, `close`, `junk`, `truncate`, `stall`, `stall500`, `long` (200 with
LONG_ANSWER bytes), `shed` (503: the answer would be late) or `bound` (200 to requests with a latency bound of
600 ms, else 500).
gRPC: ModelInfer with `ACTION-STATUS` or `…-SECONDS` in the metadata `odd`; ACTION is `only` (a response of
trailers only), `headers`, `trailers`, `stream`, `mute` (no status at all), `reset`.
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
LONG_ANSWER = 16 * 2**20
INFER = "inference.GRPCInferenceService/ModelInfer"


def infer(action: str, service: str = "churn") -> str:
    """The path of an inference call over HTTP, without its first slash."""
    return f"v2/models/{service}/versions/{action}/infer"


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
                    action = dict(event.headers)[b"odd"].decode()
                    self._spawn(_answer_grpc(connection, writer, event.stream_id, action))
            writer.write(connection.data_to_send())


async def _serve_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        lengths = [
            line.partition(":")[2] for line in head.split("\r\n") if line.startswith("content-length:")
        ]
        await reader.readexactly(int(lengths[0]) if lengths else 0)
        path = head.split(" ")[1].removesuffix("/infer")
        action, _, seconds = path.rpartition("/")[2].partition("-")
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
    if action == "long":
        writer.write(f"HTTP/1.1 200 Odd\r\ncontent-length: {LONG_ANSWER}\r\n\r\n".encode())
        writer.write(b"x" * LONG_ANSWER)
        await writer.drain()
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
    connection: H2Connection, writer: asyncio.StreamWriter, stream: int, asked: str
) -> None:
    action, status, *rest = asked.split("-")
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


async def http1(
    port: int,
    host: str,
    path: str,
    *,
    leave_after: float | None = None,
    method: str = "POST",
    body: int = 0,
    pause: float = 0.0,
    reads_after: float = 0.0,
) -> None:
    """One request on a connection of its own, which is closed after the response or after so many seconds.

    The client sends all but one byte of the body, pauses, sends the rest, and reads some time after that.
    """
    # With a small buffer, Envoy cannot pass a long answer on to the kernel.
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**16)
    head = f"{method} /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {body}\r\n\r\n"
    writer.write(head.encode() + b"x" * (body - 1))
    with suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(leave_after or FOREVER):
            if pause:
                await asyncio.sleep(pause)
            writer.write(b"x" * min(body, 1))
            if reads_after:
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                await asyncio.sleep(reads_after)
                writer.transport.resume_reading()  # type: ignore[attr-defined]
            await reader.read()
    writer.close()


async def http2(
    port: int,
    host: str,
    path: str,
    *,
    reset_after: float | None = None,
    complete: bool = True,
    pause: float = 0.0,
    reads_after: float = 0.0,
    **headers: str,
) -> None:
    """One stream: completed after a pause, then read after a while, to its end or until it is reset."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    connection = H2Connection(H2Configuration(client_side=True))
    if reads_after:
        connection.local_settings.initial_window_size = 0
    connection.initiate_connection()
    pseudo = [(":method", "POST"), (":path", f"/{path}"), (":scheme", "http"), (":authority", host)]
    more = [(name.replace("_", "-"), value) for name, value in headers.items()]
    connection.send_headers(1, pseudo + more, end_stream=complete and not pause)
    writer.write(connection.data_to_send())
    if pause:
        await asyncio.sleep(pause)
        connection.send_data(1, MESSAGE, end_stream=complete)
        writer.write(connection.data_to_send())
    if reads_after:
        await asyncio.sleep(reads_after)
        connection.increment_flow_control_window(2**16, 1)
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


async def call_grpc(
    port: int, host: str, action: str, *, deadline: float | None = None, path: str = INFER
) -> grpc.StatusCode:
    """One gRPC call, its messages read to the end."""
    options = [("grpc.default_authority", host), ("grpc.enable_http_proxy", 0)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        call = channel.unary_stream(f"/{path}")(b"", timeout=deadline, metadata=(("odd", action),))
        with suppress(grpc.aio.AioRpcError):
            async for _ in call:
                pass
        return await call.code()
