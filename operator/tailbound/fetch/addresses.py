"""Which addresses a model may come from.

The model's author chooses the URI, but the request is sent from inside the cluster's network. So every
address, after DNS and after each redirect, passes these rules in order:

| rule | verdict |
|---|---|
| the host is in TAILBOUND_FETCH_ALLOWED_HOSTS | allowed |
| loopback, link-local, unspecified, multicast or reserved | denied |
| a cloud's metadata or wire server beyond link-local | denied |
| inside one of TAILBOUND_FETCH_DENIED_CIDRS | denied |
| inside one of TAILBOUND_FETCH_ALLOWED_CIDRS | allowed |
| not reachable from the internet: private and shared ranges and the like | denied |
| anything else | allowed |

An IPv6 address that carries an IPv4 one is judged as that one.
"""

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tailbound.api.runtime_contract import FetchEnv
from tailbound.environment import Environment

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Alibaba, Oracle and Azure; Amazon over IPv6. The usual 169.254.169.254 is link-local.
METADATA: Final = frozenset(
    ipaddress.ip_address(text)
    for text in ("100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254")
)
NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


@dataclass(frozen=True)
class AddressPolicy:
    """allowed_hosts: names or addresses as URIs give them, in lower case; allowed, denied: networks."""

    allowed_hosts: frozenset[str]
    denied: tuple[Network, ...]
    allowed: tuple[Network, ...] = ()

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "AddressPolicy":
        """The variables are comma-separated lists; absent means empty. Raises SettingError."""
        source = Environment(env, "the operator sets it on the container that fetches")

        def networks(name: str) -> tuple[Network, ...]:
            return tuple(ipaddress.ip_network(each, strict=False) for each in source.texts(name, _network))

        return cls(
            allowed_hosts=frozenset(map(canonical_host, source.texts(FetchEnv.ALLOWED_HOSTS))),
            denied=networks(FetchEnv.DENIED_CIDRS),
            allowed=networks(FetchEnv.ALLOWED_CIDRS),
        )

    def is_allowed_host(self, host: str) -> bool:
        """Whether the chart names this host, so that it may have any address."""
        return canonical_host(host) in self.allowed_hosts

    def allows(self, host: str, address: Address) -> bool:
        """Whether `address`, to which `host` resolved, may be used."""
        return self.is_allowed_host(host) or all(self._allows(judged) for judged in _judged(address))

    def _allows(self, address: Address) -> bool:
        if _is_special(address) or any(address in network for network in self.denied):
            return False
        return address.is_global or address in NAT64 or any(address in network for network in self.allowed)


def canonical_host(host: str) -> str:
    """Lower case, without brackets and the root's dot: how two spellings of a host compare."""
    return host.strip().strip("[]").rstrip(".").lower()


def _is_special(address: Address) -> bool:
    return (
        address in METADATA
        or address.is_loopback
        or address.is_link_local
        or address.is_unspecified
        or address in _THIS_NETWORK
        or address.is_multicast
        # NAT64 counts as reserved, but is how an IPv6-only cluster reaches IPv4; what it carries is judged.
        or (address.is_reserved and address not in NAT64)
    )


_THIS_NETWORK: Final = ipaddress.IPv4Network("0.0.0.0/8")


def _judged(address: Address) -> Iterator[Address]:
    """The address, and the IPv4 one that it carries. A mapped one is nothing but the latter."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        yield address.ipv4_mapped
        return
    yield address
    if isinstance(address, ipaddress.IPv4Address):
        return
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield address.teredo[1]
    if address in NAT64:
        yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)


def _network(text: str) -> str | None:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        return f"a network such as 10.96.0.0/12 ({error})"
    return None
