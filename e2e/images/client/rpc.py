"""gRPC calls without TLS, whose messages are not decoded.

A URL is grpc://HOST:PORT/PACKAGE.SERVICE/METHOD. No call is sent twice.
"""

import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
import grpc.aio
from yarl import URL

_OPTIONS: Final = (("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1))


@asynccontextmanager
async def sender(
    url: str, message: bytes, timeout_seconds: float
) -> AsyncIterator[Callable[[], Awaitable[tuple[str, str, bytes]]]]:
    """Sends one unary call each time: the outcome, the outcome in words, and the answer."""
    async with _channel(url) as channel:
        method = channel.unary_unary(URL(url).path)

        async def send() -> tuple[str, str, bytes]:
            try:
                return "ok", "", await method(message, timeout=timeout_seconds)
            except grpc.aio.AioRpcError as error:
                return f"grpc_{error.code().name.lower()}", error.details() or "", b""

        yield send


async def call(url: str, message: bytes, timeout_seconds: float, most: int) -> dict[str, Any]:
    """One call: its status, and its first answers, after so many of which it is cancelled."""
    messages: list[str] = []
    async with _channel(url) as channel:
        answers = channel.unary_stream(URL(url).path)(message, timeout=timeout_seconds)
        try:
            async for answer in answers:
                messages.append(base64.b64encode(answer).decode())
                if len(messages) == most:
                    break
            else:
                return {"code": (await answers.code()).name, "details": "", "messages": messages}
        except grpc.aio.AioRpcError as error:
            return {"code": error.code().name, "details": error.details(), "messages": messages}
        answers.cancel()
    return {"code": "CANCELLED", "details": f"after {most} answers", "messages": messages}


def _channel(url: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(URL(url).authority, options=_OPTIONS)
