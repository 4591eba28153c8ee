"""Raw bytes and mutated requests, as HTTP/1 and HTTP/2, against the real Envoy as the gateway configures it.

Envoy stays up, answers others meanwhile, and no pod gets a request with another service's host.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Final

import aiohttp
from aiohttp import web
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import H2Error
from hpack import HPACKError

from e2e.cluster.ports import free_port
from tests.fuzz.mutation import mutated
from tests.fuzz.outcome import Outcome
from tests.integration.gateway.gateway_lab import Gateway, listening, until
from tests.integration.gateway.scripted_cluster import endpoint_slice, inference_service

AT_ONCE: Final = 16
ANSWER_SECONDS: Final = 0.1
"""How long a client waits for the first byte; much of what is sent asks for nothing."""
OTHERS_SECONDS: Final = 30.0
"""In which another service answers, on a machine that does other things as well."""
PODS: Final = {"fuzzed": "127.0.0.2", "neighbour": "127.0.0.3"}
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_BODY: Final = b'{"inputs":[]}'
_EMBEDDED: Final = (
    b"POST /v2/models/neighbour/infer HTTP/1.1\r\nHost: neighbour.risk\r\nContent-Length: 0\r\n\r\n"
)
REQUESTS: Final = (
    b"GET /v2/models/fuzzed HTTP/1.1\r\nHost: fuzzed.risk\r\n\r\n",
    b"POST /v2/models/fuzzed/infer HTTP/1.1\r\nHost: fuzzed.risk:80\r\nContent-Length: %d\r\n\r\n%s"
    % (len(_BODY), _BODY),
    b"POST /v2/models/fuzzed/infer HTTP/1.1\r\nHost: fuzzed.risk\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"%x\r\n%s\r\n0\r\n\r\n" % (len(_EMBEDDED), _EMBEDDED),
    b"POST / HTTP/1.1\r\nHost: fuzzed.risk\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n%s"
    % (len(_EMBEDDED), _EMBEDDED),
    b"GET http://fuzzed.risk/a%2f..%2fb?x=#y HTTP/1.1\r\nHost: neighbour.risk\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: fuzzed.risk\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n",
    b"CONNECT neighbour.risk:80 HTTP/1.1\r\nHost: fuzzed.risk\r\n\r\n",
    b"GET /1 HTTP/1.1\r\nHost: fuzzed.risk\r\n\r\nGET /2 HTTP/1.1\r\nHost: fuzzed.risk\r\n\r\n",
)
WORDS: Final = (
    *(b"\r\n", b"\r\n\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b"0\r\n\r\n", b"ffffffffffffffff\r\n"),
    *(b"Host: neighbour.risk\r\n", b"Content-Length: 0\r\n", b"Content-Length: -1\r\n", b"neighbour.risk"),
    *(b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: identity, chunked\r\n", b"\r\n" + _EMBEDDED),
    *(
        b"X-Tailbound-Host: neighbour.risk\r\n",
        b"X-Envoy-Original-Path: /x\r\n",
        b"%00",
        b"/../",
        b"HTTP/1.0",
    ),
    *(b"X-Long: " + b"a" * 9000 + b"\r\n", b"Connection: close\r\n", b"\xff\xfe", b"\xe2\x80\xae"),
)
_HEADS: Final[tuple[tuple[str, str], ...]] = (
    *((":method", "CONNECT"), (":method", "get"), (":path", ""), (":path", "*"), (":path", "/\0")),
    *(
        (":authority", "neighbour.risk"),
        (":authority", "fuzzed.risk\r\nhost: neighbour.risk"),
        (":scheme", ""),
    ),
    *((":protocol", "websocket"), (":status", "200"), ("host", "neighbour.risk"), ("Host", "neighbour.risk")),
    *(("connection", "close"), ("transfer-encoding", "chunked"), ("content-length", "5"), ("te", "gzip")),
    *(("x-tailbound-host", "neighbour.risk"), ("content-type", "application/grpc"), ("a\nb", "c"), ("", "")),
    ("cookie", "a" * 9000),
)


def _of_http1(random: Random) -> bytes:
    if random.random() < 0.1:
        return random.randbytes(random.choice((1, 24, 400)))
    return mutated(random, random.choice(REQUESTS), WORDS)


def _connection() -> H2Connection:
    """A client that checks nothing of what it sends."""
    unchecked = H2Configuration(
        client_side=True, validate_outbound_headers=False, normalize_outbound_headers=False
    )
    connection = H2Connection(unchecked)
    connection.initiate_connection()
    return connection


def _of_http2(random: Random) -> bytes:
    """A connection with one to three streams, whose header lists or whose bytes are wrong."""
    connection = _connection()
    for stream in range(1, 2 * random.choice((1, 1, 2, 3)), 2):
        head = [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "fuzzed.risk")]
        for _ in range(random.choice((0, 1, 1, 2))):
            head.insert(random.randrange(len(head) + 1), random.choice(_HEADS))
        with suppress(H2Error, HPACKError):
            connection.send_headers(stream, head)
            connection.send_data(stream, _EMBEDDED[: random.choice((0, 5, 80))], end_stream=True)
    sent = bytes(connection.data_to_send())
    change = random.random()
    if change < 0.4:
        return sent
    if change < 0.7:
        return mutated(random, sent, (_frame(random), _frame(random)), begin=len(PREFACE))
    return sent + b"".join(_frame(random) for _ in range(random.choice((1, 2, 5, 200))))


def _frame(random: Random) -> bytes:
    """Any frame: of a known or unknown type, with flags, a stream and a length that may not fit."""
    content = random.randbytes(random.choice((0, 4, 5, 8, 9, 64)))
    length = random.choice((len(content), len(content), len(content), 0, 16_384, 2**24 - 1))
    kind, flags = random.choice((*range(11), 255)), random.choice((0, 1, 4, 5, 8, 32, 255))
    stream = random.choice((0, 1, 1, 2, 3, 2**31 - 1))
    return length.to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + content


KINDS: Final[dict[str, Callable[[Random], bytes]]] = {"h1": _of_http1, "h2": _of_http2}


class Pods:
    """A pod of each service, which looks at the hosts that it is asked for."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._runners: list[web.AppRunner] = []

    async def start(self, gateway: Gateway) -> None:
        """Start them, and wait until the gateway knows them."""
        port = free_port()
        for name, address in PODS.items():
            await self._listen(name, address, port)
            gateway.cluster.put(
                endpoint_slice("risk", name, f"{name}-r1", [(address, "ready")], {"http": port}),
                inference_service("risk", name, {f"{name}-r1": 100}, timeout="5s"),
            )
            await gateway.until_applied(f"risk/{name}", 1)

    async def _listen(self, name: str, address: str, port: int) -> None:
        own = re.compile(rf"{name}\.risk(\.svc(\.cluster\.local)?)?\.?(:.*)?", re.IGNORECASE)

        async def answer(request: web.Request) -> web.Response:
            hosts = request.headers.getall("Host", [])
            if len(hosts) != 1 or own.fullmatch(hosts[0]) is None:
                self._outcome.fault(f"{name} got a request for {hosts}: {request.method} {request.raw_path}")
            await request.read()
            return web.Response(text=name)

        self._runners.append(await listening(address, port, answer))

    async def close(self) -> None:
        """Stop them."""
        for runner in self._runners:
            await runner.cleanup()


async def _send(port: int, content: bytes) -> str:
    """How the gateway answers: a status, bytes, an end, or nothing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(content)
        async with asyncio.timeout(ANSWER_SECONDS):
            answer = await reader.read(4096)
    except TimeoutError:
        return "no answer"
    except ConnectionError:
        return "reset"
    finally:
        writer.transport.abort()
    status = re.match(rb"HTTP/1\.[01] (\d{3})", answer)
    return status[1].decode() if status else "bytes" if answer else "closed"


async def _others_are_served(gateway: Gateway) -> bool:
    try:
        status, said, _ = await gateway.call("neighbour.risk", "/v2/models/neighbour/infer", method="POST")
    except aiohttp.ClientError:
        return False
    return (status, said) == (200, "neighbour")


async def fuzz(seed: int, count: int, gateway: Gateway, kinds: Sequence[str] = tuple(KINDS)) -> Outcome:
    """Send `count` inputs of each kind, AT_ONCE at a time."""
    outcome = Outcome(seed)
    pods = Pods(outcome)
    try:
        await pods.start(gateway)
        for kind in kinds:
            random = Random(f"{seed} {kind}")
            for begin in range(0, count, AT_ONCE):
                inputs = [KINDS[kind](random) for _ in range(min(AT_ONCE, count - begin))]
                for answer in await asyncio.gather(*(_send(gateway.http_port, each) for each in inputs)):
                    outcome.ended(f"{kind} {answer}")
                if not await _others_are_served(gateway):
                    outcome.fault(f"the neighbour was not served during {inputs!r}")
                assert gateway.envoy is not None
                assert gateway.envoy.returncode is None, f"Envoy ended at one of {inputs!r}"
        await until("others are served", lambda: _others_are_served(gateway), OTHERS_SECONDS)
    finally:
        await pods.close()
    return outcome
