"""A drain ends when no client sends any more, and takes nothing unknown for an end."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from tailbound.gateway import admin as admin_module
from tailbound.gateway.admin import EnvoyAdmin, EnvoyAwayError, NoAnswerError
from tailbound.gateway.bootstrap import RunDirectory
from tailbound.gateway.drain import drain, waiting_connections
from tailbound.gateway.leaving import ClientTraffic, DrainTimes, GoneEnvoy, Leaving, Seen
from tailbound.objects.unknown import Unknown

TIMES = DrainTimes(propagation=5, quiet=2, idle=15, longest=300)


def traffic(
    requests: int = 0,
    answered: int = 7,
    connections: int = 0,
    connected: int = 9,
    waiting: int | Unknown = 0,
) -> ClientTraffic:
    return ClientTraffic(requests, answered, connections, connected, waiting)


NONE = traffic()
ACTIVE = traffic(requests=1, connections=1)
IDLE = traffic(connections=3)
WAITING = traffic(waiting=2)
UNTOLD = traffic(waiting=Unknown("no table"))
UNKNOWN = Unknown("GET /stats: 503")


@pytest.mark.parametrize(
    ("seen", "seconds", "words"),
    [
        pytest.param([(0, NONE)], 5, "drained", id="nothing-from-the-start"),
        pytest.param([(0, NONE), (3, GoneEnvoy())], 3, "Envoy does not run", id="gone"),
        pytest.param([(0, UNKNOWN), (20, GoneEnvoy())], 20, "Envoy does not run", id="gone-after-a-while"),
        pytest.param([(0, UNKNOWN)], 300, "gave up after 300.0 s; GET /stats: 503", id="never-known"),
        pytest.param([(0, UNKNOWN), (30, NONE)], 32, "drained", id="known-late"),
        pytest.param([(0, NONE), (4, UNKNOWN), (9, NONE)], 9, "drained", id="unknown-for-a-while"),
        pytest.param([(0, ACTIVE), (100, NONE)], 102, "drained", id="a-long-request"),
        pytest.param([(0, ACTIVE)], 300, "gave up after 300.0 s; requests: 1, conn", id="a-hung-request"),
        pytest.param([(0, NONE), (4.5, WAITING), (6, NONE)], 8, "drained", id="not-accepted-for-a-while"),
        pytest.param([(0, WAITING)], 300, "not accepted yet: 2", id="never-accepted"),
        pytest.param([(0, UNTOLD)], 5, "not accepted yet: no table", id="no-accept-queues-are-told"),
        pytest.param([(0, IDLE), (7, NONE)], 7, "drained", id="idle-connections-close"),
        pytest.param([(0, IDLE)], 15, "requests: 0, connections: 3", id="idle-connections-stay"),
        pytest.param(
            [(second, traffic(answered=second, connected=second)) for second in range(61)],
            62,
            "drained",
            id="clients-come-beyond-idle",
        ),
        pytest.param(
            [(second, traffic(connected=second)) for second in range(400)],
            15,
            "drained",
            id="probes-only-connect",
        ),
        pytest.param(
            [(second, traffic(answered=second, connections=1)) for second in range(400)],
            300,
            "gave up",
            id="clients-never-leave",
        ),
    ],
)
def test_when_a_gateway_may_stop(seen: list[tuple[float, Seen]], seconds: float, words: str) -> None:
    leaving, now = Leaving(TIMES, begun=100), 100.0
    while True:
        current = [each for since, each in seen if now - 100 >= since][-1]
        if (outcome := leaving.outcome(current, now, now)) is not None:
            break
        now += 0.25
    assert words in outcome
    assert now - 100 == pytest.approx(seconds, abs=0.26)


def test_quiet_is_measured_up_to_the_question_and_not_up_to_a_late_answer() -> None:
    leaving = Leaving(TIMES, begun=0)
    assert leaving.outcome(traffic(answered=1), 5.9, 6) is None
    assert leaving.outcome(traffic(answered=1), 6.25, 10) is None
    assert leaving.outcome(traffic(answered=1), 8, 8.1) is not None


@pytest.fixture(params=[socket.AF_INET, socket.AF_INET6], ids=["ipv4", "both-families"])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    """A socket that accepts nothing by itself."""
    with socket.socket(request.param) as listening:
        if request.param == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind(("", 0))
        listening.listen()
        yield listening


def test_connections_that_wait_to_be_accepted_are_counted(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    assert waiting_connections(port) == 0
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
    assert waiting_connections(port) == 3
    accepted = listener.accept()[0]
    clients[0].send(b"unread bytes of an accepted connection count elsewhere")
    assert waiting_connections(port) == 2
    for each in (accepted, *clients):
        each.close()


def test_accept_queues_that_the_kernel_does_not_list_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> socket.socket:
        raise PermissionError("no netlink here")

    monkeypatch.setattr(socket, "socket", refused)
    assert isinstance(waiting_connections(80), Unknown)


Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def stuck(_: web.Request) -> web.StreamResponse:
    await asyncio.sleep(0.5)
    return web.Response()


async def failed(_: web.Request) -> web.StreamResponse:
    return web.Response(status=503)


async def reset(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


async def half(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "9"})
    await response.prepare(request)
    await response.write(b"half")
    assert request.transport is not None
    request.transport.close()
    return response


async def binary(_: web.Request) -> web.StreamResponse:
    return web.Response(body=b"\xff\xfe", content_type="text/plain", charset="utf-8")


async def nothing(_: web.Request) -> web.StreamResponse:
    return web.Response(text="{}")


@asynccontextmanager
async def envoy(socket_path: Path, answer: Answer) -> AsyncIterator[None]:
    """A process at Envoy's admin socket."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, str(socket_path)).start()
    try:
        yield
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("answer", [stuck, failed, reset, half, binary, nothing])
async def test_an_envoy_that_gives_no_answer_may_still_run(
    answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_module, "TIMEOUT", aiohttp.ClientTimeout(total=0.1))
    run = RunDirectory(tmp_path)
    times = DrainTimes(propagation=0, quiet=0, idle=0, longest=0.3, poll=0.02)
    async with envoy(run.admin_socket, answer), EnvoyAdmin(run.admin_socket) as admin:
        with pytest.raises(NoAnswerError) as raised:
            await admin.server_info()
        assert not isinstance(raised.value, EnvoyAwayError)
        assert (await drain(run, times)).startswith("gave up after")


@pytest.mark.parametrize("is_left_behind", [True, False])
async def test_an_envoy_that_does_not_run_is_gone(is_left_behind: bool, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    if is_left_behind:
        with socket.socket(socket.AF_UNIX) as former:
            former.bind(str(run.admin_socket))
    async with EnvoyAdmin(run.admin_socket) as admin:
        with pytest.raises(EnvoyAwayError):
            await admin.server_info()
    assert (await drain(run, DrainTimes(longest=300))).startswith("Envoy does not run")
