"""SIGTERM is kept back while a request is open on the pod, and no longer than its grace period allows."""

import pytest
from tailbound.hold.connections import Connections, TcpConnection
from tailbound.hold.release import Hold, HoldTimes, has_request, wait
from tailbound.objects.unknown import Unknown

TIMES = HoldTimes(least=10, longest=40, settled=1, poll=0.25)
OPEN = TcpConnection(sent_ago=9, received_ago=3)
SILENT = TcpConnection(sent_ago=60, received_ago=60.5)
UNKNOWN = Unknown("no netlink")


@pytest.mark.parametrize(
    ("connection", "expected"),
    [
        pytest.param(TcpConnection(sent_ago=9, received_ago=3), True, id="the-client-spoke-last"),
        pytest.param(TcpConnection(sent_ago=300, received_ago=299), True, id="it-computes-for-minutes"),
        pytest.param(TcpConnection(sent_ago=0.1, received_ago=50), True, id="an-answer-streams"),
        pytest.param(TcpConnection(sent_ago=29, received_ago=50), True, id="a-stream-pauses"),
        pytest.param(TcpConnection(sent_ago=31, received_ago=31), False, id="silent-after-an-answer"),
        pytest.param(TcpConnection(90, 91, pending=True), True, id="bytes-wait"),
    ],
)
def test_a_connection_has_a_request_unless_it_is_silent_after_an_answer(
    connection: TcpConnection, expected: bool
) -> None:
    assert has_request(connection) is expected


@pytest.mark.parametrize(
    ("seen", "seconds", "words"),
    [
        pytest.param([(0, ())], 10, "idle", id="idle-from-the-start"),
        pytest.param([(0, (SILENT,))], 10, "0 of 1", id="only-silent-connections"),
        pytest.param([(0, (OPEN,)), (20, ())], 20.75, "idle", id="a-request-ends-late"),
        pytest.param([(0, ()), (9.5, (OPEN,)), (9.75, ())], 10.5, "idle", id="a-request-just-ended"),
        pytest.param([(0, (OPEN, SILENT))], 40, "gave up after 40.0 s: 1 of 2", id="a-hung-request"),
        pytest.param([(0, UNKNOWN)], 40, "gave up after 40.0 s: no netlink", id="nothing-is-known"),
        pytest.param([(0, UNKNOWN), (15, ())], 15.75, "idle", id="known-after-a-while"),
    ],
)
def test_when_sigterm_reaches_the_server(
    seen: list[tuple[float, Connections]], seconds: float, words: str
) -> None:
    now = 100.0

    def look() -> Connections:
        return [connections for since, connections in seen if now - 100 >= since][-1]

    def sleep(length: float) -> None:
        nonlocal now
        now += length

    assert words in wait(TIMES, look, lambda: now, sleep)
    assert now - 100 == pytest.approx(seconds, abs=0.26)


def test_a_hold_that_saw_nothing_yet_says_so() -> None:
    assert Hold(HoldTimes(0, 0), 0).release((), 0) == "gave up after 0.0 s: 0 of 0 connections have a request"
