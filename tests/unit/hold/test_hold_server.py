"""The hold answers GET /release when the connections of its neighbour, read from the kernel, are idle."""

import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest
from tailbound.hold.command import HoldServer, main
from tailbound.hold.connections import connections_to
from tailbound.hold.release import HoldTimes, has_request


@pytest.fixture(params=[socket.AF_INET, socket.AF_INET6], ids=["ipv4", "ipv6"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection: the client's and the server's."""
    address = "127.0.0.1" if request.param == socket.AF_INET else "::1"
    with socket.create_server((address, 0), family=request.param) as listener:
        client = socket.create_connection(listener.getsockname()[:2])
        server, _ = listener.accept()
        with client, server:
            yield client, server


def test_an_unanswered_request_is_seen_by_the_port_of_the_server(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    client, server = pair
    port = server.getsockname()[1]
    client.sendall(b"POST / HTTP/1.1")
    server.recv(1024)
    found = connections_to({port})
    assert isinstance(found, tuple)
    (connection,) = found
    assert has_request(connection)
    assert connections_to({client.getsockname()[1]}) != ()  # the other end has a port of its own
    client.close()
    server.close()
    assert connections_to({port}) == ()


def test_release_is_answered_when_the_request_is_over(pair: tuple[socket.socket, socket.socket]) -> None:
    client, server = pair
    times = HoldTimes(least=0, longest=60, settled=0.05, poll=0.02)
    client.sendall(b"POST / HTTP/1.1")
    with HoldServer(0, (server.getsockname()[1],), times) as hold:
        serving = threading.Thread(target=hold.serve_forever, daemon=True)
        serving.start()
        answered = threading.Event()

        def release() -> None:
            asked = HTTPConnection("127.0.0.1", hold.server_address[1], timeout=30)
            asked.request("GET", "/release")
            assert asked.getresponse().status == 200
            answered.set()

        waiting = threading.Thread(target=release, daemon=True)
        waiting.start()
        assert not answered.wait(0.3)
        client.close()
        server.close()
        assert answered.wait(20)
        other = HTTPConnection("127.0.0.1", hold.server_address[1], timeout=5)
        other.request("GET", "/")
        assert other.getresponse().status == 404
        other.close()
        hold.shutdown()
        waiting.join(5)


def test_a_port_that_a_sidecar_has_taken_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sidecar:
        port = sidecar.getsockname()[1]
        status = main(["--port", str(port), "--watch", "8080", "--least", "1", "--longest", "2"])
    assert status == 1
    assert f"port {port} is not free (Address already in use)" in capsys.readouterr().err
