"""The client pod sends each request once, and tells what came of it."""

from urllib.parse import urlencode

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from e2e.images.client.client import application


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
