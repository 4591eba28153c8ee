"""Through a proxy, ours for libraries and the company's for everything: the same hosts are allowed."""

import http.client
import urllib.request
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tailbound.api.runtime_contract import FetchEnv, TerminationReason
from tailbound.fetch.addresses import AddressPolicy
from tailbound.fetch.dial import Dialer, Proxy, TimeOuts
from tailbound.fetch.download import Retries
from tailbound.fetch.gate import Gate

from tests.unit.fetch.faulty_store import stall_after
from tests.unit.fetch.fetcher import CONTENT, LOCALHOST, Fetcher

NOTHING = AddressPolicy.from_env({})


@pytest.fixture
def company() -> Iterator[Gate]:
    """A proxy that understands CONNECT and reaches localhost."""
    with Gate(Dialer(LOCALHOST.policy, TimeOuts())) as gate:
        yield gate


def address(gate: Gate, *, trusted: bool) -> Proxy:
    return Proxy.parse(gate.url, trusted=trusted)


def test_a_library_reaches_allowed_hosts_through_the_gate(fetcher: Fetcher) -> None:
    with Gate(Dialer(LOCALHOST.policy, TimeOuts())) as gate:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": gate.url}))
        for _ in range(2):
            assert opener.open(fetcher.store.url("/a%20b?c=d")).read() == CONTENT
        assert fetcher.store.paths == ["/a%20b?c=d"] * 2
        assert gate.refusal is None


@pytest.mark.parametrize("method", ["GET", "CONNECT"])
def test_a_library_reaches_no_other_host(fetcher: Fetcher, method: str) -> None:
    with Gate(Dialer(NOTHING, TimeOuts())) as gate:
        client = http.client.HTTPConnection("127.0.0.1", Proxy.parse(gate.url, trusted=True).port)
        target = fetcher.store.url() if method == "GET" else f"localhost:{fetcher.store.port}"
        client.request(method, target)
        assert client.getresponse().status == 403
        client.close()
        assert gate.refusal is not None
        assert gate.refusal.reason is TerminationReason.ADDRESS_DENIED
    assert fetcher.store.requests == []


def test_a_name_that_only_the_proxy_of_the_chart_knows_is_fetched_through_it(
    fetcher: Fetcher, company: Gate
) -> None:
    fetcher.run(access=replace(LOCALHOST, proxy=address(company, trusted=True)))
    assert fetcher.output.read_bytes() == CONTENT


def test_a_host_that_may_not_be_fetched_from_is_refused_before_the_proxy(
    fetcher: Fetcher, company: Gate
) -> None:
    access = replace(LOCALHOST, policy=NOTHING, proxy=address(company, trusted=True))
    fetcher.fails(TerminationReason.ADDRESS_DENIED, access=access)
    assert fetcher.store.requests == []


def test_the_proxy_of_a_service_must_be_allowed_itself(fetcher: Fetcher, company: Gate) -> None:
    access = replace(LOCALHOST, proxy=address(company, trusted=False))
    assert "127.0.0.1 may not be" in fetcher.fails(TerminationReason.ADDRESS_DENIED, access=access)
    both = AddressPolicy.from_env({FetchEnv.ALLOWED_HOSTS: "localhost,127.0.0.1"})
    fetcher.run(access=replace(access, policy=both))
    assert fetcher.output.read_bytes() == CONTENT


def test_a_proxy_that_refuses_is_named(fetcher: Fetcher) -> None:
    with Gate(Dialer(NOTHING, TimeOuts())) as gate:
        access = replace(LOCALHOST, proxy=address(gate, trusted=True))
        world = replace(fetcher.world, retries=Retries(attempts=1))
        said = fetcher.fails(TerminationReason.SOURCE_UNREACHABLE, access=access, world=world)
    assert "the proxy refused: 403 Forbidden" in said


def test_a_store_that_stalls_behind_the_gate_is_given_up(fetcher: Fetcher) -> None:
    fetcher.store.replies.append(stall_after(1000))
    with Gate(Dialer(LOCALHOST.policy, TimeOuts(stall_seconds=0.3))) as gate:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": gate.url}))
        with pytest.raises(http.client.IncompleteRead):
            opener.open(fetcher.store.url()).read()


@pytest.mark.parametrize(
    "url", ["https://proxy:3128", "http://proxy", "proxy:3128", "http://me:pw@proxy:3128"]
)
def test_a_proxy_is_named_by_host_and_port(url: str) -> None:
    with pytest.raises(ValueError, match="is not a proxy: write http://HOST:PORT"):
        Proxy.parse(url, trusted=True)
