"""The load driver counts every outcome as what it was, and stops when told."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from e2e.images.client import load
from e2e.images.faulty_runtime import rpc
from e2e.images.faulty_runtime.server import Faults, Server

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def plan(url: str, **changes: object) -> load.Plan:
    values = {"body": b"{}", "headers": {}, "seconds": 0.3, "timeout_seconds": 30, "workers": 1, **changes}
    return load.Plan(url=url, **values)  # type: ignore[arg-type]


async def answer(request: web.Request) -> web.StreamResponse:
    return web.json_response({"model_version": "r1"})


async def unavailable(request: web.Request) -> web.StreamResponse:
    return web.Response(status=503, text="no healthy upstream")


async def reset(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


async def half(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "10"})
    await response.prepare(request)
    await response.write(b"half")
    assert request.transport is not None
    request.transport.close()
    return response


async def stuck(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(1)
    return web.Response()


@pytest.mark.parametrize(
    ("handler", "outcome"),
    [
        (answer, "ok"),
        (unavailable, "http_503"),
        (reset, "disconnected"),
        (half, "truncated"),
        (stuck, "timeout"),
    ],
)
@pytest.mark.parametrize("keep_alive", [True, False])
async def test_each_outcome_has_its_name(handler: Handler, outcome: str, keep_alive: bool) -> None:
    app = web.Application()
    app.router.add_post("/", handler)
    async with TestServer(app) as server:
        # Only what is stuck may reach the time-out: a busy machine makes the other answers late.
        timeout = 0.2 if outcome == "timeout" else 30
        url = str(server.make_url("/"))
        result = await load.run(plan(url, keep_alive=keep_alive, timeout_seconds=timeout))
    assert set(result["outcomes"]) == {outcome}
    assert result["requests"] == result["outcomes"][outcome] == result["ok"] + result["failed"]
    assert result["distinct_answers"] == (1 if outcome == "ok" else 0)
    assert bool(result["failures"]) == (outcome != "ok")


@pytest.mark.parametrize(
    ("faults", "outcome"),
    [
        ({}, "ok"),
        ({"ERROR_FRACTION": 1}, "grpc_internal"),
        ({"HANG_FRACTION": 1}, "grpc_deadline_exceeded"),
    ],
)
async def test_each_outcome_over_grpc_has_its_name(faults: dict[str, float], outcome: str) -> None:
    server = Server("r1", Faults().with_values(faults))
    async with rpc.answering(server, 0, 0) as port:
        url = f"grpc://127.0.0.1:{port}/{rpc.SERVICE}/{rpc.METHOD}"
        timeout = 0.2 if outcome == "grpc_deadline_exceeded" else 30
        result = await load.run(plan(url, timeout_seconds=timeout))
    assert result["outcomes"] == {outcome: server.counts.total()}
    assert all("r1" in each["detail"] for each in result["failures"] if outcome == "grpc_internal")


async def test_a_refused_connection_is_counted() -> None:
    result = await load.run(plan("http://127.0.0.1:1/", rate=20, workers=None))
    assert set(result["outcomes"]) == {"connect"}
    assert result["failures"][0]["detail"].startswith("ConnectionRefusedError ECONNREFUSED: ")


async def test_the_open_loop_keeps_its_rate_while_the_server_is_slow() -> None:
    app = web.Application()
    app.router.add_post("/", stuck)
    async with TestServer(app) as server:
        url = str(server.make_url("/"))
        result = await load.run(plan(url, rate=50, workers=None, seconds=1, timeout_seconds=0.2))
    assert result["outcomes"] == {"timeout": result["requests"]}
    # One sender that awaits each answer would send five; a busy machine makes the second longer.
    assert 10 <= result["requests"] <= 50 * result["seconds"] + 1


async def test_an_answer_that_comes_later_than_wanted_is_not_in_time() -> None:
    app = web.Application()
    app.router.add_post("/", answer)
    async with TestServer(app) as server:
        url = str(server.make_url("/"))
        soon, never = [await load.run(plan(url, seconds=0.3, within_seconds=within)) for within in (30, 0)]
    assert soon["in_time"] == soon["ok"] > 0
    assert (never["in_time"], never["ok"] > 0) == (0, True)


async def test_the_bound_of_the_open_loop_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "MAX_IN_FLIGHT", 2)
    app = web.Application()
    app.router.add_post("/", stuck)
    async with TestServer(app) as server:
        result = await load.run(plan(str(server.make_url("/")), rate=50, workers=None, timeout_seconds=5))
    assert result["outcomes"]["ok"] == 2
    assert result["outcomes"]["unsent"] > 5


async def test_the_stop_file_ends_the_load(tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    app = web.Application()
    app.router.add_post("/", answer)
    async with TestServer(app) as server:
        url = str(server.make_url("/"))
        result = await asyncio.wait_for(load.run(plan(url, seconds=60, stop_file=tmp_path / "stop")), 10)
    assert result["seconds"] < 10


def test_a_plan_is_closed_or_open() -> None:
    with pytest.raises(ValueError, match="either workers"):
        plan("http://127.0.0.1/", rate=1)


@pytest.mark.parametrize(
    ("values", "q", "expected"),
    [([], 0.99, None), ([5.0], 0.5, 5.0), ([1.0, 2.0], 0.5, 1.0), ([1.0, 2.0, 3.0], 0.99, 3.0)],
)
def test_a_quantile_is_a_value_that_occurred(values: list[float], q: float, expected: float | None) -> None:
    assert load.quantile(values, q) == expected


@pytest.mark.parametrize(("seconds", "rate"), [(0, 2), (30, 11), (60, 20), (90, 20)])
def test_the_rate_of_a_rise_grows_evenly_and_stays(seconds: float, rate: float) -> None:
    rising = plan("http://127.0.0.1/", rate=20, workers=None, rise=load.Rise(2, 60))
    assert rising.rate_after(seconds) == rate
