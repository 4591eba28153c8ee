"""Which addresses a model may come from.

The model's author chooses the URI, but the request is sent from inside the cluster's network. So every
address, after DNS and after each redirect, passes these rules in order:

| rule | verdict |
|---|---|
| the host is in TAILBOUND_FETCH_ALLOWED_HOSTS | allowed |
| loopback, link-local, unspecified, multicast or reserved | denied |
| a cloud's metadata or wire server beyond link-local | denied |
| inside one of TAILBOUND_FETCH_DENIED_CIDRS | denied |
| anything else | allowed |

An IPv6 address that carries an IPv4 one is judged as that one.
"""

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

ALLOWED_HOSTS: Final = "TAILBOUND_FETCH_ALLOWED_HOSTS"
DENIED_CIDRS: Final = "TAILBOUND_FETCH_DENIED_CIDRS"

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Alibaba, Oracle and Azure; Amazon over IPv6. The usual 169.254.169.254 is link-local.
METADATA: Final = frozenset(
    ipaddress.ip_address(text)
    for text in ("100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254")
)
NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


class PolicyError(ValueError):
    """A variable of the policy is wrong; the text names it, its value and the remedy."""


@dataclass(frozen=True)
class AddressPolicy:
    """allowed_hosts: names or addresses as URIs give them, in lower case; denied: networks."""

    allowed_hosts: frozenset[str]
    denied: tuple[Network, ...]

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "AddressPolicy":
        """Both variables are comma-separated lists; absent means empty. Raises PolicyError."""
        return cls(
            allowed_hosts=frozenset(canonical_host(item) for item in _items(env, ALLOWED_HOSTS)),
            denied=tuple(_network(item) for item in _items(env, DENIED_CIDRS)),
        )

    def refusal(self, host: str, address: Address) -> str | None:
        """Why `address`, to which `host` resolved, may not be used; None if it may."""
        if canonical_host(host) in self.allowed_hosts:
            return None
        for judged in _judged(address):
            kind = _special_kind(judged)
            if kind is not None:
                return f"{address} is {kind}"
            network = next((network for network in self.denied if judged in network), None)
            if network is not None:
                return f"{address} is in {network}, one of {DENIED_CIDRS}"
        return None


def canonical_host(host: str) -> str:
    """Lower case, without brackets and the root's dot: how two spellings of a host compare."""
    return host.strip().strip("[]").rstrip(".").lower()


def _special_kind(address: Address) -> str | None:
    kinds = (
        (address in METADATA, "a cloud's metadata address"),
        (address.is_loopback, "a loopback address"),
        (address.is_link_local, "a link-local address"),
        (address.is_unspecified or address in _THIS_NETWORK, "an address of no host"),
        (address.is_multicast, "a multicast address"),
        # NAT64 counts as reserved, but is how an IPv6-only cluster reaches IPv4; what it carries is judged.
        (address.is_reserved and address not in NAT64, "a reserved address"),
    )
    return next((kind for applies, kind in kinds if applies), None)


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


def _items(env: Mapping[str, str], name: str) -> list[str]:
    return [item.strip() for item in env.get(name, "").split(",") if item.strip()]


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise PolicyError(f"{DENIED_CIDRS} has {text!r}: write networks such as 10.96.0.0/12") from None
