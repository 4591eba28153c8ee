"""The credentials of spec.model.secretRef, and the hosts that they may be sent to.

The author of a service need not be allowed to read Secrets. So a Secret is used only for the hosts that its
own key `hosts` lists: its author meant it for them. An entry is HOST, which means the port that its scheme
has by default, or HOST:PORT: a server at another port of a host can belong to another person.

| the Secret | is |
|---|---|
| missing or empty | refused |
| without `hosts` | refused |
| with an entry that is a URL | refused |
| with `hosts`, none of them the host and port of the model | refused |
| with that host and port | used for it, over HTTPS or to a host that the chart allows |
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult

from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.addresses import AddressPolicy, canonical_host
from tailbound.fetch.failures import FetchFailedError

HOSTS: Final = "hosts"
_LARGEST_VALUE_BYTES: Final = 64 * 1024


@dataclass(frozen=True)
class Credentials:
    """values: the keys of the Secret; hosts: NAME or NAME:PORT, `*.` in front for those below a domain."""

    values: Mapping[str, str]
    hosts: tuple[str, ...]

    @classmethod
    def read(cls, folder: Path) -> "Credentials":
        """The Secret that is mounted at `folder`. Raises FetchFailedError."""
        files = [path for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []
        if not files:
            raise _refused("does not exist, or is empty: create it, or remove secretRef")
        values = {path.name: _text(path) for path in files}
        names = values.get(HOSTS, "").replace(",", " ").split()
        if not names:
            raise _refused(
                f"has no key {HOSTS!r}: list in it the hosts that the credentials are for, with commas "
                "between them, for example models.example.com, models.example.com:8443 or *.amazonaws.com"
            )
        url = next((name for name in names if "/" in name), None)
        if url is not None:
            raise _refused(f"has {url!r} in its key {HOSTS!r}: write HOST, or HOST:PORT")
        return cls(values, tuple(names))

    def meant_for(self, url: SplitResult) -> bool:
        """Whether the Secret lists the host and the port of a URL."""
        return any(_covers(each, url) for each in self.hosts)

    def check(self, url: SplitResult) -> None:
        """Raises FetchFailedError unless the credentials are for the host and the port of this URL."""
        if not self.meant_for(url):
            entry = _entry_for(url)
            raise _refused(
                f"is not for {entry}: its key {HOSTS!r} does not list that. Use another Secret, or have its "
                f"owner add {entry}"
            )

    def require(self, *keys: str) -> tuple[str, ...]:
        """The values of these keys. Raises FetchFailedError if one is missing."""
        missing = [key for key in keys if not self.values.get(key)]
        if missing:
            raise _refused(f"lacks the key {missing[0]!r}: it needs {HOSTS}, {', '.join(keys)}")
        return tuple(self.values[key] for key in keys)

    def authorization(self) -> str:
        """The header for HTTP: of `token`, or of `username` and `password`. Raises FetchFailedError."""
        if self.values.get("token"):
            return f"Bearer {self.values['token']}"
        if not self.values.get("username"):
            raise _refused(f"needs {HOSTS} and either token, or username and password")
        user, password = self.require("username", "password")
        return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def authorization_for(
    credentials: Credentials, policy: AddressPolicy, first: SplitResult, url: SplitResult
) -> str | None:
    """The Authorization header of a request for `url`, to which the model's URL `first` may have redirected.

    Raises FetchFailedError if the credentials may not be sent to the model's own host.
    """
    host = url.hostname or ""
    is_first = (url.scheme, url.netloc) == (first.scheme, first.netloc)
    if is_first:
        credentials.check(url)
    elif not credentials.meant_for(url):
        return None
    if url.scheme != "https" and not policy.is_allowed_host(host):
        if not is_first:
            return None
        raise _refused(f"is not sent to {canonical_host(host)} over plain http: write https")
    return credentials.authorization()


def _covers(entry: str, url: SplitResult) -> bool:
    """Whether an entry of `hosts` is for a URL's host and port."""
    name, colon, port = entry.rpartition(":")
    if not (colon and port.isdecimal() and ("]" in name or ":" not in name)):  # no colon of an IPv6 address
        name, port = entry, str(_default_port(url))
    listed, host = canonical_host(name), canonical_host(url.hostname or "")
    if int(port) != (url.port or _default_port(url)):
        return False
    return host.endswith(listed[1:]) and host != listed[2:] if listed.startswith("*.") else host == listed


def _entry_for(url: SplitResult) -> str:
    """The entry that `hosts` needs for a URL."""
    host, port = canonical_host(url.hostname or ""), url.port or _default_port(url)
    if port == _default_port(url):
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _default_port(url: SplitResult) -> int:
    return 80 if url.scheme == "http" else 443


def _text(path: Path) -> str:
    if path.stat().st_size > _LARGEST_VALUE_BYTES:
        raise _refused(f"has a key {path.name!r} of more than {_LARGEST_VALUE_BYTES} bytes")
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise _refused(f"has a key {path.name!r} that is no text") from error
    return text.strip()


def _refused(why: str) -> FetchFailedError:
    return FetchFailedError(
        TerminationReason.CREDENTIALS_REFUSED, f"the Secret of spec.model.secretRef {why}"
    )
