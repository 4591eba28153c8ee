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
import socket
import ssl
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.dial import Dialer
from tailbound.fetch.failures import FetchFailedError, RangeRefusedError, TransientError
from tailbound.fetch.partial import CHUNK_BYTES
from tailbound.fetch.remote import LARGEST_FILE_BYTES, Body, Version

USER_AGENT: Final = "tailbound-fetch"
MAX_REDIRECTS: Final = 10
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
NOT_FOUND: Final = frozenset({404, 410})
FORBIDDEN: Final = frozenset({401, 403})
TRANSIENT: Final = frozenset({408, 425, 429, *range(500, 600)})
MAX_RETRY_AFTER_SECONDS: Final = 30
_MOST_DIGITS: Final = 100
_SETTLED_SECONDS: Final = 60
"""After which a file's date of change names one version of it; clocks of servers may differ by less."""


def shown(url: str) -> str:
    """The URL for logs and messages: its query may hold a signature, and its user part a password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "the URI"
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" + ("?…" if parts.query else "")


class Source:
    """HTTP requests to allowed addresses. It must be used by one thread only.

    authorization: the value of that header for a URL, None if none is meant for it. It is asked at every
    redirect, so that credentials follow only to hosts that they are for.
    """

    def __init__(
        self,
        dialer: Dialer,
        tls: ssl.SSLContext | None = None,
        authorization: Callable[[SplitResult], str | None] = lambda _: None,
    ) -> None:
        self._dialer = dialer
        self._tls = tls
        self._authorization = authorization
        self._open: list[socket.socket | http.client.HTTPResponse] = []
        self.landed = ""
        """The URL that gave the last response, behind all redirects."""

    def another(self) -> "Source":
        """A source of its own with the same rights."""
        return Source(self._dialer, self._tls, self._authorization)

    def open(self, url: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        """A response of status 200 or 206. Raises FetchFailedError or TransientError."""
        current = url
        for hop in range(MAX_REDIRECTS + 1):
            try:
                response = self._request(current, headers)
            except FetchFailedError as error:
                if hop and error.reason is TerminationReason.ADDRESS_DENIED:
                    raise _redirected_to_denied(url) from error
                raise
            if response.status not in REDIRECTS:
                self.landed = current
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
        authorization = self._authorization(parts)
        sent = {"Host": parts.netloc, **headers}
        if authorization is not None:
            sent["Authorization"] = authorization
        try:
            sock = self._connect(host, port, tls=parts.scheme == "https")
            self._open.append(sock)
            connection = http.client.HTTPConnection(host, port)
            connection.sock = sock
            connection.auto_open = 0  # never by name again: the socket leads to the checked address
            target = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~") + (
                f"?{parts.query}" if parts.query else ""
            )
            connection.request("GET", target, headers=sent)
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
        sock = self._dialer.dial(host, port)
        try:
            if tls:
                context = self._tls or ssl.create_default_context()
                sock = context.wrap_socket(sock, server_hostname=host)
        except OSError:
            sock.close()
            raise
        sock.settimeout(self._dialer.time_outs.stall_seconds)
        return sock


class HttpFile:
    """A file at a URL."""

    def __init__(self, source: Source, url: str, landed: str = "") -> None:
        """landed: where the redirects of the URL have led to; empty if that is not known."""
        self._source = source
        self._url = url
        self._landed = landed

    @property
    def shown(self) -> str:
        return shown(self._url)

    def open(self, start: int, validator: str | None) -> Body:
        headers = {"User-Agent": USER_AGENT, "Accept-Encoding": "identity"}
        if start and validator is not None:
            headers |= {"Range": f"bytes={start}-", "If-Range": validator}
        response = self._source.open(self._url, headers)
        self._landed = self._source.landed
        begins, total = 0, self._size(response.length)
        end_stated = total is not None or response.chunked
        if response.status == HTTPStatus.PARTIAL_CONTENT:
            self._check_range(response, start, validator)
            begins, total = start, self._size(_size_of_whole(response))
            end_stated = total is not None
            if total is None and response.length is not None:
                total = begins + response.length
        encoding = response.getheader("Content-Encoding", "").strip().lower()
        return Body(
            start=begins,
            total=total,
            validator=_validator(response),
            read=lambda: self._read(response),
            content_type=response.getheader("Content-Type", "").partition(";")[0].strip().lower(),
            encoding="" if encoding == "identity" else encoding,
            end_stated=end_stated,
        )

    def another(self) -> "HttpFile":
        return HttpFile(self._source.another(), self._url, self._landed)

    def part(self, start: int, end: int, version: Version) -> Callable[[], bytes]:
        """Redirects are followed again after a failure only: hubs count them, and what they sign expires."""
        url, self._landed = self._landed or self._url, ""
        headers = {"User-Agent": USER_AGENT, "Accept-Encoding": "identity"}
        response = self._source.open(
            url, headers | {"Range": f"bytes={start}-{end - 1}", "If-Range": version.validator}
        )
        same = _same_version(response, version.validator) and _size_of_whole(response) == version.total
        if not (same and _continues(response, start)):
            raise RangeRefusedError(f"{self.shown} gives no range of the version that was begun")
        self._landed = url
        return lambda: self._read(response)

    def close(self) -> None:
        self._source.close()

    def _check_range(self, response: http.client.HTTPResponse, start: int, validator: str | None) -> None:
        """Raises RangeRefusedError unless it is the rest from byte `start` of this version."""
        if not _continues(response, start):
            raise RangeRefusedError(f"{self.shown} gives another range than the one from byte {start}")
        if validator is not None and not _same_version(response, validator):
            raise RangeRefusedError(f"{self.shown} has changed meanwhile")

    def _size(self, stated: int | None) -> int | None:
        if stated is not None and stated > LARGEST_FILE_BYTES:
            raise FetchFailedError(
                TerminationReason.SOURCE_UNREACHABLE, f"{self.shown} states a size that no file has"
            )
        return stated

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        try:
            return response.read1(CHUNK_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise TransientError(f"{self.shown} broke off: {describe(error)}") from error


def _continues(response: http.client.HTTPResponse, start: int) -> bool:
    """Whether the body goes on exactly at byte `start`."""
    first = response.getheader("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    return response.status == HTTPStatus.PARTIAL_CONTENT and first == str(start)


def _size_of_whole(response: http.client.HTTPResponse) -> int | None:
    """The bytes of the whole file as a range states them; None if it does not."""
    _, _, size = response.getheader("Content-Range", "").partition("/")
    # More digits are too large in any case, and Python reads no more than some thousand.
    return int(size[:_MOST_DIGITS]) if size.isdecimal() else None


def _validator(response: http.client.HTTPResponse) -> str | None:
    """What names the version of a file; None if nothing does.

    | ETag | Last-Modified | validator |
    |---|---|---|
    | strong | any | the ETag |
    | weak, or none | a minute or more before the Date of the response | Last-Modified |
    | weak, or none | later, or none, or there is no Date | None |

    A date is in whole seconds: a file that has just been written can be written again with the same one.
    """
    etag = response.getheader("ETag")
    if etag and not etag.startswith("W/"):
        return etag
    changed, now = (_seconds(response.getheader(name, "")) for name in ("Last-Modified", "Date"))
    settled = changed is not None and now is not None and now - changed >= _SETTLED_SECONDS
    return response.getheader("Last-Modified") if settled else None


def _seconds(date: str) -> float | None:
    """Seconds since 1970 of an HTTP date; None if it is none."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None


def _same_version(response: http.client.HTTPResponse, validator: str) -> bool:
    """Whether a range says that it is of this version: servers that ignore If-Range give that of any."""
    return validator in (response.getheader("ETag"), response.getheader("Last-Modified"))


def _redirected_to_denied(url: str) -> FetchFailedError:
    return FetchFailedError(
        TerminationReason.ADDRESS_DENIED,
        f"{shown(url)} redirects to a host that may not be fetched from: it has no address on the internet, "
        "and fetch.allowedHosts and fetch.allowedCIDRs of the chart do not allow it",
    )


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
    target = joined(url, location)
    if urlsplit(url).scheme == "https" and urlsplit(target).scheme == "http":
        raise FetchFailedError(
            TerminationReason.SOURCE_UNREACHABLE,
            f"{shown(url)} redirects from https to http, to {shown(target)}",
        )
    return target


def joined(url: str, location: str) -> str:
    """The URL that a response of `url` leads to. Raises FetchFailedError."""
    try:
        return urljoin(url, location)
    except ValueError as error:
        raise FetchFailedError(
            TerminationReason.SOURCE_UNREACHABLE, f"{shown(url)} leads to a malformed URI: {error}"
        ) from error


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
            f"{answered}: spec.model.secretRef must name a Secret with credentials that may read it",
        )
    if status == 416:
        raise RangeRefusedError(answered)
    if status in TRANSIENT:
        raise TransientError(answered, _retry_after(response))
    raise FetchFailedError(TerminationReason.SOURCE_UNREACHABLE, f"{answered}, which is no download")


def _retry_after(response: http.client.HTTPResponse) -> float | None:
    text = response.getheader("Retry-After", "")
    return min(float(text), MAX_RETRY_AFTER_SECONDS) if text.isdecimal() else None
