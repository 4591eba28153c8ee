"""One HTTP request for the model, or for the rest of it: resolve, check, connect, follow redirects.

| status | what becomes of the fetch |
|---|---|
| 200, 206 | the body follows |
| 301, 302, 303, 307, 308 | the next address is resolved and checked in turn |
| 404, 410 | SourceNotFound |
| 401, 403 | SourceForbidden |
| 408, 425, 429, 5xx | tried again |
| 416 | the partial file does not match: tried again from the start |
| anything else | SourceUnreachable |
"""

import http.client
import ipaddress
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.addresses import ALLOWED_HOSTS, AddressPolicy
from tailbound.fetch.failures import FetchFailedError, TransientError

MAX_REDIRECTS: Final = 10
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
NOT_FOUND: Final = frozenset({404, 410})
FORBIDDEN: Final = frozenset({401, 403})
TRANSIENT: Final = frozenset({408, 425, 429, *range(500, 600)})
MAX_RETRY_AFTER_SECONDS: Final = 30


class RangeRefusedError(TransientError):
    """The server has no such range: what is here already is not the start of what it has."""


@dataclass(frozen=True)
class TimeOuts:
    """connect_seconds: for each address, TLS included; stall_seconds: the longest wait for the next bytes."""

    connect_seconds: float = 10
    stall_seconds: float = 30


def shown(url: str) -> str:
    """The URL for logs and messages: its query may hold a signature, and its user part a password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "the URI"
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" + ("?…" if parts.query else "")


class Source:
    """Where the model comes from. Not for several threads."""

    def __init__(self, policy: AddressPolicy, time_outs: TimeOuts) -> None:
        self._policy = policy
        self._time_outs = time_outs
        self._open: list[socket.socket | http.client.HTTPResponse] = []

    def open(self, url: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        """A response of status 200 or 206. Raises FetchFailedError or TransientError."""
        current = url
        for _ in range(MAX_REDIRECTS + 1):
            response = self._request(current, headers)
            if response.status not in REDIRECTS:
                return _checked(response, current)
            current = _redirected(current, response)
        raise FetchFailedError(
            TerminationReason.SOURCE_UNREACHABLE,
            f"{shown(url)} redirects more than {MAX_REDIRECTS} times: give the URI that it leads to",
        )

    def close(self) -> None:
        """Close what is open: a response that ends its connection outlives it, and is closed on its own."""
        while self._open:
            self._open.pop().close()

    def _request(self, url: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        self.close()
        parts = _checked_url(url)
        host, port = parts.hostname or "", parts.port or {"http": 80, "https": 443}[parts.scheme]
        try:
            sock = self._connect(host, port, tls=parts.scheme == "https")
            self._open.append(sock)
            connection = http.client.HTTPConnection(host, port)
            connection.sock = sock
            connection.auto_open = 0  # never by name again: the socket leads to the checked address
            target = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~") + (
                f"?{parts.query}" if parts.query else ""
            )
            connection.request("GET", target, headers={"Host": parts.netloc, **headers})
            response = connection.getresponse()
            self._open.append(response)
            return response
        except ssl.SSLCertVerificationError as error:
            raise FetchFailedError(
                TerminationReason.SOURCE_UNREACHABLE,
                f"the certificate of {shown(url)} is not trusted: {error.verify_message}",
            ) from error
        except (http.client.InvalidURL, UnicodeError) as error:
            raise FetchFailedError(TerminationReason.SOURCE_UNREACHABLE, f"{shown(url)}: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            raise TransientError(f"{shown(url)}: {describe(error)}") from error

    def _connect(self, host: str, port: int, *, tls: bool) -> socket.socket:
        last: OSError | None = None
        for family, sockaddr in self._addresses(host, port):
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                sock.settimeout(self._time_outs.connect_seconds)
                sock.connect(sockaddr)
                if tls:
                    sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
                sock.settimeout(self._time_outs.stall_seconds)
                return sock
            except OSError as error:
                sock.close()
                last = error
        raise last or OSError(f"{host} has no address")

    def _addresses(self, host: str, port: int) -> list[tuple[int, Any]]:
        """The addresses that may be used. The resolver's own time-out (resolv.conf) bounds the wait."""
        usable: list[tuple[int, Any]] = []
        refusals: list[str] = []
        for family, _, _, _, sockaddr in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            address = ipaddress.ip_address(str(sockaddr[0]).partition("%")[0])
            refusal = self._policy.refusal(host, address)
            if refusal is None:
                usable.append((family, sockaddr))
            else:
                refusals.append(refusal)
        if refusals and not usable:
            raise FetchFailedError(
                TerminationReason.ADDRESS_DENIED,
                f"{host} may not be fetched from: {'; '.join(dict.fromkeys(refusals))}. "
                f"If it is meant to be, its name belongs in the operator's {ALLOWED_HOSTS}",
            )
        return usable


def describe(error: BaseException) -> str:
    """A network error in a few words."""
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, socket.gaierror):
        return f"the name does not resolve ({error.strerror})"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _checked_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        problem = next(
            (
                text
                for applies, text in (
                    (parts.scheme not in ("http", "https"), "only http and https are fetched"),
                    (not parts.hostname, "it names no host"),
                    ("@" in parts.netloc, "it holds a user or password, which would be readable in the spec"),
                    (parts.port == 0, "its port is 0"),
                )
                if applies
            ),
            None,
        )
    except ValueError as error:
        raise FetchFailedError(
            TerminationReason.SOURCE_UNREACHABLE, f"the URI is malformed: {error}"
        ) from error
    if problem is not None:
        raise FetchFailedError(
            TerminationReason.SOURCE_UNREACHABLE, f"{shown(url)} cannot be used: {problem}"
        )
    return parts


def _redirected(url: str, response: http.client.HTTPResponse) -> str:
    location = response.getheader("Location")
    if not location:
        raise FetchFailedError(
            TerminationReason.SOURCE_UNREACHABLE,
            f"{shown(url)} answered {response.status} without a Location",
        )
    target = urljoin(url, location)
    if urlsplit(url).scheme == "https" and urlsplit(target).scheme == "http":
        raise FetchFailedError(
            TerminationReason.SOURCE_UNREACHABLE,
            f"{shown(url)} redirects from https to http, to {shown(target)}",
        )
    return target


def _checked(response: http.client.HTTPResponse, url: str) -> http.client.HTTPResponse:
    status = response.status
    answered = f"{shown(url)} answered {status} {response.reason}".rstrip()
    if status in (200, 206):
        return response
    if status in NOT_FOUND:
        raise FetchFailedError(TerminationReason.SOURCE_NOT_FOUND, f"{answered}: check spec.model.uri")
    if status in FORBIDDEN:
        raise FetchFailedError(
            TerminationReason.SOURCE_FORBIDDEN,
            f"{answered}: the store must allow reading without credentials",
        )
    if status == 416:
        raise RangeRefusedError(answered)
    if status in TRANSIENT:
        raise TransientError(answered, _retry_after(response))
    raise FetchFailedError(TerminationReason.SOURCE_UNREACHABLE, f"{answered}, which is no download")


def _retry_after(response: http.client.HTTPResponse) -> float | None:
    text = response.getheader("Retry-After", "")
    return min(float(text), MAX_RETRY_AFTER_SECONDS) if text.isdecimal() else None
