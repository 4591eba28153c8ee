"""The places that a download may go to: names, addresses, redirects, URIs."""

import errno
from dataclasses import replace

import pytest
from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.addresses import AddressPolicy
from tailbound.fetch.download import Retries
from tailbound.fetch.failures import FetchFailedError
from tailbound.fetch.fetching import Access, FetchRequest, fetch

from tests.unit.fetch.faulty_store import status
from tests.unit.fetch.fetcher import CONTENT, LOCALHOST, SHA256, Fetcher


def test_an_unused_port_is_unreachable(fetcher: Fetcher) -> None:
    fetcher.store.port = 1
    assert "Connection refused" in fetcher.fails(TerminationReason.SOURCE_UNREACHABLE)


@pytest.mark.parametrize(
    "host",
    [
        "no-such-host.invalid",
        "127.0.0.1",
        "169.254.169.254",
        "10.96.0.1",
        "[::1]",
        "a..b",
    ],
)
def test_one_answer_for_every_host_that_may_not_be_fetched_from(fetcher: Fetcher, host: str) -> None:
    """Whether a name exists inside the cluster, and which port is open there, shows nowhere."""
    said = set()
    for port in (fetcher.store.port, 1):
        order = FetchRequest(f"http://{host}:{port}/m", SHA256, fetcher.output)
        with pytest.raises(FetchFailedError) as caught:
            fetch(order, LOCALHOST, fetcher.world)
        assert caught.value.reason is TerminationReason.ADDRESS_DENIED
        said.add(str(caught.value).replace(host.strip("[]"), "HOST"))
    assert said == {
        "HOST may not be fetched from: it has no address on the internet, and fetch.allowedHosts and "
        "fetch.allowedCIDRs of the chart do not allow it: correct the host, or have it allowed there"
    }
    assert fetcher.store.requests == []


def test_redirects_are_followed(fetcher: Fetcher) -> None:
    fetcher.store.replies.extend(
        [status(302, Location="/moved"), status(308, Location=fetcher.store.url("/again"))]
    )
    fetcher.run()
    assert fetcher.store.paths == ["/model.onnx", "/moved", "/again"]
    assert fetcher.output.read_bytes() == CONTENT


def test_a_redirect_to_a_denied_address_is_refused(fetcher: Fetcher) -> None:
    # 127.0.0.1 is the same server, but not the allowed name.
    fetcher.store.replies.append(status(302, Location=f"http://127.0.0.1:{fetcher.store.port}/m"))
    message = fetcher.fails(TerminationReason.ADDRESS_DENIED)
    assert message.startswith(f"{fetcher.store.url()} redirects to a host that may not be fetched from")
    assert "127.0.0.1" not in message
    assert len(fetcher.store.requests) == 1


@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/latest/meta-data", "http://[::1]/", "http://0x7f000001/"]
)
def test_a_redirect_to_the_metadata_server_or_home_is_refused(fetcher: Fetcher, target: str) -> None:
    fetcher.store.replies.append(status(302, Location=target))
    fetcher.fails(TerminationReason.ADDRESS_DENIED)


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://localhost/m", "gopher://localhost/"])
def test_a_redirect_to_another_scheme_is_refused(fetcher: Fetcher, target: str) -> None:
    fetcher.store.replies.append(status(302, Location=target))
    assert "only http and https" in fetcher.fails(TerminationReason.SOURCE_UNREACHABLE)


def test_a_redirect_loop_ends(fetcher: Fetcher) -> None:
    fetcher.store.replies.extend([status(302, Location="/model.onnx")] * 20)
    assert "more than 10 times" in fetcher.fails(TerminationReason.SOURCE_UNREACHABLE)


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("http://user:secret@localhost/m", "user or password"),
        ("http:///m", "names no host"),
        ("http://localhost:0/m", "port is 0"),
        ("http://localhost:99999/m", "malformed"),
        ("http://[::1/m", "malformed"),
        ("ftp://localhost/m", "only http and https"),
    ],
)
def test_an_unusable_uri_is_refused_without_its_secrets(fetcher: Fetcher, uri: str, said: str) -> None:
    with pytest.raises(FetchFailedError, match=said) as caught:
        fetch(FetchRequest(uri, SHA256, fetcher.output), LOCALHOST, fetcher.world)
    assert caught.value.reason is TerminationReason.SOURCE_UNREACHABLE
    assert "secret" not in str(caught.value)


def test_a_signature_in_the_query_is_sent_but_not_shown(fetcher: Fetcher) -> None:
    path = "/a b/ü.onnx?sig=hidden%2F"
    message = fetcher.run(path=path)
    assert fetcher.store.paths == ["/a%20b/%C3%BC.onnx?sig=hidden%2F"]
    assert "hidden" not in message + str(fetcher.lines)


def test_the_connection_goes_to_the_address_that_was_checked(
    fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that answers differently the second time (rebinding) is asked once only."""
    import socket

    asked: list[str] = []

    def resolve(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    fetcher.run()
    assert asked == ["localhost"]


def test_a_denied_address_is_passed_over_for_an_allowed_one(
    fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    tried: list[object] = []
    info = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 80)) for ip in ("169.254.169.254", "93.184.0.9")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: info)

    def connect(self: socket.socket, address: object) -> None:
        tried.append(address)
        raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")

    monkeypatch.setattr(socket.socket, "connect", connect)
    world = replace(fetcher.world, retries=Retries(attempts=1))
    fetcher.fails(
        TerminationReason.SOURCE_UNREACHABLE, world=world, access=Access(AddressPolicy.from_env({}))
    )
    assert tried == [("93.184.0.9", 80)]
