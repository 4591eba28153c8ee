"""Answers of Prometheus: values with their times, and never a zero for what is missing."""

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest
from requests import ReadTimeout
from tailbound.objects.unknown import Unknown
from tailbound.telemetry.bounded import BoundedSession
from tailbound.telemetry.prometheus import FleetSignal, Prometheus, Series, Value, fleet_of, series_of

NAMES = {"namespace": "risk", "service": "churn", "revision": "churn-r1-abcdef"}
Answer = tuple[int, bytes]


def vector(*series: tuple[dict[str, str], str], at: float = 100.5) -> list[dict[str, Any]]:
    """data.result of an instant query."""
    return [{"metric": labels, "value": [at, number]} for labels, number in series]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        pytest.param([], (), id="nothing"),
        pytest.param(vector((NAMES, "2.5")), (Series(NAMES, (Value(100.5, 2.5),)),), id="a-vector"),
        pytest.param(
            [{"metric": NAMES, "values": [[98.1, "1"], [100.1, "3"]]}],
            (Series(NAMES, (Value(98.1, 1), Value(100.1, 3))),),
            id="raw-samples-keep-their-own-times",
        ),
        pytest.param([100.5, "4"], (Series({}, (Value(100.5, 4),)),), id="a-scalar"),
        pytest.param(vector((NAMES, "NaN")), (Series(NAMES, (), "NaN"),), id="not-a-number-is-no-value"),
        pytest.param(vector((NAMES, "+Inf")), (Series(NAMES, (), "+Inf"),), id="infinity-is-no-value"),
        pytest.param(
            [{"metric": NAMES, "values": [[98.1, "NaN"], [100.1, "3"]]}],
            (Series(NAMES, (Value(100.1, 3),)),),
            id="the-newest-sample-says-whether-there-is-a-number",
        ),
    ],
)
def test_an_answer_becomes_series(result: Any, expected: tuple[Series, ...]) -> None:
    assert series_of(result) == expected


def test_a_fleet_has_the_newest_value_of_each_revision() -> None:
    other = NAMES | {"revision": "churn-r2-fedcba"}
    fleet = fleet_of((Series(NAMES, (Value(1, 5), Value(2, 6))), Series(other, ())))
    assert isinstance(fleet, FleetSignal)
    assert fleet.of("risk", "churn", "churn-r1-abcdef") == Value(2, 6)
    for revision in ("churn-r2-fedcba", "churn-r3-000000"):
        missing = fleet.of("risk", "churn", revision)
        assert isinstance(missing, Unknown)
        assert revision in missing.reason


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param((Series({"namespace": "a"}, ()),), "group by namespace, service, revision", id="names"),
        pytest.param(
            (Series(NAMES, (Value(1, 1),)), Series(NAMES | {"pod": "b"}, (Value(1, 1),))),
            "several series of risk/churn/churn-r1-abcdef",
            id="twice",
        ),
    ],
)
def test_a_query_that_does_not_tell_revisions_apart_says_nothing(
    answer: tuple[Series, ...], reason: str
) -> None:
    fleet = fleet_of(answer)
    assert isinstance(fleet, Unknown)
    assert reason in fleet.reason


# What Prometheus reads as a duration: whole numbers, each with its unit.
DURATION = re.compile(r"(?:\d+(?:ms|s|m|h|d|w|y))+")


@contextmanager
def prometheus(answer: Callable[[str], Answer], piece: int = 2**20, pause: float = 0.0) -> Iterator[str]:
    """A server that answers each query, in pieces of so many bytes with pauses in seconds; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            assert parts.path == "/api/v1/query"
            query = parse_qs(parts.query)
            known = DURATION.fullmatch(query["timeout"][0]) is not None
            status, body = (
                answer(query["query"][0]) if known else (400, b"not a duration: " + parts.query.encode())
            )
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(OSError):
                for begin in range(0, len(body), piece):
                    self.wfile.write(body[begin : begin + piece])
                    time.sleep(pause)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def success(result: Any) -> Answer:
    """What a Prometheus that understood answers."""
    return 200, json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


async def ask(url: str, expression: str, timeout_seconds: float = 60) -> tuple[Series, ...] | Unknown:
    """One query."""
    client = Prometheus(url, timeout_seconds)
    try:
        return await client.query(expression)
    finally:
        client.close()


async def test_the_expression_reaches_prometheus_unchanged() -> None:
    asked: list[str] = []

    def answer(expression: str) -> Answer:
        asked.append(expression)
        return success(vector((NAMES, "1")))

    expression = 'sum by (service) (rate(a_total{b=~"x|y+ z"}[30s])) / 2 > 0'
    with prometheus(answer) as url:
        assert await ask(url + "/", expression) == (Series(NAMES, (Value(100.5, 1),)),)
    assert asked == [expression]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param((400, b'{"error":"parse error"}'), "refuses the query: .*parse error", id="refused"),
        pytest.param((503, b"starting"), "refuses the query: .*503.*starting", id="not-ready"),
        pytest.param((200, b"<html>"), "is not (understood|reached)", id="somebody-else"),
        pytest.param((200, b'{"data":{}}'), "is not understood", id="no-result"),
        pytest.param((200, b'{"data":{"result":[{"metric":{}}]}}'), "is not understood", id="no-values"),
    ],
)
async def test_what_is_no_answer_is_unavailable_with_the_reason(answer: Answer, reason: str) -> None:
    with prometheus(lambda _: answer) as url:
        found = await ask(url, "up")
    assert isinstance(found, Unknown)
    assert re.search(reason, found.reason), found.reason


async def test_a_prometheus_that_is_not_there_is_unavailable() -> None:
    with prometheus(lambda _: success([])) as url:
        pass
    found = await ask(url, "up")
    assert isinstance(found, Unknown)
    assert "is not reached" in found.reason


@pytest.mark.parametrize("seconds", [2.0, 2.002, 12.3456], ids=["whole", "of-two-services", "of-many"])
async def test_any_limit_is_a_duration_of_prometheus(seconds: float) -> None:
    with prometheus(lambda _: success([])) as url:
        assert await ask(url, "up", timeout_seconds=seconds) == ()


async def test_a_prometheus_that_hangs_is_given_up() -> None:
    release = threading.Event()

    def answer(_: str) -> Answer:
        release.wait(60)
        return success([])

    with prometheus(answer) as url:
        began = time.monotonic()
        found = await ask(url, "up", timeout_seconds=0.2)
        release.set()
    assert found == Unknown("Prometheus does not answer within 0.2 s")
    assert time.monotonic() - began < 60


async def test_of_an_answer_without_end_no_more_is_read_than_a_client_may() -> None:
    answer = success(vector(*((NAMES | {"pod": str(number)}, "1") for number in range(9000))))
    with prometheus(lambda _: answer) as url:
        client = Prometheus(url, timeout_seconds=60, most_bytes=2**18)
        found = await client.query("up")
        assert isinstance(found, Unknown)
        assert "more than 262144 bytes" in found.reason
        client.close()
        assert len(cast(tuple[Series, ...], await ask(url, "up"))) == 9000


async def test_an_answer_that_comes_in_small_pieces_holds_up_no_thread() -> None:
    answer = success(vector(*[(NAMES, "1")] * 900))
    with (
        prometheus(lambda _: answer, 2**10, 0.2) as url,
        BoundedSession(2**26, 0.5) as session,
        pytest.raises(ReadTimeout),
    ):
        session.get(f"{url}/api/v1/query?query=up&timeout=1s", timeout=60)


async def test_queries_that_wait_for_their_turn_are_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them take longer than the limit of one, and each takes a twentieth of it."""

    def ask_slowly(*_: Any) -> tuple[Series, ...]:
        time.sleep(0.1)
        return ()

    monkeypatch.setattr(Prometheus, "_ask", ask_slowly)
    client = Prometheus("http://prometheus.test", timeout_seconds=2)
    found = await asyncio.gather(*(client.query("up") for _ in range(100)))
    client.close()
    assert set(found) == {()}
