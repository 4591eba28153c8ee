"""Pods that are asked for the signature of their model: which answers are kept, and when no more is asked."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tailbound.controller.signature_reader import (
    ATTEMPTS,
    LONGEST_ANSWER,
    Answer,
    MetadataClient,
    SignatureReader,
    UnreachedError,
)
from tailbound.kube.objects import Key
from tailbound.objects.signature import ModelSignature, ModelTensor
from tailbound.objects.unknown import Unknown
from tailbound.reconcile.model import SignatureRequest

KEY = ("risk", "churn")
FOUND = ModelSignature((ModelTensor("x", "FP32", (-1, 4)),), (ModelTensor("y", "FP32", (-1,)),))
REQUEST = SignatureRequest("r1", ("http://a", "http://b"))


class Pods:
    """Answers one question after the other."""

    def __init__(self, *answers: Answer | UnreachedError) -> None:
        self.answers, self.asked, self.told = list(answers), list[str](), list[Key]()
        self.heard = asyncio.Event()
        self.reader = SignatureReader(self.read, self.tell, pause_seconds=0)

    def tell(self, key: Key) -> None:
        self.told.append(key)
        self.heard.set()

    async def read(self, url: str) -> Answer:
        self.asked.append(url)
        found = self.answers.pop(0)
        if isinstance(found, UnreachedError):
            raise found
        return found


async def test_an_answer_is_kept_until_it_is_asked_for_no_more() -> None:
    pods = Pods(UnreachedError("refused"), FOUND)
    pods.reader.expect(KEY, (REQUEST,))
    assert await pods.reader.round()
    assert pods.reader.view(KEY) == {}
    assert not await pods.reader.round()
    pods.reader.expect(KEY, (REQUEST,))
    assert not await pods.reader.round()
    assert pods.reader.view(KEY) == {"r1": FOUND}
    assert pods.asked == ["http://a", "http://b"]
    assert pods.told == [KEY]
    pods.reader.expect(KEY, ())
    assert pods.reader.view(KEY) == {}


async def test_pods_that_nobody_reaches_are_given_up_with_a_remedy() -> None:
    pods = Pods(*[UnreachedError("refused")] * ATTEMPTS)
    pods.reader.expect(KEY, (REQUEST,))
    running = asyncio.create_task(pods.reader.run())
    await pods.heard.wait()
    running.cancel()
    found = pods.reader.view(KEY)["r1"]
    assert isinstance(found, Unknown)
    assert "refused" in found.reason
    assert "NetworkPolicies" in found.reason
    assert not await pods.reader.round()


@asynccontextmanager
async def serving(**answer: Any) -> AsyncIterator[str]:
    async def metadata(_: web.Request) -> web.StreamResponse:
        return web.Response(**answer)

    app = web.Application()
    app.router.add_get("/v2/models/churn", metadata)
    async with TestServer(app) as server:
        yield str(server.make_url("/v2/models/churn"))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        pytest.param({"status": 404}, "answers GET /v2/models/churn with 404", id="no-metadata"),
        pytest.param({"status": 302, "headers": {"Location": "http://x.invalid"}}, "with 302", id="redirect"),
        pytest.param({"body": b"{"}, "no JSON", id="no-json"),
        pytest.param({"body": b"[" * 100_000}, "no JSON", id="deep"),
        pytest.param({"body": b"\xff"}, "no JSON", id="no-utf8"),
        pytest.param({"body": b" " * (LONGEST_ANSWER + 1)}, "more than", id="endless"),
        pytest.param({"body": b'{"inputs": [], "outputs": []}'}, "lists no inputs", id="untyped"),
    ],
)
async def test_answers_without_a_signature_say_why(answer: dict[str, object], says: str) -> None:
    client = MetadataClient()
    async with serving(**answer) as url:
        found = await client(url)
    await client.close()
    assert isinstance(found, Unknown)
    assert says in found.reason


async def test_what_is_no_http_is_not_reached_and_quoted_in_ascii_with_a_bound() -> None:
    async def garbage(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nX-\xff\x1b: " + b"\xff" * 5000 + b"\r\nContent-Length: x\r\n\r\n")
        await writer.drain()
        writer.close()

    client = MetadataClient()
    server = await asyncio.start_server(garbage, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(UnreachedError) as found:
            await client(f"http://127.0.0.1:{port}/v2/models/churn")
    await client.close()
    assert str(found.value).isascii()
    assert 0 < len(str(found.value)) <= 300


async def test_a_signature_is_read_over_http_and_a_closed_port_is_not_reached() -> None:
    client = MetadataClient()
    listed = '{"name": "%s", "datatype": "FP32", "shape": [%s]}'
    body = f'{{"inputs": [{listed % ("x", "-1, 4")}], "outputs": [{listed % ("y", "-1")}]}}'
    async with serving(text=body) as url:
        assert await client(url) == FOUND
    with pytest.raises(UnreachedError):
        await client(url)
    await client.close()
