"""Which addresses a model may come from."""

import ipaddress

import pytest
from tailbound.fetch.addresses import ALLOWED_HOSTS, DENIED_CIDRS, AddressPolicy, PolicyError

NOTHING_CONFIGURED = AddressPolicy.from_env({})
CLUSTER = AddressPolicy.from_env(
    {
        ALLOWED_HOSTS: " Store.Models.svc. ,127.0.0.1,[::1]",
        DENIED_CIDRS: "10.96.0.0/12, fd00::/8,192.168.1.7/24",
    }
)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1", "a loopback address"),
        ("127.9.9.9", "a loopback address"),
        ("::1", "a loopback address"),
        ("169.254.169.254", "a link-local address"),
        ("fe80::1", "a link-local address"),
        ("0.0.0.0", "an address of no host"),
        ("0.1.2.3", "an address of no host"),
        ("::", "an address of no host"),
        ("224.0.0.1", "a multicast address"),
        ("ff02::1", "a multicast address"),
        ("255.255.255.255", "a reserved address"),
        ("240.0.0.1", "a reserved address"),
        ("100.100.100.200", "a cloud's metadata address"),
        ("168.63.129.16", "a cloud's metadata address"),
        ("fd00:ec2::254", "a cloud's metadata address"),
        ("::ffff:127.0.0.1", "a loopback address"),
        ("::ffff:169.254.169.254", "a link-local address"),
        ("64:ff9b::a9fe:a9fe", "a link-local address"),
        ("2002:7f00:1::", "a loopback address"),
    ],
)
def test_special_addresses_are_denied_unasked(address: str, said: str) -> None:
    refusal = NOTHING_CONFIGURED.refusal("models.example", ipaddress.ip_address(address))
    assert refusal is not None
    assert said in refusal
    assert str(ipaddress.ip_address(address)) in refusal


@pytest.mark.parametrize("address", ["93.184.216.34", "10.0.0.5", "2606:2800:220:1::1", "64:ff9b::5db8:d822"])
def test_other_addresses_are_allowed(address: str) -> None:
    assert NOTHING_CONFIGURED.refusal("models.example", ipaddress.ip_address(address)) is None


@pytest.mark.parametrize(
    "address", ["10.96.0.1", "10.111.255.255", "fd12::1", "192.168.1.200", "::ffff:10.96.0.1"]
)
def test_denied_networks_are_denied_and_named(address: str) -> None:
    refusal = CLUSTER.refusal("models.example", ipaddress.ip_address(address))
    assert refusal is not None
    assert DENIED_CIDRS in refusal


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("store.models.svc", "10.96.0.1"),
        ("STORE.models.svc.", "10.96.0.1"),
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("store.models.svc", "169.254.169.254"),
    ],
)
def test_an_allowed_host_may_resolve_to_anything(host: str, address: str) -> None:
    assert CLUSTER.refusal(host, ipaddress.ip_address(address)) is None


@pytest.mark.parametrize("host", ["evil.store.models.svc", "store.models.svc.evil.example", "models.svc"])
def test_only_the_whole_name_is_allowed(host: str) -> None:
    assert CLUSTER.refusal(host, ipaddress.ip_address("10.96.0.1")) is not None


def test_a_wrong_network_is_named_with_its_variable() -> None:
    with pytest.raises(PolicyError, match=f"{DENIED_CIDRS} has '10.96/33'"):
        AddressPolicy.from_env({DENIED_CIDRS: "10.0.0.0/8,10.96/33"})
