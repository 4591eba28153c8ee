"""Load on the model server in a closed loop, and how soon it answers liveness meanwhile, beside a bare loop.

Senders over loopback, each with one connection that stays open between turns, ask again as soon as they are
answered. The liveness of the server is asked at the same moments as that of another process, which is an
asyncio loop with nothing else to do: what both take is the machine's, or this process's.
"""

import asyncio
import math
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final
from urllib.parse import urlsplit

PAUSE_SECONDS: Final = 0.02
LIVE: Final = b"GET /v2/health/live HTTP/1.1\r\nHost: bench\r\n\r\n"
_BARE: Final = """
import asyncio, socket, sys

class Answering(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")

async def serve():
    loop = asyncio.get_running_loop()
    await (await loop.create_server(Answering, sock=socket.socket(fileno=int(sys.argv[1])))).serve_forever()

asyncio.run(serve())
"""


class Connection:
    """One connection that stays open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def opened(cls, url: str) -> "Connection":
        """One to this address."""
        address = urlsplit(url)
        return cls(*await asyncio.open_connection(address.hostname, address.port))

    async def ask(self, message: bytes) -> bytes:
        """The body of the answer to this whole HTTP request, whose status has to be 200."""
        self._writer.write(message)
        head = await self._reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        length = int(head.lower().partition(b"\r\ncontent-length: ")[2].split(b"\r\n")[0])
        return await self._reader.readexactly(length)

    def close(self) -> None:
        """The other side sees the end."""
        self._writer.close()


class Senders:
    """All of them send the same message. The answers must have the same length."""

    def __init__(self, connections: list[Connection], message: bytes) -> None:
        self._connections = connections
        self._message = message
        self._left = 0

    async def turn(self, requests: int) -> float:
        """The seconds that so many requests take."""
        self._left = requests
        started = time.perf_counter()
        lengths = await asyncio.gather(*map(self._sends, self._connections))
        assert len(set[int]().union(*lengths)) == 1, lengths
        return time.perf_counter() - started

    async def _sends(self, connection: Connection) -> set[int]:
        lengths = set()
        while self._left > 0:
            self._left -= 1
            lengths.add(len(await connection.ask(self._message)))
        return lengths


@asynccontextmanager
async def senders(url: str, message: bytes, number: int) -> AsyncIterator[Senders]:
    """`number` senders, each with its connection open."""
    connections = [await Connection.opened(url) for _ in range(number)]
    try:
        yield Senders(connections, message)
    finally:
        for connection in connections:
            connection.close()


class Liveness:
    """Asks servers for their liveness at the same moments, while it is entered.

    seconds: of each answer, by the server's URL
    """

    def __init__(self, *urls: str) -> None:
        self.seconds: dict[str, list[float]] = {url: [] for url in urls}
        self._over = asyncio.Event()

    async def __aenter__(self) -> "Liveness":
        self._over.clear()
        self._asking = asyncio.create_task(self._ask())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over.set()
        await self._asking

    def slowest(self, url: str, share: float = 1.0) -> float:
        """The seconds within which this share of the answers came."""
        ordered = sorted(self.seconds[url])
        return ordered[math.ceil(share * len(ordered)) - 1]

    async def _ask(self) -> None:
        connections = {url: await Connection.opened(url) for url in self.seconds}
        while not self._over.is_set():
            await asyncio.gather(*(self._one(url, each) for url, each in connections.items()))
            await asyncio.sleep(PAUSE_SECONDS)
        for connection in connections.values():
            connection.close()

    async def _one(self, url: str, connection: Connection) -> None:
        started = time.perf_counter()
        await connection.ask(LIVE)
        self.seconds[url].append(time.perf_counter() - started)


@contextmanager
def bare_loop() -> Iterator[str]:
    """The URL of an asyncio loop in a process of its own, which answers everything at once with nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-c", _BARE, str(listener.fileno())]
        with subprocess.Popen(command, pass_fds=[listener.fileno()]) as process:
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            finally:
                process.kill()
