"""The client pod sends each request once, and tells what came of it."""

import base64
from urllib.parse import urlencode

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from e2e.images.client.client import application
from e2e.images.faulty_runtime import rpc
from e2e.images.faulty_runtime.server import Faults, Server


async def test_one_request_is_sent_as_it_was_asked_for_and_its_outcome_told() -> None:
    seen: list[tuple[str, str, str, bytes]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.method, request.host, request.headers["X-One"], await request.read()))
        return web.Response(status=421, text="nobody: ü", headers={"Retry-After": "3"})

    target = web.Application()
    target.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(target) as server, TestClient(TestServer(application())) as client:

        async def asked(method: str, url: str, body: bytes | None) -> dict[str, object]:
            query = [("method", method), ("url", url), ("timeout", "5")]
            query += [("header", "Host:churn.risk"), ("header", "X-One:a: b")]
            response = await client.post(f"/request?{urlencode(query)}", data=body)
            assert response.status == 200
            found: dict[str, object] = await response.json()
            return found

        for method, body in (("POST", b"\x00body"), ("GET", None)):
            told = await asked(method, str(server.make_url("/v2?a=b&c")), body)
            assert (told["status"], told["body"]) == (421, "nobody: ü")
            assert dict(told["headers"]).items() >= {("Retry-After", "3")}  # type: ignore[call-overload]
        assert seen == [("POST", "churn.risk", "a: b", b"\x00body"), ("GET", "churn.risk", "a: b", b"")]
        refused = await asked("GET", "http://127.0.0.1:1/", None)
    assert "status" not in refused
    assert "ClientConnectorError" in str(refused["error"])


@pytest.mark.parametrize(
    ("faults", "code", "details", "answers"),
    [({}, "OK", "", ["r1"]), ({"ERROR_FRACTION": 1}, "INTERNAL", "r1 was told to fail", [])],
)
async def test_one_grpc_call_is_made_and_its_status_and_answers_told(
    faults: dict[str, float], code: str, details: str, answers: list[str]
) -> None:
    server = Server("r1", Faults().with_values(faults))
    async with rpc.answering(server, 0, 1) as port, TestClient(TestServer(application())) as client:
        url = f"grpc://127.0.0.1:{port}/{rpc.SERVICE}/{rpc.METHOD}"
        query = urlencode({"url": url, "timeout": 5, "answers": 2})
        told = await (await client.post(f"/call?{query}", data=b"")).json()
    expected = [base64.b64encode(rpc.answer(each)).decode() for each in answers]
    assert told == {"code": code, "details": details, "messages": expected}
    assert server.counts.total() == 1
