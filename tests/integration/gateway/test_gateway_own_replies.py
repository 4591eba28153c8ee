"""What Envoy answers by itself: it always says why, and no revision is blamed for it."""

import asyncio
import json
from itertools import product
from typing import Any, NamedTuple

import pytest_asyncio
from tailbound.gateway.drain import drain
from tailbound.gateway.leaving import DrainTimes

from e2e.cluster.ports import free_port
from tests.integration.gateway.gateway_lab import Gateway, Pods, until
from tests.integration.gateway.scripted_cluster import endpoint_slice, inference_service

HTTP = free_port()


@pytest_asyncio.fixture
async def gateway(gateway: Gateway, pods: Pods) -> Gateway:
    """A gateway with risk/churn, whose requests have 300 ms."""
    await pods.http("churn-r1", "127.0.0.2", HTTP)
    gateway.cluster.put(
        inference_service("risk", "churn", {"churn-r1": 100}, timeout="300ms"),
        endpoint_slice("risk", "churn", "churn-r1", [("127.0.0.2", "ready")], {"http": HTTP}),
    )
    await gateway.until_applied("risk/churn", 1)
    return gateway


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


async def raw(gateway: Gateway, request: bytes) -> Answer:
    """The answer to these bytes, which need not be HTTP."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.http_port)
    writer.write(request)
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)).decode()
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    writer.close()
    return Answer(int(first.split(" ")[1]), headers, body)


def get(
    *headers: str, host: str = "churn.risk", path: str = "/", version: str = "1.1", method: str = "GET"
) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/{version}", f"host: {host}", *headers, "", ""]).encode()


REFUSED = {
    "upgrade": (get("connection: upgrade", "upgrade: websocket"), 403, "no connection to 'websocket'"),
    "connect": (b"CONNECT churn.risk:80 HTTP/1.1\r\nhost: churn.risk\r\n\r\n", 405, "opens no tunnels"),
    "large-headers": (get(f"x-large: {'x' * 40_000}"), 431, "more than 32 KiB"),
    "many-headers": (get(*(f"x-{number}: 1" for number in range(150))), 431, "more than 100 headers"),
    "no-host": (b"GET / HTTP/1.1\r\n\r\n", 400, "no valid HTTP request (missing_host_header)"),
    "two-lengths": (get("content-length: 1", "content-length: 2"), 400, "no valid HTTP request"),
    "old-version": (get(version="1.0"), 426, "low_version"),
    "timeout": (
        get("content-length: 0", path="/v2/models/churn/infer?sleep=5", method="POST"),
        504,
        "did not answer within 0.3s",
    ),
    "unknown-host": (get(host="nobody.risk"), 421, "use NAME.NAMESPACE"),
    "body-stands-still": (
        b"POST / HTTP/1.1\r\nhost: churn.risk\r\ncontent-length: 9\r\n\r\nx",
        408,
        "send its body without a pause",
    ),
}


async def test_every_answer_of_the_gateways_own_says_why_and_blames_nobody(gateway: Gateway) -> None:
    answers = await asyncio.gather(*(raw(gateway, request) for request, _, _ in REFUSED.values()))
    for (name, (_, status, words)), answer in zip(REFUSED.items(), answers, strict=True):
        assert answer.status == status, (name, answer)
        assert answer.headers["content-type"] == "application/json", name
        assert words in json.loads(answer.body)["error"], name
    counted = (await gateway.observed("risk/churn"))["services"]["risk/churn"]["counters"]["churn-r1"]
    assert {name: count for name, count in counted.items() if count} == {"timedOut": 1}


LOAD_BALANCERS = ("10.1.2.3", "10.1.2.3:8080", "[fd00::7]:8080")


async def test_load_balancers_are_answered_until_the_gateway_leaves(gateway: Gateway) -> None:
    for path in ("/", "/healthz"):
        for host in LOAD_BALANCERS:
            assert (await raw(gateway, get(host=host, path=path))).status == 200, (host, path)
            assert (await raw(gateway, get(host=host, path="/v2"))).status == 421, host
        own = json.loads((await raw(gateway, get(path=path))).body)
        assert own["revision"] == "churn-r1", "health paths of a service are its own"
    await drain(gateway.run, DrainTimes(propagation=0.0, idle=0.0, longest=1.0))
    for host in LOAD_BALANCERS:
        assert (await raw(gateway, get(host=host))).status == 503, host


async def test_a_header_never_stands_in_for_the_host(gateway: Gateway) -> None:
    for header, host in product(("x-tailbound-host", "X-Tailbound-Host"), ("", "nobody.risk")):
        answer = await raw(gateway, get(f"{header}: churn.risk", host=host))
        assert answer.status in (400, 421), (header, host)
        assert b"churn-r1" not in answer.body, (header, host)


async def test_a_client_cannot_send_its_body_past_the_limit(gateway: Gateway) -> None:
    async def told() -> Any:
        status, body, _ = await gateway.call(
            "churn.risk", method="POST", data=b"x" * 200_000, headers={"x-tailbound-stream": "yes"}
        )
        return (status, body) if status else None

    status, body = await until("the answer", told)
    assert (status, "larger than" in body["error"]) == (413, True)
