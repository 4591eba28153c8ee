"""Connections to the hosts of models: resolve, check, connect, through a proxy if one is set.

| proxy | the host's name | the connection goes |
|---|---|---|
| none | resolves to allowed addresses | to the first of them that answers |
| none | resolves to denied ones only, or not at all | nowhere: AddressDenied |
| set | allowed, or not resolvable here | through the proxy, which resolves the name |
| set | resolves to denied addresses only | nowhere: AddressDenied |

The address of the proxy that the chart sets is not checked; that of a service's own proxy is.
"""

import ipaddress
import socket
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.addresses import AddressPolicy, canonical_host
from tailbound.fetch.failures import FetchFailedError

_ANSWER_LIMIT_BYTES: Final = 16 * 1024


@dataclass(frozen=True)
class TimeOuts:
    """connect_seconds: for each address, TLS included; stall_seconds: the longest wait for the next bytes."""

    connect_seconds: float = 10
    stall_seconds: float = 30


@dataclass(frozen=True)
class Proxy:
    """An HTTP proxy that understands CONNECT. trusted: the chart set it, and not the author of a service."""

    host: str
    port: int
    trusted: bool

    @classmethod
    def parse(cls, url: str, *, trusted: bool) -> "Proxy":
        """Raises ValueError: it wants http://HOST:PORT."""
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname or parts.port is None or "@" in parts.netloc:
            raise ValueError(f"{url!r} is not a proxy: write http://HOST:PORT")
        return cls(parts.hostname, parts.port, trusted)


class Dialer:
    """Opens connections to hosts that the policy allows."""

    def __init__(self, policy: AddressPolicy, time_outs: TimeOuts, proxy: Proxy | None = None) -> None:
        self.policy = policy
        self.time_outs = time_outs
        self._proxy = proxy

    def dial(self, host: str, port: int) -> socket.socket:
        """A connection to the host, or through the proxy to it. Raises FetchFailedError or OSError."""
        if self._proxy is None:
            return self._connect(self._allowed(host, port), host)
        self._check_unless_unknown(host, port)
        if self._proxy.trusted:
            resolved = _resolved(self._proxy.host, self._proxy.port)
        else:
            resolved = self._allowed(self._proxy.host, self._proxy.port)
        sock = self._connect(resolved, self._proxy.host)
        try:
            _ask_for_tunnel(sock, host, port)
        except BaseException:
            sock.close()
            raise
        return sock

    def _connect(self, addresses: list[tuple[int, Any]], host: str) -> socket.socket:
        last: OSError | None = None
        for family, sockaddr in addresses:
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                sock.settimeout(self.time_outs.connect_seconds)
                sock.connect(sockaddr)
                return sock
            except OSError as error:
                sock.close()
                last = error
        raise last or OSError(f"{host} has no address")

    def _allowed(self, host: str, port: int) -> list[tuple[int, Any]]:
        """The addresses that may be used. The resolver's own time-out (resolv.conf) bounds the wait.

        A name that does not resolve is refused in the words of a denied address: which names exist inside
        the cluster is not for the author of a service to find out.
        """
        try:
            found = _resolved(host, port)
        except socket.gaierror:
            if self.policy.is_allowed_host(host):
                raise
            raise self._denied(host) from None
        usable = [each for each in found if self._may_use(host, each)]
        if not usable:
            raise self._denied(host)
        return usable

    def _check_unless_unknown(self, host: str, port: int) -> None:
        try:
            found = _resolved(host, port)
        except OSError:
            return
        if not any(self._may_use(host, each) for each in found):
            raise self._denied(host)

    def _may_use(self, host: str, found: tuple[int, Any]) -> bool:
        address = ipaddress.ip_address(str(found[1][0]).partition("%")[0])
        return self.policy.allows(host, address)

    def _denied(self, host: str) -> FetchFailedError:
        return FetchFailedError(
            TerminationReason.ADDRESS_DENIED,
            f"{canonical_host(host)} may not be fetched from: it has no address on the internet, and "
            "fetch.allowedHosts and fetch.allowedCIDRs of the chart do not allow it: correct the host, or "
            "have it allowed there",
        )


def _resolved(host: str, port: int) -> list[tuple[int, Any]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a label that is empty or too long
        raise socket.gaierror(socket.EAI_NONAME, "no such name") from error
    return [(family, sockaddr) for family, _, _, _, sockaddr in found]


def _ask_for_tunnel(sock: socket.socket, host: str, port: int) -> None:
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    sock.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        more = sock.recv(1)  # not a byte of what follows may be taken
        if not more or len(answer) > _ANSWER_LIMIT_BYTES:
            raise OSError("the proxy closed the connection")
        answer += more
    status = answer.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(status) < 2 or status[1] != "200":
        raise OSError(f"the proxy refused: {' '.join(status[1:]) or 'no HTTP answer'}")
