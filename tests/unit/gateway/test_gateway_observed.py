"""POST and GET /observed, between the operator's client and the sidecar's server, over HTTP."""

import io
import json
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tailbound.api.traffic import MOST_ASKED, AppliedRoute, Observed, RequestClasses
from tailbound.controller.gateways import GatewayReports
from tailbound.controller.observed_client import ObservedClient
from tailbound.gateway.http import observed_app
from tailbound.gateway.observed import Observer
from tailbound.gateway.tokens import TokenVerdict
from tailbound.kube.objects import Key
from tailbound.kube.store import ObjectStore
from tailbound.objects.unknown import Unknown
from tailbound.telemetry.metrics import Metrics
from tailbound.traffic.model import ServiceKey

FLEET = [ServiceKey("n" * 63, f"{number:04}" + "s" * 59) for number in range(1000)]
COUNTED = RequestClasses(good=7)
START = datetime(2026, 1, 2, tzinfo=UTC)
POD: dict[str, Any] = {
    "metadata": {"namespace": "sys", "name": "gw", "uid": "u", "resourceVersion": "1"},
    "status": {"podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
}


@dataclass
class Envoy:
    """Counts its readings."""

    counted: list[int] = field(default_factory=list)

    async def start_if_live(self) -> datetime:
        return START

    async def counters(self, services: Collection[ServiceKey]) -> dict[ServiceKey, dict[str, RequestClasses]]:
        self.counted.append(len(services))
        return {service: {"r1": COUNTED} for service in services}


class Allowing:
    async def check(self, _: str | None, address: str) -> TokenVerdict:
        return TokenVerdict.ALLOWED


@pytest.fixture
def envoy() -> Envoy:
    return Envoy()


@pytest.fixture
async def port(envoy: Envoy) -> AsyncIterator[int]:
    configuration = SimpleNamespace(
        services=lambda: set(FLEET), refusal=lambda _: None, desired=lambda _: None
    )
    applied = {service: AppliedRoute(generation=1, traffic_generation=2) for service in FLEET}
    observer = Observer(
        cast(Any, configuration),
        cast(Any, SimpleNamespace(synced=True, applied=applied)),
        cast(Any, SimpleNamespace(rejections={})),
        cast(Any, envoy),
    )
    app: web.Application = observed_app(observer, cast(Any, Allowing()))
    async with TestServer(app) as server:
        assert server.port is not None
        yield server.port


async def test_a_thousand_rollouts_with_the_longest_names_are_counted_in_bounded_requests(
    port: int, envoy: Envoy
) -> None:
    store, client = ObjectStore(), ObservedClient(None, port)
    reports = GatewayReports(store, client, lambda: 0.0, Metrics(), lambda _: None, lambda: None)
    store.upsert(POD)
    keys: list[Key] = [(service.namespace, service.name) for service in FLEET]
    try:
        await reports.refresh()
        assert envoy.counted == []
        found = await reports.ask(keys)
    finally:
        await client.close()
    assert {key for key in keys if not isinstance(found[key]["gw"], Observed)} == set()
    answer = found[keys[0]]["gw"]
    assert isinstance(answer, Observed)
    assert len(answer.services) == MOST_ASKED
    assert {str(seen.counters) for seen in answer.services.values()} == {"{'r1': " + repr(COUNTED) + "}"}
    assert envoy.counted == [MOST_ASKED] * (len(FLEET) // MOST_ASKED)


async def test_acknowledgements_are_answered_without_envoys_counters(port: int, envoy: Envoy) -> None:
    client = ObservedClient(None, port)
    try:
        some = await client(POD, [(FLEET[0].namespace, FLEET[0].name), ("risk", "unknown")])
    finally:
        await client.close()
    assert isinstance(some, Observed)
    assert some.services.keys() == {str(FLEET[0])}
    assert some.services[str(FLEET[0])].counters is None
    assert envoy.counted == []


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"services": ["a/b"] * (MOST_ASKED + 1)}, 400, "services: Tuple should have at most 500 items"),
        ({}, 400, "services: Field required"),
        ({"services": ["a" * 2**20]}, 413, "ask for at most 500 services at a time"),
    ],
    ids=["too-many", "none-named", "too-large"],
)
async def test_question_that_cannot_be_answered_says_why(
    port: int, body: dict[str, Any], status: int, words: str
) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"http://127.0.0.1:{port}/observed", data=io.BytesIO(json.dumps(body).encode())
        ) as response,
    ):
        assert response.status == status
        assert words in (await response.json())["error"]


async def test_client_hands_on_why_a_gateway_refuses() -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.json_response({"error": "only the operator may read this"}, status=403)

    app = web.Application()
    app.add_routes([web.post("/observed", refuse)])
    async with TestServer(app) as server:
        client = ObservedClient(None, server.port or 0)
        try:
            answer = await client(POD, [("a", "b")])
        finally:
            await client.close()
    assert answer == Unknown("/observed answers 403: only the operator may read this")
