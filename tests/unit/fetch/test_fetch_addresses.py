"""Which addresses a model may come from."""

import ipaddress

import pytest
from tailbound.api.runtime_contract import FetchEnv
from tailbound.environment import SettingError
from tailbound.fetch.addresses import AddressPolicy

NOTHING_CONFIGURED = AddressPolicy.from_env({})
CLUSTER = AddressPolicy.from_env(
    {
        FetchEnv.ALLOWED_HOSTS: " Store.Models.svc. ,127.0.0.1,[::1]",
        FetchEnv.ALLOWED_CIDRS: "10.0.0.0/8,fd00::/7,127.0.0.0/8,169.254.0.0/16",
        FetchEnv.DENIED_CIDRS: "10.96.0.0/12, fd00::/8,192.168.1.7/24,93.184.216.0/24",
    }
)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "2002:7f00:1::"),
        *("169.254.169.254", "fe80::1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"),
        *("0.0.0.0", "0.1.2.3", "::", "224.0.0.1", "ff02::1", "255.255.255.255", "240.0.0.1"),
        *("100.100.100.200", "168.63.129.16", "fd00:ec2::254"),
    ],
)
def test_special_addresses_are_denied_whatever_range_is_allowed(address: str) -> None:
    assert not NOTHING_CONFIGURED.allows("models.example", ipaddress.ip_address(address))
    assert not CLUSTER.allows("models.example", ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    ["10.0.0.5", "172.16.0.1", "192.168.0.1", "100.64.0.1", "198.18.0.1", "fd12::1", "::ffff:10.0.0.5"],
)
def test_private_addresses_are_denied_unless_their_range_is_allowed(address: str) -> None:
    assert not NOTHING_CONFIGURED.allows("models.example", ipaddress.ip_address(address))
    opened = AddressPolicy.from_env({FetchEnv.ALLOWED_CIDRS: f"0.0.0.0/0,{ipaddress.ip_address(address)}"})
    assert opened.allows("models.example", ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "64:ff9b::5db8:d822"])
def test_addresses_on_the_internet_are_allowed(address: str) -> None:
    assert NOTHING_CONFIGURED.allows("models.example", ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    ["10.96.0.1", "10.111.255.255", "fd12::1", "192.168.1.200", "::ffff:10.96.0.1", "93.184.216.34"],
)
def test_denied_networks_are_denied_although_allowed_or_on_the_internet(address: str) -> None:
    assert not CLUSTER.allows("models.example", ipaddress.ip_address(address))


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
    assert CLUSTER.allows(host, ipaddress.ip_address(address))


@pytest.mark.parametrize("host", ["evil.store.models.svc", "store.models.svc.evil.example", "models.svc"])
def test_only_the_whole_name_is_allowed(host: str) -> None:
    assert not CLUSTER.allows(host, ipaddress.ip_address("10.96.0.1"))


def test_a_wrong_network_is_named_with_its_variable() -> None:
    with pytest.raises(SettingError, match=f"{FetchEnv.DENIED_CIDRS}: '10.96/33' is not a network such as"):
        AddressPolicy.from_env({FetchEnv.DENIED_CIDRS: "10.0.0.0/8,10.96/33"})
